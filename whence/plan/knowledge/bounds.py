"""Bounds: everything that a value can still become, as a lowest and a highest value and whether it may be NULL.

The law: bounds only shrink. `a <= b` says that `a` may evolve to `b`: all that `b` allows, `a` allows. Bounds that
allow one value are final. What two observers know together is their `join`; if that allows nothing, one of them was
told something false, which is an error and never a value. NaN is above all other numbers, as in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whence.model.errors import WhenceError


class BoundsError(WhenceError):
    """Bounds that allow nothing: a promise was broken, or bounds were derived wrongly."""


def is_less(a: Any, b: Any) -> bool:
    """Return whether a value is below another, NaN above all others."""
    if a != a:  # NaN
        return False
    return True if b != b else bool(a < b)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values from `low` to `high`, None where there is no bound; `null`: it may be NULL; not `some`: only that."""

    low: Any = None
    high: Any = None
    null: bool = True
    some: bool = True

    def __post_init__(self) -> None:
        if not self.some and not self.null:
            raise BoundsError("bounds that allow no value")
        if self.some and self.low is not None and self.high is not None and is_less(self.high, self.low):
            raise BoundsError(f"bounds that allow no value: at least {self.low} and at most {self.high}")

    @property
    def is_final(self) -> bool:
        """Whether one value is left."""
        if not self.some:
            return True
        return not self.null and self.low is not None and self.high is not None and not is_less(self.low, self.high)

    @property
    def is_open(self) -> bool:
        """Whether nothing is known."""
        return self.some and self.null and self.low is None and self.high is None

    @property
    def pair(self) -> tuple[Any, Any]:
        """The lowest and the highest value, None where there is no bound."""
        return (self.low, self.high)

    def allows(self, value: Any) -> bool:
        """Return whether it may become a value; None is NULL.

        >>> at_least(80).allows(85), at_least(80).allows(None)
        (True, False)
        """
        if value is None:
            return self.null
        below = self.low is not None and is_less(value, self.low)
        above = self.high is not None and is_less(self.high, value)
        return self.some and not below and not above

    def __le__(self, other: Bounds) -> bool:
        """Return whether these may evolve to the others.

        >>> at_least(80) <= exactly(85), exactly(85) <= at_least(80)
        (True, False)
        """
        if other.null and not self.null:
            return False
        if not other.some:
            return True
        if not self.some:
            return False
        lower = self.low is None or (other.low is not None and not is_less(other.low, self.low))
        upper = self.high is None or (other.high is not None and not is_less(self.high, other.high))
        return lower and upper

    def join(self, other: Bounds) -> Bounds:
        """Return what both allow; BoundsError if that is nothing.

        >>> at_least(4).join(at_most(6)).pair
        (4, 6)
        """
        found = self.common(other)
        if found is None:
            raise BoundsError(f"contradiction: {self.text()} and {other.text()}")
        return found

    def common(self, other: Bounds) -> Bounds | None:
        """Return what both allow, None if that is nothing."""
        low, high = _greater(self.low, other.low), _lesser(self.high, other.high)
        some = self.some and other.some and not (low is not None and high is not None and is_less(high, low))
        null = self.null and other.null
        if not some:
            return NULL_BOUNDS if null else None
        return Bounds(low, high, null)

    def hull(self, other: Bounds) -> Bounds:
        """Return bounds that allow what either allows."""
        null = self.null or other.null
        if not self.some or not other.some:
            one = self if self.some else other
            return Bounds(one.low, one.high, null, one.some)
        low = None if self.low is None or other.low is None else _lesser(self.low, other.low)
        high = None if self.high is None or other.high is None else _greater(self.high, other.high)
        return Bounds(low, high, null)

    def or_null(self) -> Bounds:
        """Return the same bounds, or NULL."""
        return self if self.null else Bounds(self.low, self.high, True, self.some)

    def not_null(self) -> Bounds | None:
        """Return the same bounds without NULL, None if that is nothing."""
        return (Bounds(self.low, self.high, False) if self.some else None) if self.null else self

    def text(self) -> str:
        """Return words for people.

        >>> exactly(80).text(), at_least(80).text(), Bounds(4, 6, null=False).text(), Bounds().text()
        ('= 80', '≥ 80', '4–6', '?')
        """
        if not self.some:
            return "–"
        if self.low is None and self.high is None:
            return "?"
        if self.high is None:
            found = f"≥ {self.low}"
        elif self.low is None:
            found = f"≤ {self.high}"
        elif not is_less(self.low, self.high):
            found = f"= {self.low}"
        else:
            found = f"{self.low}–{self.high}"
        return f"{found} or –" if self.null else found


NULL_BOUNDS = Bounds(null=True, some=False)
ANYTHING = Bounds()
TRUE = Bounds(True, True, null=False)
FALSE = Bounds(False, False, null=False)
UNDECIDED = Bounds(False, True, null=False)


def exactly(value: Any) -> Bounds:
    """Return the bounds of a value that does not change any more; None is NULL."""
    return NULL_BOUNDS if value is None else Bounds(value, value, null=False)


def at_least(value: Any) -> Bounds:
    """Return the bounds of a value that can only grow."""
    return Bounds(value, None, null=False)


def at_most(value: Any) -> Bounds:
    """Return the bounds of a value that can only fall."""
    return Bounds(None, value, null=False)


def _greater(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if is_less(a, b) else a


def _lesser(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if is_less(b, a) else a
