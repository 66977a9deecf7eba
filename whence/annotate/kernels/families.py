"""Families of witnesses: monotone Boolean functions in their one irredundant disjunctive form, on whole columns.

A witness is a sorted sequence of variables in pool `w`, a family the sorted sequence of its witnesses' numbers in pool
`f`, none of which contains another. Both are stored once, so a function is its family's number: 0 is the empty family
(false) and 1 the family of the empty witness (true). A witness's mark is a signature, one bit of 64 for each variable:
x can be part of y only if every bit of x is a bit of y, which rejects nearly all pairs without looking at variables.

Products are built as candidates behind the last witness, made an antichain smallest first, and only then interned, so
that what is absorbed leaves nothing behind. A kernel that lacks room returns the row it stands at, having finished all
rows before; K_STATUS says whether to grow and go on or that a function has more witnesses than are allowed.
"""

from __future__ import annotations

from whence.annotate.kernels.pool import (
    LENGTH,
    MARK,
    P_COUNT,
    P_USED,
    START,
    Ints,
    has_room,
    intern,
    mix,
    note,
    pool,
    set_note,
    sort_items,
)
from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

WORK = RecordType(
    (
        ("candidates", "int64", 2),  # [.., 4], fields C_*
        ("order", "int64", 1),  # candidates by size
        ("notes", "int64", 1),  # of each variable: stamp << 32 | value
        ("scalar", "int64", 1),  # K_*
    )
)
work = at_address(WORK)

C_START, C_LENGTH, C_MARK, C_NUMBER = range(4)  # C_NUMBER: of a known witness, else -1; -2 if absorbed
K_STATUS, K_LIMIT, K_LONGEST, K_STAMP, K_WANTED = range(5)
OK, GROW, TOO_LARGE, TORN = range(4)
ABSORBED = -2


@kernel
def signature(w, start, length):
    """One bit for each variable of a stretch of items."""
    bits = 0
    for i in range(start, start + length):
        bits |= 1 << ((mix(0, w.items[i]) >> 58) & 63)
    return bits


@kernel
def within(w, x, n, y, m):
    """Whether the n variables from x on are among the m from y on."""
    items = w.items
    i, j = 0, 0
    while i < n:
        while j < m and items[y + j] < items[x + i]:
            j += 1
        if j == m or items[y + j] != items[x + i]:
            return False
        i += 1
        j += 1
    return True


@kernel
def absorbs(w, x, y):
    """Whether witness x is part of witness y."""
    if x == y:
        return True
    spans = w.spans
    if spans[x, MARK] & ~spans[y, MARK] or spans[x, LENGTH] > spans[y, LENGTH]:
        return False
    return within(w, spans[x, START], spans[x, LENGTH], spans[y, START], spans[y, LENGTH])


@kernel
def fits(k, candidates):
    """Whether there is room for so many candidates; if not, the driver is told."""
    if candidates <= len(k.candidates):
        return True
    k.scalar[K_WANTED] = candidates
    return False


@kernel
def minimise(k, w, n):
    """Mark those of the n candidates that another is part of; how many are left, or -1 if more than the limit."""
    candidates, order, limit = k.candidates, k.order, k.scalar[K_LIMIT]
    for i in range(n):
        order[i] = i
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            c, at = order[i], i
            size = candidates[c, C_LENGTH]
            while at >= gap and candidates[order[at - gap], C_LENGTH] > size:
                order[at] = order[at - gap]
                at -= gap
            order[at] = c
        gap //= 3
    left = 0
    for i in range(n):
        c = order[i]
        start, length, bits = candidates[c, C_START], candidates[c, C_LENGTH], candidates[c, C_MARK]
        kept = True
        for j in range(left):
            d = order[j]
            if not candidates[d, C_MARK] & ~bits and within(
                w, candidates[d, C_START], candidates[d, C_LENGTH], start, length
            ):
                candidates[c, C_NUMBER] = ABSORBED
                kept = False
                break
        if kept:
            if left == limit:
                return -1
            order[left] = c
            left += 1
    return left


