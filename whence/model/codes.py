"""Values as int64 codes, and the dictionary behind the interned ones.

The law every kernel relies on: within one type, two values are equal exactly when their codes are, NULL has the one
code `NULL`, and for every type that is not interned the order of codes is the order of values.

| type              | code |
|-------------------|------|
| BOOLEAN           | 0, 1 |
| INTEGER, BIGINT   | the number (the smallest int64 is NULL's, so it is refused) |
| DECIMAL(p, s)     | the number times 10**s, up to 18 digits; wide ones as `wide.py` says |
| DOUBLE            | the float's bits, flipped so that they order like the floats; -0.0 is 0.0, every NaN is one NaN |
| DATE              | days since 1970-01-01, years 1 to 9999 |
| TIMESTAMP         | microseconds since 1970-01-01 (no time zone), years 1 to 9999 |
| TEXT, INTERVAL    | position in the `Dictionary`; `Dictionary.order_of` gives codes that order like the values |
"""

from __future__ import annotations

import bisect
import datetime as dt
import math
import re
import threading
from collections.abc import Hashable, Iterable
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from whence.model import wide
from whence.model.errors import DataError, EvaluationError, WhenceError
from whence.model.types import Kind, Type

if TYPE_CHECKING:
    from whence.model.word_marks import WordMarks

NULL = -(2**63)
_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_ORDER_SPAN = 1 << 61  # labels are between minus this and this
_NO_LABELS = np.empty(0, np.int64)
_CLASS = type  # where a parameter has that name

DAY = 86_400_000_000  # microseconds
FIRST_DAY, LAST_DAY = (dt.date.min - _EPOCH_DAY).days, (dt.date.max - _EPOCH_DAY).days

Codes = NDArray[np.int64]


class Interval(NamedTuple):
    """A SQL interval: calendar months and days, and a clock time in microseconds.

    months, days, micros  its three parts, which are added one after the other

    >>> db = whence.open()
    >>> ((span,),) = db.query("SELECT INTERVAL '1 month 2 hours' AS span").rows; span
    Interval(months=1, days=0, micros=7200000000)
    >>> span.span == whence.Interval(0, 30, 7_200_000_000).span
    True
    """

    months: int
    days: int
    micros: int

    @property
    def span(self) -> int:
        """Microseconds, with 30 days per month: the value that intervals are compared by."""
        return ((self.months * 30) + self.days) * DAY + self.micros

    @property
    def fits(self) -> bool:
        """Whether Arrow can hold it: months and days in 32 bits, the clock time in 64 bits of nanoseconds."""
        return all(-(2**31) <= n < 2**31 for n in self[:2]) and abs(self.micros) < 2**63 // 1000


