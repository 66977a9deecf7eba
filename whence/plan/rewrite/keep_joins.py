"""Keep the join of some inputs of an n-way join as a relation of its own.

An n-way join keeps no intermediate result. A `KeptJoin` says of which inputs there is to be one: their join is made
apart, under a `Keep`, and the other inputs are joined with that. The rows are the same. Inputs are put in an order of
their own, so that views which keep the same join share one operator. Tests that may fail wait for all inputs, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.constructors import join, select
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of, may_fail, substitute
from whence.plan.algebra.logical import Keep, Node, Project
from whence.plan.algebra.multiway_join import MultiwayJoin, merge_joins


@dataclass(frozen=True, order=True)
class KeptJoin:
    """Inputs of a view's join, by its place among the joins of the plan from above, whose join is kept; and which of
    their columns are, by input."""

    view: str
    join: int
    inputs: tuple[int, ...]
    columns: tuple[tuple[int, int], ...]


def to_json(keeps: Iterable[KeptJoin]) -> list[list[object]]:
    """Return joins that are kept as JSON has them, in order."""
    return [[keep.view, keep.join, list(keep.inputs), [list(pair) for pair in keep.columns]] for keep in sorted(keeps)]


def from_json(keeps: Iterable[Any]) -> frozenset[KeptJoin]:
    """Return joins that are kept from what `to_json` made of them.

    >>> keep = KeptJoin("v", 0, (0, 2), ((0, 1), (2, 0)))
    >>> from_json(to_json([keep])) == {keep}
    True
    """
    return frozenset(
        KeptJoin(view, join, tuple(inputs), tuple((a, b) for a, b in columns)) for view, join, inputs, columns in keeps
    )


def top_joins(node: Node) -> list[MultiwayJoin]:
    """Return the n-way joins of a plan that are not below one another, in order."""
    found: list[MultiwayJoin] = []

    def note(flat: MultiwayJoin) -> None:
        found.append(flat)

    _over_joins(node, note)
    return found


def keep_joins(node: Node, keeps: Collection[KeptJoin]) -> Node:
    """Return a view's plan with these joins kept."""
    wanted = {keep.join: keep for keep in keeps}
    place = iter(range(1 << 30))

    def made(flat: MultiwayJoin) -> Node | None:
        keep = wanted.get(next(place))
        return None if keep is None else _kept(flat, keep)

    return _over_joins(node, made) if wanted else node


def _over_joins(node: Node, made: Callable[[MultiwayJoin], Node | None]) -> Node:
    flat = merge_joins(node)
    if isinstance(flat, MultiwayJoin):
        return made(flat) or node
    inputs = [_over_joins(child, made) for child in node.inputs]
    return (
        node.with_inputs(inputs)
        if inputs and any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
        else node
    )


def can_keep(flat: MultiwayJoin) -> bool:
    """Return whether equal columns of a join have equal types, so that it can be taken apart."""
    types = [type for source in flat.sources for type in source.schema.types]
    return all(len({types[c] for c in members}) == 1 for members in flat.classes)


def read_outside(flat: MultiwayJoin, inputs: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return the columns of some inputs, by input, that the output, tests and other inputs read."""
    starts, owner = _columns(flat)
    read = set(flat.out)
    for members in flat.classes:
        if any(owner[c] not in inputs for c in members):
            read.update(members)
    for test in flat.tests:
        if may_fail(test) or any(owner[c] not in inputs for c in columns_of(test)):
            read |= columns_of(test)
    return tuple((owner[c], c - starts[owner[c]]) for c in sorted(read) if owner[c] in inputs)


def in_order(flat: MultiwayJoin, inputs: Iterable[int]) -> tuple[int, ...]:
    """Return inputs in an order that does not depend on that of the view's text."""

    def name(input: int) -> tuple[object, ...]:
        source = flat.sources[input]
        return source.describe(), len(source.schema), input

    return tuple(sorted(inputs, key=name))


def _columns(flat: MultiwayJoin) -> tuple[list[int], list[int]]:
    starts = [*accumulate((len(s.schema) for s in flat.sources), initial=0)]
    return starts, [i for i, s in enumerate(flat.sources) for _ in s.schema.columns]


def _kept(flat: MultiwayJoin, keep: KeptJoin) -> Node | None:
    if not can_keep(flat) or not {i for i, _ in keep.columns} <= {*keep.inputs} < {*range(len(flat.sources))}:
        return None
    starts, _ = _columns(flat)
    waiting = list(flat.tests)
    inside = _Assembly(flat, waiting)
    for input in in_order(flat, keep.inputs):
        inside.add(flat.sources[input], range(starts[input], starts[input + 1]), last=False)
    shown = [starts[input] + column for input, column in keep.columns]
    outside = _Assembly(flat, waiting)
    outside.add(Keep((picked := inside.picked(shown)).schema, picked), shown, last=False)
    rest = [i for i in range(len(flat.sources)) if i not in keep.inputs]
    while rest:
        input = next((i for i in rest if outside.is_tied(range(starts[i], starts[i + 1]))), rest[0])
        rest.remove(input)
        outside.add(flat.sources[input], range(starts[input], starts[input + 1]), last=not rest)
    return outside.picked(flat.out, flat.schema)


class _Assembly:
    """Sources joined so far, and where they have the columns of an n-way join."""

    def __init__(self, flat: MultiwayJoin, waiting: list[Expr]) -> None:
        self._flat, self._waiting = flat, waiting
        self._node: Node | None = None
        self._place: dict[int, int] = {}

    def is_tied(self, columns: range) -> bool:
        """Return whether one of these columns equals one that is there."""
        return any(self._place.keys() & {*members} and {*columns} & {*members} for members in self._flat.classes)

    def add(self, source: Node, columns: Iterable[int], last: bool) -> None:
        """Join one more source, which has these columns, on all that is decided by then; tests that may fail only with
        the last one."""
        columns = list(columns)
        known = dict(self._place)
        base = 0 if self._node is None else len(self._node.schema)
        self._place = known | {column: base + at for at, column in enumerate(columns)}
        terms: list[Expr] = []
        for members in self._flat.classes:
            old, new = ([c for c in members if c in part] for part in (known, columns))
            if old and new:
                terms.append(Call(BOOLEAN, "=", (self._column(old[0]), self._column(new[0]))))
        ready = [t for t in self._waiting if columns_of(t) <= self._place.keys() and (last or not may_fail(t))]
        for test in ready:
            self._waiting.remove(test)
        terms += [substitute(test, lambda c: Col(c.type, self._place[c.index])) for test in ready]
        self._node = select(source, terms) if self._node is None else join(self._node, source, "inner", terms)

    def _column(self, column: int) -> Col:
        types = [type for source in self._flat.sources for type in source.schema.types]
        return Col(types[column], self._place[column])

    def picked(self, columns: Iterable[int], schema: Schema | None = None) -> Node:
        """Return what has been joined, with these columns."""
        assert self._node is not None
        columns = [self._place[c] for c in columns]
        given = self._node.schema
        schema = schema or Schema(tuple(given.columns[c] for c in columns))
        return Project(schema, self._node, tuple(Col(given.types[c], c) for c in columns))