@kernel
def take(k, w, f, n):
    """The family of the n candidates, or -1 with K_STATUS set."""
    candidates, scalar, items = k.candidates, k.scalar, w.items
    left = minimise(k, w, n)
    if left < 0:
        scalar[K_STATUS] = TOO_LARGE
        return -1
    fresh = 0
    for c in range(n):
        if candidates[c, C_NUMBER] == -1:
            fresh += 1
            if candidates[c, C_LENGTH] > scalar[K_LONGEST]:
                scalar[K_STATUS] = TOO_LARGE
                return -1
    if not has_room(w, fresh, 0) or not has_room(f, 1, left):
        scalar[K_STATUS] = GROW
        return -1
    to = f.scalar[P_USED]
    for c in range(n):
        number = candidates[c, C_NUMBER]
        if number == ABSORBED:
            continue
        if number < 0:
            # Candidates stand behind the last witness in this order, so that none is overwritten before it is moved.
            start, used = candidates[c, C_START], w.scalar[P_USED]
            if start != used:
                for i in range(candidates[c, C_LENGTH]):
                    items[used + i] = items[start + i]
            number = intern(w, candidates[c, C_LENGTH], candidates[c, C_MARK])
        f.items[to] = number
        to += 1
    sort_items(f.items, f.scalar[P_USED], to)
    return intern(f, left, 0)


@kernel
def add_known(k, w, at, number):
    """A witness as candidate."""
    candidates = k.candidates
    candidates[at, C_START] = w.spans[number, START]
    candidates[at, C_LENGTH] = w.spans[number, LENGTH]
    candidates[at, C_MARK] = w.spans[number, MARK]
    candidates[at, C_NUMBER] = number


@kernel
def join(w, x, y, to):
    """Write the variables of witnesses x and y to `to`; how many."""
    spans, items = w.spans, w.items
    i, end = spans[x, START], spans[x, START] + spans[x, LENGTH]
    j, stop = spans[y, START], spans[y, START] + spans[y, LENGTH]
    at = to
    while i < end and j < stop:
        p, q = items[i], items[j]
        items[at] = min(p, q)
        at += 1
        i += p <= q
        j += q <= p
    while i < end:
        items[at] = items[i]
        at += 1
        i += 1
    while j < stop:
        items[at] = items[j]
        at += 1
        j += 1
    return at - to


@kernel
def product(k, w, f, a, b):
    """The family of a AND b, or -1 with K_STATUS set."""
    if a == b or b == 1 or a == 0:
        return a
    if a == 1 or b == 0:
        return b
    candidates, spans = k.candidates, w.spans
    p, n = f.spans[a, START], f.spans[a, LENGTH]
    q, m = f.spans[b, START], f.spans[b, LENGTH]
    first = second = 0
    for i in range(p, p + n):
        first += spans[f.items[i], LENGTH]
    for j in range(q, q + m):
        second += spans[f.items[j], LENGTH]
    if not fits(k, n * m) or not has_room(w, 1, m * first + n * second):
        k.scalar[K_STATUS] = GROW
        return -1
    at, to = 0, w.scalar[P_USED]
    for i in range(p, p + n):
        x = f.items[i]
        for j in range(q, q + m):
            y = f.items[j]
            bits = spans[x, MARK] | spans[y, MARK]
            if bits == spans[y, MARK] and absorbs(w, x, y):
                add_known(k, w, at, y)
            elif bits == spans[x, MARK] and absorbs(w, y, x):
                add_known(k, w, at, x)
            else:
                length = join(w, x, y, to)
                candidates[at, C_START] = to
                candidates[at, C_LENGTH] = length
                candidates[at, C_MARK] = bits
                candidates[at, C_NUMBER] = -1
                to += length
            at += 1
    return take(k, w, f, at)


