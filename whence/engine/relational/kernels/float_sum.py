"""Exact sums of doubles: fixed-point numbers that are as wide as the values need.

Law: every finite double is a whole number of some power of two, so a sum of them is one, too. Adding and taking away
whole numbers is exact, in any order; a sum over no rows is zero, and nothing on the way overflows. The sum is rounded
once, when it is shown.

A sum is `limbs` int64 words: the sum of word[k] * 2**(32 * (low + k)). All words but the last are in [0, 2**32); the
last has the sign and room for 2**48 values of the largest magnitude. `find_range` says which bits the values of a batch
need, and `limbs_for` which words. Most data needs three or four; doubles of all magnitudes need 66.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

NO_BITS = 1 << 30  # as a range: no bit is needed
DIGITS = 72  # more than the words of any sum
WIDE_LIMBS = 5  # the words of a sum of whole numbers of 128 bits

_FLIP = 0x7FFFFFFFFFFFFFFF
_LOW = 0xFFFFFFFF
_NULL = -(2**63)
_HEADROOM = 48  # the base-two logarithm of how many values of the largest magnitude fit


@kernel
def split(code: int) -> tuple[int, int]:
    """Return a finite double as (m, e): its value is m * 2**e. Infinities and NaN have e = 972."""
    bits = code ^ ((code >> 63) & _FLIP)
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0:
        exponent = 1
    else:
        mantissa |= 0x10000000000000
    return (-mantissa if bits < 0 else mantissa), exponent - 1075


@kernel
def trailing_zeros(n: int) -> int:
    """Count the zero bits below the lowest set bit of a number that is not 0."""
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if n & ((1 << step) - 1) == 0:
            n >>= step
            count += step
    return count


@kernel
def find_range(batch: Codes, column: int, out: Codes) -> None:
    """Write to `out` the exponents of the lowest and one past the highest bit that the finite values have."""
    lowest = NO_BITS
    highest = -NO_BITS
    for i in range(batch.shape[0]):
        code = batch[i, column]
        if code == _NULL:
            continue
        mantissa, exponent = split(code)
        if mantissa == 0 or exponent == 972:
            continue
        if exponent + 53 > highest:
            highest = exponent + 53
        if exponent < lowest:
            lowest = min(lowest, exponent + trailing_zeros(mantissa))
    out[0] = lowest
    out[1] = highest


def limbs_for(low: int, limbs: int, lowest: int, highest: int) -> tuple[int, int]:
    """Return (low, limbs) of sums that hold what they held, and values with bits from `lowest` to `highest`."""
    if lowest == NO_BITS:
        return low, limbs
    top = max(low + limbs - 1, -(-(highest + _HEADROOM - 63) // 32), lowest >> 5)
    low = min(low, lowest >> 5) if limbs else lowest >> 5
    return low, max(top, low) - low + 1


def widen(old: Codes, low: int, new: Codes, new_low: int) -> None:
    """Write sums, one per line of `old`, to the wider lines of `new`, which are zero."""
    limbs = old.shape[1]
    if not limbs:
        return
    first = low - new_low
    new[:, first : first + limbs] = old
    for k in range(first + limbs - 1, new.shape[1] - 1):
        new[:, k + 1] = new[:, k] >> 32
        new[:, k] &= _LOW


@kernel
def add_double(acc: Codes, g: int, o: int, low: int, limbs: int, code: int, times: int) -> None:
    """Add a finite double `times` times to the sum at acc[g, o:o+limbs], whose words have its bits."""
    mantissa, exponent = split(code)
    sign = 1 if (mantissa < 0) == (times < 0) else -1
    mantissa, times = abs(mantissa), abs(times)
    if mantissa == 0:
        return
    place = exponent - 32 * low
    if place < 0:  # the bits below are zeros
        mantissa >>= -place
        place = 0
    top = limbs - 1
    while times > 0:
        part = sign * (times & 0x3FFFFFFF)
        times >>= 30
        k = place >> 5
        shift = place & 31
        place += 30
        carry = 0
        for j in range(3):
            if j == 0:
                digit = (mantissa << shift) & _LOW
            elif j == 1:
                digit = (mantissa >> (32 - shift)) & _LOW
            else:
                digit = mantissa >> (64 - shift) if shift > 0 else 0
            if k + j >= top:
                if digit != 0 or carry != 0:
                    acc[g, o + top] += ((digit * part) << (32 * (k + j - top))) + carry
                carry = 0
                continue
            word = acc[g, o + k + j] + digit * part + carry
            carry = word >> 32
            acc[g, o + k + j] = word & _LOW
        k += 3
        while carry != 0 and k < top:
            word = acc[g, o + k] + carry
            carry = word >> 32
            acc[g, o + k] = word & _LOW
            k += 1
        if k >= top:
            acc[g, o + top] += carry


@kernel
def add_words(acc: Codes, g: int, o: int, high: int, low: int, times: int) -> None:
    """Add a whole number of 128 bits, as two words, `times` times to the sum at acc[g, o:o+WIDE_LIMBS]."""
    carry = acc[g, o] + (low & _LOW) * times
    acc[g, o] = carry & _LOW
    carry = (carry >> 32) + acc[g, o + 1] + ((low >> 32) & _LOW) * times
    acc[g, o + 1] = carry & _LOW
    carry = (carry >> 32) + acc[g, o + 2] + (high & _LOW) * times
    acc[g, o + 2] = carry & _LOW
    carry = (carry >> 32) + acc[g, o + 3] + (high >> 32) * times
    acc[g, o + 3] = carry & _LOW
    acc[g, o + 4] += carry >> 32


@kernel
def two_words(acc: Codes, g: int, o: int) -> tuple[int, int]:
    """Return the sum at acc[g, o:o+WIDE_LIMBS] as a high and a low word; one that needs more as a very large one."""
    over = acc[g, o + 4]
    if over != acc[g, o + 3] << 32 >> 63:
        return (_FLIP if over > 0 else -_FLIP), 0
    return (acc[g, o + 3] << 32) | acc[g, o + 2], (acc[g, o + 1] << 32) | acc[g, o]


@kernel
def rounded(acc: Codes, g: int, o: int, low: int, limbs: int, digits: Codes) -> tuple[float, int]:
    """Return the sum at acc[g, o:o+limbs] as (x, e): its value is x * 2**e, rounded to 53 bits, half to even.

    `digits` is scratch of DIGITS words."""
    top = limbs - 1
    negative = limbs > 0 and acc[g, o + top] < 0
    carry = 1  # the magnitude of a negative number is its complement plus 1
    for k in range(limbs):
        digits[k] = acc[g, o + k] & _LOW
    digits[limbs] = (acc[g, o + top] >> 32) & _LOW if limbs > 0 else 0
    highest = -1
    for k in range(limbs + 1):
        if negative:
            word = (digits[k] ^ _LOW) + carry
            carry = word >> 32
            digits[k] = word & _LOW
        if digits[k] != 0:
            highest = k
    if highest < 0:
        return 0.0, 0
    first = digits[highest]
    second = digits[highest - 1] if highest > 0 else 0
    third = digits[highest - 2] if highest > 1 else 0
    size = 0
    while (first >> size) != 0:
        size += 1
    # The 62 highest bits, the last one set if any bit below them is: rounding them is rounding the sum.
    if size <= 30:
        window = (first << (62 - size)) | (second << (30 - size)) | (third >> (size + 2))
        rest = third & ((1 << (size + 2)) - 1)
    else:
        window = (first << (62 - size)) | (second >> (size - 30))
        rest = (second & ((1 << (size - 30)) - 1)) | third
    for k in range(highest - 2):
        rest |= digits[k]
    if rest != 0:
        window |= 1
    return (-float(window) if negative else float(window)), 32 * (low + highest - 2) + size + 2
