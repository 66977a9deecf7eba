"""Where the rows of a relation live among the partitions of a database.

Law: `hash` promises that a row lives in the partition that its codes in some columns route to, once; so rows that are
equal there are together. `one` is the same promise over no columns at all. `all` promises every row in every
partition. `spread` promises that each row lives somewhere, once.

`Distribution` is what others are told. `DistributionProperty` is what the planner knows: for every routing column all
the columns that hold the same code, as a join's keys do, so that no rows are moved to where they already are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from whence.model.types import Kind, Schema, Type

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Distribution:
    """How rows are distributed; `cols` are the columns that `hash` routes by, in order."""

    kind: Literal["hash", "all", "one", "spread"]
    cols: tuple[int, ...] = ()


def describe_distribution(dist: Distribution, schema: Schema) -> str:
    """Describe a distribution in words.

    >>> from whence.model.types import TEXT, Column
    >>> describe_distribution(Distribution("hash", (1,)), Schema((Column("src", TEXT), Column("dst", TEXT))))
    'by dst'
    """
    match dist.kind:
        case "hash":
            return "by " + ", ".join(schema.names[c] for c in dist.cols)
        case "all":
            return "in every partition"
        case "one":
            return "in the first partition"
    return "anywhere"


@dataclass(frozen=True)
class DistributionProperty:
    """A distribution with what is known to be equal; hash over no columns is `one`."""

    kind: Literal["hash", "all", "spread"]
    cols: tuple[frozenset[int], ...] = ()

    @property
    def dist(self) -> Distribution:
        if self.kind != "hash":
            return Distribution(self.kind)
        return Distribution("hash", tuple(map(min, self.cols))) if self.cols else Distribution("one")

    def mapped(self, new: Callable[[int], Iterable[int]]) -> DistributionProperty:
        """Follow columns that have moved: `new` gives where a column went, nowhere if it is lost."""
        cols = tuple(frozenset(n for c in same for n in new(c)) for same in self.cols)
        return DistributionProperty(self.kind, cols) if all(cols) else SPREAD

    def is_by(self, cols: Sequence[int]) -> bool:
        """Return whether rows live where these columns route to."""
        return (
            self.kind == "hash"
            and len(self.cols) == len(cols)
            and all(c in same for c, same in zip(cols, self.cols, strict=True))
        )


ALL, SPREAD = DistributionProperty("all"), DistributionProperty("spread")


def by(cols: Iterable[int]) -> DistributionProperty:
    """Return the place of rows that live where these columns route to."""
    return DistributionProperty("hash", tuple(frozenset((c,)) for c in cols))


ONE = by(())


def to_property(dist: Distribution) -> DistributionProperty:
    """Return what a distribution says of where rows are."""
    match dist.kind:
        case "all":
            return ALL
        case "spread":
            return SPREAD
    return by(dist.cols)


def same_codes(a: Type, b: Type) -> bool:
    """Return whether values of these types are equal exactly when their codes are: a month and thirty days are equal
    intervals, and 1 of one scale is not the code of 1 of another."""
    if Kind.INTERVAL in (a.kind, b.kind):
        return False
    return (a.is_integer and b.is_integer) or (a.kind is b.kind and a.scale == b.scale)


def are_together(left: DistributionProperty, right: DistributionProperty, pairs: Pairs) -> bool:
    """Return whether rows of two relations that agree in the pairs of columns are in the same partition."""
    if not left.kind == right.kind == "hash" or len(left.cols) != len(right.cols):
        return False
    both = zip(left.cols, right.cols, strict=True)
    return all(any(a in ours and b in theirs for a, b in pairs) for ours, theirs in both)


def match_columns(place: DistributionProperty, pairs: Pairs) -> tuple[int, ...] | None:
    """Find the columns by which the other side must be routed to meet rows of this place; None if there are none."""
    if place.kind != "hash":
        return None
    found = [next((b for a, b in pairs if a in same), None) for same in place.cols]
    cols = tuple(c for c in found if c is not None)
    return cols if len(cols) == len(found) else None


def equate_columns(place: DistributionProperty, pairs: Pairs) -> DistributionProperty:
    """Add to a place that the columns of each pair hold the same code."""
    cols = list(place.cols)
    for a, b in pairs:
        cols = [same | {a, b} if a in same or b in same else same for same in cols]
    return DistributionProperty(place.kind, tuple(cols))


def common_place(places: Sequence[DistributionProperty]) -> DistributionProperty:
    """Return the place of all rows of several relations with the same columns."""
    place = places[0]
    for other in places[1:]:
        alike = place.kind == other.kind and len(place.cols) == len(other.cols)
        cols = tuple(a & b for a, b in zip(place.cols, other.cols, strict=True)) if alike else ()
        place = DistributionProperty(place.kind, cols) if alike and all(cols) else SPREAD
    return place