@kernel
def merged(k, w, f, a, b):
    """The family of a OR b, or -1 with K_STATUS set."""
    if a == b or b == 0 or a == 1:
        return a
    if a == 0 or b == 1:
        return b
    flags, items = k.candidates, f.items
    p, n = f.spans[a, START], f.spans[a, LENGTH]
    q, m = f.spans[b, START], f.spans[b, LENGTH]
    if not fits(k, n + m) or not has_room(f, 1, n + m):
        k.scalar[K_STATUS] = GROW
        return -1
    for i in range(n + m):
        flags[i, 0] = 1
    mine, theirs = n, m
    for i in range(n):
        x = items[p + i]
        for j in range(m):
            y = items[q + j]
            if not flags[n + j, 0]:
                continue
            if absorbs(w, x, y):
                flags[n + j, 0] = 0
                theirs -= 1
            elif absorbs(w, y, x):
                flags[i, 0] = 0
                mine -= 1
                break
    if theirs == 0:
        return a
    if mine == 0 and theirs == m:
        return b
    if mine + theirs > k.scalar[K_LIMIT]:
        k.scalar[K_STATUS] = TOO_LARGE
        return -1
    to = f.scalar[P_USED]
    i = j = 0
    while i < n or j < m:
        if j == m or (i < n and items[p + i] < items[q + j]):
            items[to] = items[p + i]
            to += flags[i, 0]
            i += 1
        else:
            items[to] = items[q + j]
            to += flags[n + j, 0]
            j += 1
    return intern(f, mine + theirs, 0)


@kernel
def variables(work_address: int, w_address: int, f_address: int, tids: Ints, out: Ints, row: int) -> int:
    """The functions that are one variable each."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    for i in range(row, len(tids)):
        if not has_room(w, 1, 1) or not has_room(f, 1, 1):
            k.scalar[K_STATUS] = GROW
            return i
        w.items[w.scalar[P_USED]] = tids[i]
        f.items[f.scalar[P_USED]] = intern(w, 1, signature(w, w.scalar[P_USED], 1))
        out[i] = intern(f, 1, 0)
    return len(tids)


@kernel
def times(work_address: int, w_address: int, f_address: int, a: Ints, b: Ints, out: Ints, row: int) -> int:
    """a AND b, row by row."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    for i in range(row, len(a)):
        out[i] = product(k, w, f, a[i], b[i])
        if out[i] < 0:
            return i
    return len(a)


@kernel
def plus(work_address: int, w_address: int, f_address: int, a: Ints, b: Ints, out: Ints, row: int) -> int:
    """a OR b, row by row."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    for i in range(row, len(a)):
        out[i] = merged(k, w, f, a[i], b[i])
        if out[i] < 0:
            return i
    return len(a)


@kernel
def total(work_address: int, w_address: int, f_address: int, a: Ints, starts: Ints, out: Ints, row: int) -> int:
    """OR over the runs of a column."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    for r in range(row, len(starts)):
        start = starts[r]
        end = starts[r + 1] if r + 1 < len(starts) else len(a)
        if end - start == 1:
            out[r] = a[start]
        elif end - start == 2:
            out[r] = merged(k, w, f, a[start], a[start + 1])
        else:
            members = 0
            for i in range(start, end):
                members += f.spans[a[i], LENGTH]
            if not fits(k, members):
                k.scalar[K_STATUS] = GROW
                return r
            at, before = 0, -1
            for i in range(start, end):
                if a[i] != before:
                    before = a[i]
                    first = f.spans[before, START]
                    for j in range(first, first + f.spans[before, LENGTH]):
                        add_known(k, w, at, f.items[j])
                        at += 1
            out[r] = take(k, w, f, at)
        if out[r] < 0:
            return r
    return len(starts)


@kernel
def implied(w_address: int, f_address: int, a: Ints, b: Ints, out: Ints) -> None:
    """Whether each witness of a has a part that is a witness of b."""
    w, f = pool(w_address), pool(f_address)
    for r in range(len(a)):
        out[r] = 1
        if a[r] == b[r]:
            continue
        p, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        q, m = f.spans[b[r], START], f.spans[b[r], LENGTH]
        for i in range(p, p + n):
            found = False
            for j in range(q, q + m):
                if absorbs(w, f.items[j], f.items[i]):
                    found = True
                    break
            if not found:
                out[r] = 0
                break