def floats_to_codes(values: NDArray[np.float64]) -> Codes:
    """Encode floats as order-preserving codes; the caller handles NULL.

    >>> floats_to_codes(np.array([-1.5, 0.0, 2.0])).argsort().tolist()
    [0, 1, 2]
    """
    clean = np.asarray(values, np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    if np.isnan(clean).any():
        clean = np.where(np.isnan(clean), np.nan, clean)
    bits = clean.view(np.int64)
    return bits ^ ((bits >> 63) & _FLIP)


def codes_to_floats(codes: Codes) -> NDArray[np.float64]:
    """Decode floats from their codes; NULL becomes NaN."""
    codes = np.ascontiguousarray(codes, np.int64)
    return (codes ^ ((codes >> 63) & _FLIP)).view(np.float64)


class Forgotten:
    """Stands in a dictionary where a value was that has been forgotten."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "FORGOTTEN"


FORGOTTEN = Forgotten()


class Constant:
    """A code that a compiled expression or plan uses; while this object lives, the code's value is not forgotten."""

    __slots__ = ("__weakref__", "code")

    def __init__(self, code: int) -> None:
        self.code = code


class Dictionary:
    """The interned values: each distinct hashable has one small code, which no other value ever gets. Thread-safe.

    Values that nothing refers to can be forgotten (`forget`); their codes are not used again, so a code that was
    overlooked finds nothing instead of another value. One that comes again gets a new code.

    >>> d = Dictionary(); d.intern("b"), d.intern("a"), d.intern("b")
    (0, 1, 0)
    >>> order = d.order_of(np.array([0, 1, NULL])); bool(order[1] < order[0])
    True
    """

    def __init__(self) -> None:
        self._code: dict[Hashable, int] = {}
        self._value: list[Any] = []
        self._constants: WeakSet[Constant] = WeakSet()
        self.holes = 0  # codes whose values were forgotten
        self.kept = 0  # values that were there when some that are not in use were last looked for
        self._adding = threading.Lock()  # held while a code or a label is assigned; a lookup needs no lock
        # Sparse order labels, kept only once something asks for order: sorted (key, code) and label by code.
        self._sorted: list[tuple[Any, int]] = []
        self._label: NDArray[np.int64] = _NO_LABELS
        self._labelled = 0
        self.order_version = 0  # rises when labels in use have changed
        self.forgotten = 0  # rises when codes are withdrawn or values forgotten

    def __len__(self) -> int:
        """Return how many codes were given: all codes are below."""
        return len(self._value)

    @property
    def words(self) -> int:
        """How many values there are."""
        return len(self._value) - self.holes

    def intern(self, value: Hashable) -> int:
        code = self._code.get(value)
        return self._add(value) if code is None else code

    def _add(self, value: Hashable) -> int:
        with self._adding:
            return self._assign_code(value)

    def _assign_code(self, value: Hashable) -> int:
        """Assign a code to a value that had none a moment ago, unless another thread was quicker; return it."""
        code = self._code.get(value)
        if code is None:
            if isinstance(value, str) and not value.isascii():
                _check_text(value)
            code = len(self._value)
            self._value.append(value)  # first, since a reader of the code looks here
            self._code[value] = code
        return code

    def intern_all(self, values: Iterable[Any]) -> Codes:
        """Encode many values; None becomes NULL."""
        values = values if isinstance(values, (list, tuple)) else list(values)
        get = self._code.get
        try:
            return np.fromiter(map(get, values), np.int64, len(values))
        except TypeError:  # there is a None among the codes: a value that is new, or None itself
            with self._adding:
                code = self._assign_code
                return np.array([NULL if value is None else code(value) for value in values], np.int64)

    def since(self, first: int) -> list[Any]:
        """Return the values with codes from `first` on."""
        return self._value[first:]

    def extend(self, first: int, values: list[Any]) -> bool:
        """Give `values` the codes from `first` on, as another dictionary did; False if codes are taken otherwise.

        >>> d = Dictionary(); d.extend(0, ["a", "b"]), d.extend(1, ["b", "c"]), d.extend(0, ["c"]), d.intern("c")
        (True, True, False, 2)
        """
        with self._adding:
            known = self._value[first : first + len(values)]
            if first > len(self._value) or known != values[: len(known)]:
                return False
            new = values[len(known) :]
            if self.holes and any(self._code.get(value) is not None for value in new):
                return False
            for code, value in enumerate(new, first + len(known)):
                self._value.append(value)
                if value is FORGOTTEN:
                    self.holes += 1
                else:
                    self._code[value] = code
            return True

    def unused(self, marks: WordMarks) -> Codes:
        """Return the codes of the values that are not marked and that no constant keeps."""
        with self._adding:
            marks.anything(np.array([constant.code for constant in self._constants], np.int64))
            codes = np.fromiter(self._code.values(), np.int64, len(self._code))
        return np.sort(codes[~marks.used[codes]])

    def constant(self, code: int) -> Constant:
        """Return an object that keeps the value of a code from being forgotten for as long as it lives."""
        constant = Constant(code)
        with self._adding:
            self._constants.add(constant)
        return constant

    def frozen(self) -> Dictionary:
        """Return a dictionary that decodes what this one does now, whatever this one forgets; nothing may be added.

        >>> d = Dictionary(); _ = d.intern_all(["a", "b"]); before = d.frozen(); d.forget(np.array([0]))
        >>> before.value(0), d.words, d.find("a")
        ('a', 1, None)
        """
        return _Frozen(self)

    def forget(self, codes: Codes) -> None:
        """Forget the values of some codes, which nothing refers to.

        >>> d = Dictionary(); _ = d.intern_all(["a", "b"]); d.forget(np.array([0])); d.intern("a"), d.words, len(d)
        (2, 2, 3)
        """
        with self._adding:
            live = np.zeros(len(self._value), bool)
            live[np.fromiter(self._code.values(), np.int64, len(self._code))] = True
            live[codes] = False
            values = self._value.copy()  # frozen dictionaries have the list and the dict there were
            for code in codes.tolist():
                values[code] = FORGOTTEN
            kept = np.flatnonzero(live)
            self._code = dict(zip(compress(values, live), kept.tolist(), strict=True))
            self._value, self.holes = values, len(values) - len(kept)
            self._sorted = [item for item in self._sorted if live[item[1]]]
            self.kept = self.words
            self.forgotten += 1

    def withdraw(self, first: int) -> None:
        """Withdraw the codes from `first` on, which no row has any more and no reader has seen.

        >>> d = Dictionary(); d.intern("a"), d.intern("b"), d.withdraw(1), d.find("b"), d.intern("c")
        (0, 1, None, None, 1)
        """
        with self._adding:
            if first >= len(self._value):
                return
            self.forgotten += 1
            for value in self._value[first:]:
                self._code.pop(value, None)
            del self._value[first:]
            if self._labelled > first:
                self._sorted = [item for item in self._sorted if item[1] < first]
                self._labelled = first

    def find(self, value: Hashable) -> int | None:
        return self._code.get(value)

    def translated(self, code: int, type: Type, target: Dictionary) -> int | None:
        """Return the code that the value of a code has in another dictionary, None if that does not know it."""
        if type.is_wide:
            return wide.translated(code, self, target)
        return target.find(self.value(code)) if type.is_interned and code != NULL else code

    def value(self, code: int) -> Any:
        value = self._value[code]
        if value is FORGOTTEN:
            raise _lost()
        return value

    def values(self, codes: Codes) -> list[Any]:
        """Decode values; NULL becomes None."""
        value = self._value
        found = [None if c == NULL else value[c] for c in codes.tolist()]
        if self.holes and FORGOTTEN in found:
            raise _lost()
        return found

    def order_of(self, codes: Codes) -> Codes:
        """Return labels that order like the values (NULL stays NULL), valid until `order_version` changes."""
        if self._labelled < len(self._value):
            with self._adding:
                self._label_new()
        out = np.full(len(codes), NULL, np.int64)
        known = codes != NULL
        out[known] = self._label[codes[known]]
        return out

    def ranks(self, codes: Codes, type: Type) -> Codes:
        """Return numbers that order like the values of any type (NULL stays NULL), valid until `order_version`
        changes."""
        if type.is_wide:
            return wide.ranks(codes, self)
        return self.order_of(codes) if type.is_interned else codes

    def labels(self) -> Codes:
        """Return the labels of all codes so far, as `order_of` gives them; their order never changes."""
        if self._labelled < len(self._value):
            with self._adding:
                self._label_new()
        return self._label

    def _label_new(self) -> None:
        first, total = self._labelled, len(self._value)
        if total > len(self._label):
            grown = np.empty(max(64, 2 * total), np.int64)
            grown[:first] = self._label[:first]
            self._label = grown
        fresh = [(_order_key(v), c) for c, v in enumerate(self._value[first:], first) if v is not FORGOTTEN]
        if len(fresh) * 8 > first:
            self._sorted = sorted(self._sorted + fresh)
            self._relabel()
        else:
            for item in fresh:
                at = bisect.bisect(self._sorted, item)
                low = self._label[self._sorted[at - 1][1]] if at else -_ORDER_SPAN
                high = self._label[self._sorted[at][1]] if at < len(self._sorted) else _ORDER_SPAN
                self._sorted.insert(at, item)
                middle = (int(low) + int(high)) // 2
                if middle <= low:
                    self._sorted = sorted(set(self._sorted) | set(fresh))
                    self._relabel()
                    break
                self._label[item[1]] = middle
        self._labelled = total

    def _relabel(self) -> None:
        step = 2 * _ORDER_SPAN // (len(self._sorted) + 1)
        label = self._label.copy()  # readers of the old ones still have them in order
        for position, (_, code) in enumerate(self._sorted, 1):
            label[code] = -_ORDER_SPAN + position * step
        self._label = label
        if self._labelled:
            self.order_version += 1


class _Frozen(Dictionary):
    """What a dictionary had when this was made, to decode codes of that time."""

    def __init__(self, other: Dictionary) -> None:  # not that of a dictionary: every look-up makes one of these
        self._adding, self._constants = other._adding, other._constants
        with other._adding:
            self._value, self._code, self.holes = other._value, other._code, other.holes
        self._sorted, self._label, self._labelled = [], _NO_LABELS, 0
        self.order_version = self.forgotten = self.kept = 0

    def _assign_code(self, value: Hashable) -> int:
        code = self._code.get(value)
        if code is None:
            raise TypeError(f"{format_value(value)} cannot be added to a dictionary that only decodes")
        return code


def _lost() -> WhenceError:
    return WhenceError("a value was forgotten that is still in use: this is a fault of Whence, please report it")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{value!r:.80} is not text: half of a surrogate pair stands alone in it") from None


def _order_key(value: Any) -> Any:
    return (1, value.span, "") if isinstance(value, Interval) else (0, 0, value)


def encode_value(value: Any, type: Type, dictionary: Dictionary) -> int:
    """Encode a Python value as a value of `type`; raise DataError if it does not fit.

    >>> encode_value(3, Type(Kind.INTEGER), Dictionary())
    3
    """
    if value is None:
        return NULL
    try:
        return int(_ENCODERS[type.kind](value, type, dictionary))
    except DataError:
        raise
    except Exception:  # a value may be of any class, and whatever its methods raise, it is no value of the type
        raise DataError(f"{format_value(value)} ({_CLASS(value).__name__:.80}) is not a value of type {type}") from None


def encode_constant(value: Any, type: Type, dictionary: Dictionary) -> Constant:
    """Encode a value that a compiled expression or plan uses for as long as it has the constant that is returned."""
    code = encode_value(value, type, dictionary)
    return dictionary.constant(code) if type.needs_dictionary else Constant(code)


def format_value(value: Any) -> str:
    """A value for a message: never long, and never an error of its own.

    >>> format_value("x" * 1000) == "'" + "x" * 79
    True
    """
    try:
        return f"{value!r:.80}"
    except Exception:
        return "a value"


def decode_value(code: int, type: Type, dictionary: Dictionary) -> Any:
    """Decode a code to its Python value."""
    if code == NULL:
        return None
    match type.kind:
        case Kind.BOOLEAN:
            return bool(code)
        case Kind.DOUBLE:
            return float(codes_to_floats(np.array([code], np.int64))[0])
        case Kind.DECIMAL:
            return wide.to_decimal(wide.number_of(int(code), dictionary) if type.is_wide else int(code), type.scale)
        case Kind.TEXT | Kind.INTERVAL:
            return dictionary.value(code)
        case Kind.DATE:
            return decode_date(int(code))
        case Kind.TIMESTAMP:
            return decode_timestamp(int(code))
    return int(code)


def decode_date(days: int) -> dt.date:
    """Decode a date.

    >>> decode_date(0)
    datetime.date(1970, 1, 1)
    """
    try:
        return _EPOCH_DAY + dt.timedelta(days=days)
    except OverflowError:
        raise EvaluationError(f"a date outside the years 1 to 9999 ({days} days after 1970-01-01)") from None


def decode_timestamp(micros: int) -> dt.datetime:
    """Decode a timestamp."""
    try:
        return _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise EvaluationError(
            f"a timestamp outside the years 1 to 9999 ({micros} microseconds after 1970-01-01)"
        ) from None


_NOT_NUMBERS = (bool, np.bool_, str, bytes, bytearray, memoryview, np.ndarray)  # though Python makes numbers of them


def _integer(value: Any, type: Type, _: Dictionary) -> int:
    if isinstance(value, _NOT_NUMBERS):
        raise ValueError
    if not isinstance(value, (int, np.integer)) and not (float(value).is_integer() and value == int(value)):
        raise ValueError
    number = int(value)
    bound = 2**31 if type.kind is Kind.INTEGER else 2**63
    if not -bound <= number < bound or number == NULL:
        raise OverflowError
    return number


def _boolean(value: Any, *_: Any) -> int:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError
    return int(value)


def _double(value: Any, *_: Any) -> int:
    if isinstance(value, _NOT_NUMBERS):
        raise ValueError
    return int(floats_to_codes(np.array([float(value)]))[0])


def _decimal(value: Any, type: Type, dictionary: Dictionary) -> int:
    if not isinstance(value, str) and isinstance(value, (*_NOT_NUMBERS, tuple, list)):
        raise ValueError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    exact = (
        Decimal(str(value))
        if isinstance(value, (float, str))
        else Decimal(int(value) if isinstance(value, np.integer) else value)
    )
    number = wide.scaled(exact, type)
    return wide.code_of(number, dictionary) if type.is_wide else number


def _text(value: Any, _: Type, dictionary: Dictionary) -> int:
    if not isinstance(value, str):
        raise ValueError
    return dictionary.intern(value if type(value) is str else str.__str__(value))  # a subclass may hash as it likes


def _date(value: Any, *_: Any) -> int:
    if isinstance(value, str):
        value = dt.date.fromisoformat(value)
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo is None else value.astimezone(dt.UTC)).date()
    return int((value - _EPOCH_DAY).days)


_ZONE = re.compile(r"\s*\b(UTC|GMT)$|\s+(?=[+-]\d\d:?(?:\d\d)?$)")  # as others write it: "… UTC", "… +02:00"


def _timestamp(value: Any, *_: Any) -> int:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(_ZONE.sub(lambda zone: "Z" if zone[1] else "", value))
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return int((value - _EPOCH) // dt.timedelta(microseconds=1))


def _interval(value: Any, _: Type, dictionary: Dictionary) -> int:
    if isinstance(value, dt.timedelta):
        value = Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds)
    if not isinstance(value, Interval) or any(type(part) is not int for part in value):
        raise ValueError
    if not value.fits:
        raise OverflowError
    return dictionary.intern(value)


_ENCODERS: dict[Kind, Any] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.BIGINT: _integer,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.INTERVAL: _interval,
}
