"""Joins of every kind, with the rows behind each result row.

The side about which more is wanted is evaluated first, and the other only for the keys found there. Where a row stands
because another is missing (anti, mark, outer), the missing row is an absence; a row that is kept away now could come
when what keeps it away is lost, which is a caveat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.explain.derive.build import numbered
from whence.explain.derive.parts import (
    PAIRS,
    SIDEWAYS,
    Mask,
    Part,
    PartSource,
    Wanted,
    filtered,
    known_columns,
    pairs,
    restricted,
)
from whence.explain.derive.sources import Between
from whence.model.codes import NULL, Codes
from whence.model.errors import WhenceError
from whence.model.types import Schema
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of, conjuncts
from whence.plan.algebra.logical import Join

if TYPE_CHECKING:
    from whence.explain.derive.rewrite import PlanEvaluator


def joined(query: PlanEvaluator, node: Join, wanted: Wanted, bag: bool) -> list[Part]:
    """The parts of a join."""
    return _Joining(query, node, bag).parts(wanted)


class _Joining:
    def __init__(self, query: PlanEvaluator, node: Join, bag: bool):
        self.query, self.node, self.bag = query, node, bag
        self.width = len(node.left.schema)
        self.plain = list(node.keys)  # pairs that must be equal and not NULL
        self.same: list[tuple[int, int]] = []  # pairs that must be equal, NULL or not
        rest: list[Expr] = []
        for term in conjuncts(node.residual):
            pair = _columns(term, self.width)
            if pair is None:
                rest.append(term)
            elif isinstance(term, Call) and term.op == "=":
                self.plain.append(pair)
            else:
                self.same.append(pair)
        self.rest = rest

    @property
    def keys(self) -> list[tuple[int, int]]:
        return [*self.plain, *self.same]

    def parts(self, wanted: Wanted) -> list[Part]:

        kind, query, node = self.node.kind, self.query, self.node
        left_wanted = restricted(wanted, range(self.width))
        if kind == "inner":
            right_wanted = restricted(wanted, range(self.width, len(node.schema)))
            if known_columns(right_wanted) > known_columns(left_wanted):
                right = query.parts(node.right, right_wanted, self.bag)
                left = query.parts(node.left, (*left_wanted, *self._other(right, 1)), self.bag)
            else:
                left = query.parts(node.left, left_wanted, self.bag)
                right = query.parts(node.right, (*right_wanted, *self._other(left, 0)), self.bag)
            return filtered(
                [self._pair(a, b, i, j) for a in left for b in right for i, j in [self._match(a, b)]], wanted
            )
        if kind in ("right", "full"):
            left = query.parts(node.left, (), self.bag)
            right_wanted = restricted(wanted, range(self.width, len(node.schema))) if kind == "right" else ()
            right = query.parts(node.right, right_wanted, self.bag)
        else:
            left = query.parts(node.left, left_wanted, self.bag)
            right = query.parts(node.right, self._other(left, 0), self.bag and kind == "left")
        matches = [(a, b, *self._match(a, b)) for a in left for b in right]
        if kind in ("semi", "anti", "mark"):
            return self._half(left, matches, wanted)
        found = [self._pair(a, b, i, j) for a, b, i, j in matches]
        if kind in ("left", "full"):
            for a in left:
                hit = _hit(len(a.rows), [i for x, _, i, _ in matches if x is a])
                found += self._padded(a, hit, wanted, 0)
        if kind in ("right", "full"):
            for b in right:
                hit = _hit(len(b.rows), [j for _, x, _, j in matches if x is b])
                found += self._padded(b, hit, wanted, 1)
        return filtered(found, wanted)

    def _half(self, left: list[Part], matches: list[tuple[Part, Part, Codes, Codes]], wanted: Wanted) -> list[Part]:
        """Semi, anti and mark joins: left rows, by whether they have a match."""

        kind, found = self.node.kind, []
        for a in left:
            mine = [(b, i, j) for x, b, i, j in matches if x is a]
            hit = _hit(len(a.rows), [i for _, i, _ in mine])
            if kind != "anti":
                ways = [(a.take(i), b.take(j), i) for b, i, j in mine if len(i)]
                full = [(Part(p.rows, p.weight, p.refs + q.refs), i) for p, q, i in ways]
                if self.bag and full:
                    at = np.flatnonzero(hit)
                    source = Between(self.query, "rows with a match", self.node.left.schema, a.rows, full)
                    found.append(_marked(Part(a.rows[at], a.weight[at], [(source, at)]), kind, 1))
                else:
                    found += [_marked(p, kind, 1) for p, _ in full]
            if kind != "semi":
                at = np.flatnonzero(~hit)
                rest = a.take(at)
                rest = rest.and_also(*self._absence(rest.rows, 0))
                found.append(_marked(rest, kind, 0))
                blocked = _marked(a.take(np.flatnonzero(hit)), kind, 0)
                if len(blocked.rows) and any(len(p.rows) for p in filtered([blocked], wanted)):
                    self._doubt_blocked(0)
                if len(rest.rows) and self.query.owner.is_volatile(self.node.right):
                    name = self.query.name_of(self.node.right)
                    self.query.doubt(f"rows of {name} that must not be there may appear when others are lost")
        return filtered(found, wanted)

    def _doubt_blocked(self, side: int) -> None:
        name = self.query.name_of(self.node.left if side else self.node.right)
        self.query.doubt(f"losing rows of {name} could let more through, since they keep others away")

    def _padded(self, part: Part, hit: Mask, wanted: Wanted, side: int) -> list[Part]:
        """The rows of one side that have no match, with NULLs for the other."""

        other = len(self.node.schema) - part.rows.shape[1]
        rest = part.take(np.flatnonzero(~hit))
        rest = rest.and_also(*self._absence(rest.rows, side))

        def pad(p: Part) -> Part:
            pads = np.full((len(p.rows), other), NULL, np.int64)
            return p.with_rows(np.concatenate([pads, p.rows] if side else [p.rows, pads], axis=1))

        kept_away = pad(part.take(np.flatnonzero(hit)))
        if len(kept_away.rows) and any(len(p.rows) for p in filtered([kept_away], wanted)):
            self._doubt_blocked(side)
        right = self.node.left if side else self.node.right
        if len(rest.rows) and self.query.owner.is_volatile(right):
            self.query.doubt(f"rows of {self.query.name_of(right)} may appear when others are lost")
        return [pad(rest)]

    def _absence(self, rows: Codes, side: int) -> tuple[PartSource, Codes]:
        """That the other side has no row for these: told by the columns it is compared on."""
        node = self.node
        mine, other = (node.right, node.left) if side else (node.left, node.right)
        pairs = [(p[side], p[1 - side]) for p in self.keys]
        if pairs:
            cols = [a for a, _ in pairs]
            schema = Schema(tuple(other.schema.columns[b] for _, b in pairs))
        else:
            low, high = (self.width, len(node.schema)) if side else (0, self.width)
            cols = sorted({c - low for t in self.rest for c in columns_of(t) if low <= c < high})
            cols = [c for c in cols if c < len(mine.schema)]
            schema = Schema(tuple(mine.schema.columns[c] for c in cols))
        return self.query.absent(other, rows, cols, schema, (side, node.residual))

    # -- matching ----------------------------------------------------------------------------------------------------

    def _other(self, parts: list[Part], side: int) -> Wanted:
        """What one side wants of the other."""

        if not self.keys:
            return ()
        if not parts:
            return ((tuple(p[1 - side] for p in self.keys), np.empty((0, len(self.keys)), np.int64)),)
        if sum(len(p.rows) for p in parts) > SIDEWAYS:
            return ()
        values = np.concatenate([p.rows[:, [k[side] for k in self.keys]] for p in parts])
        return ((tuple(k[1 - side] for k in self.keys), values[numbered(values)[1]]),)

    def _match(self, a: Part, b: Part) -> tuple[Codes, Codes]:
        """The positions of rows of two parts that match."""

        if self.keys:
            left, right = a.rows[:, [x for x, _ in self.keys]], b.rows[:, [y for _, y in self.keys]]
            i, j = pairs(left, right)
            if self.plain:
                present = (left[i][:, : len(self.plain)] != NULL).all(axis=1)
                i, j = i[present], j[present]
        else:
            if len(a.rows) * len(b.rows) > PAIRS:
                raise WhenceError(
                    f"a join behind these rows has more than {PAIRS:,} pairs to look at; ask about fewer rows"
                )
            i, j = np.repeat(np.arange(len(a.rows)), len(b.rows)), np.tile(np.arange(len(b.rows)), len(a.rows))
        for term in self.rest:
            both = np.concatenate([a.rows[i], b.rows[j]], axis=1)
            keep = self.query.value(term, both) == 1
            i, j = i[keep], j[keep]
        return i, j

    def _pair(self, a: Part, b: Part, i: Codes, j: Codes) -> Part:

        p, q = a.take(i), b.take(j)
        return Part(np.concatenate([p.rows, q.rows], axis=1), p.weight * q.weight, p.refs + q.refs)


def _marked(part: Part, kind: str, mark: int) -> Part:
    if kind != "mark":
        return part
    column = np.full((len(part.rows), 1), mark, np.int64)
    return part.with_rows(np.concatenate([part.rows, column], axis=1))


def _hit(n: int, positions: list[Codes]) -> Mask:
    hit = np.zeros(n, bool)
    for i in positions:
        hit[i] = True
    return hit


def _columns(term: Expr, width: int) -> tuple[int, int] | None:
    """The columns of the two sides that a condition says are equal."""
    if isinstance(term, Call) and term.op in ("=", "is_not_distinct") and len(term.args) == 2:
        a, b = term.args
        if isinstance(a, Col) and isinstance(b, Col) and a.type == b.type:
            low, high = sorted((a.index, b.index))
            if low < width <= high:
                return low, high - width
    return None