@kernel
def mark_variables(work_address: int, tids: Ints) -> int:
    """Note these variables; the signature of them all. The stamp is new."""
    k = work(work_address)
    bits = 0
    for i in range(len(tids)):
        if 0 <= tids[i] < len(k.notes):
            k.notes[tids[i]] = k.scalar[K_STAMP] << 32
            bits |= 1 << ((mix(0, tids[i]) >> 58) & 63)
    return bits


@kernel
def without(work_address: int, w_address: int, f_address: int, bits: int, a: Ints, out: Ints, row: int) -> int:
    """The families without the witnesses that have a noted variable. What is left of an antichain is one."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    stamp = k.scalar[K_STAMP]
    for r in range(row, len(a)):
        first, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        if not has_room(f, 1, n):
            k.scalar[K_STATUS] = GROW
            return r
        to = f.scalar[P_USED]
        for j in range(first, first + n):
            x = f.items[j]
            alive = True
            if w.spans[x, MARK] & bits:
                start = w.spans[x, START]
                for i in range(start, start + w.spans[x, LENGTH]):
                    if (k.notes[w.items[i]] >> 32) == stamp:
                        alive = False
                        break
            if alive:
                f.items[to] = x
                to += 1
        left = to - f.scalar[P_USED]
        out[r] = a[r] if left == n else intern(f, left, 0)
    return len(a)


@kernel
def weigh(w_address: int, f_address: int, a: Ints, out: Ints) -> None:
    """For each function (how many witnesses, how many variables counted once a witness)."""
    w, f = pool(w_address), pool(f_address)
    for r in range(len(a)):
        first, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        out[r, 0] = n
        out[r, 1] = 0
        for j in range(first, first + n):
            out[r, 1] += w.spans[f.items[j], LENGTH]


@kernel
def list_parts(w_address: int, f_address: int, a: Ints, lengths: Ints, variables: Ints) -> None:
    """The lengths of the functions' witnesses, and their variables, one after the other."""
    w, f = pool(w_address), pool(f_address)
    witness = at = 0
    for r in range(len(a)):
        first = f.spans[a[r], START]
        for j in range(first, first + f.spans[a[r], LENGTH]):
            start, length = w.spans[f.items[j], START], w.spans[f.items[j], LENGTH]
            lengths[witness] = length
            witness += 1
            for i in range(start, start + length):
                variables[at] = w.items[i]
                at += 1


@kernel
def support(work_address: int, w_address: int, f_address: int, a: Ints, starts: Ints, out: Ints) -> int:
    """The distinct variables of each function, sorted, into `out`, which has room; how many in all."""
    k, w, f = work(work_address), pool(w_address), pool(f_address)
    at = 0
    for r in range(len(a)):
        starts[r] = at
        k.scalar[K_STAMP] += 1
        stamp = k.scalar[K_STAMP]
        first, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        for j in range(first, first + n):
            x = f.items[j]
            start = w.spans[x, START]
            for i in range(start, start + w.spans[x, LENGTH]):
                v = w.items[i]
                if (k.notes[v] >> 32) != stamp:
                    k.notes[v] = stamp << 32
                    out[at] = v
                    at += 1
        if n > 1:
            sort_items(out, starts[r], at)
    starts[len(a)] = at
    return at


@kernel
def note_parts(w_address: int, f_address: int, a: Ints, out: Ints) -> None:
    """Note the families of a column and their witnesses; how many (families, members, witnesses, variables)."""
    w, f = pool(w_address), pool(f_address)
    for r in range(len(a)):
        if note(f, a[r]) >= 0:
            continue
        set_note(f, a[r], 0)
        first, n = f.spans[a[r], START], f.spans[a[r], LENGTH]
        out[0] += 1
        out[1] += n
        for j in range(first, first + n):
            x = f.items[j]
            if note(w, x) < 0:
                set_note(w, x, 0)
                out[2] += 1
                out[3] += w.spans[x, LENGTH]


@kernel
def sign(w_address: int) -> None:
    """Compute all signatures anew."""
    w = pool(w_address)
    for x in range(w.scalar[P_COUNT]):
        w.spans[x, MARK] = signature(w, w.spans[x, START], w.spans[x, LENGTH])
