"""The derivations behind some rows, as one graph that every question is asked of.

Nodes are rows: of base tables, of views, and of steps in between that have no name of their own. A derivation says that
its head is there if all of its body is. A node without derivations is a **leaf**: a row of a base table, or the absence
of a row. What is there when some base rows are lost is the least fixpoint:

    a base row      if it is not lost
    an absence      always (what is not there does not appear by losing rows; where it could, `exact` is False)
    a tallied node  if its aggregates over the body that is left are what they were, or pass its test (it has one
                    derivation)
    any other node  if all of the body of one of its derivations is there; nodes in a cycle do not keep each other

So without tallies the function of a node over base rows is monotone. A base row is a distinct row of a table; losing it
is losing all its copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whence.io.rows import to_columns, to_tuples
from whence.model.codes import Codes, Dictionary, decode_value
from whence.model.types import Schema

Ints = NDArray[np.int32]
Kind = Literal["base", "absence", "view", "inner"]


@dataclass(frozen=True)
class GraphRelation:
    """What nodes are rows of. The name of an inner one says what step it is, for people. `numbered`: of a stream, whose
    rows have their tids as first column. `partial`: of an absence, only some columns of what must not be there;
    `where`: the condition that the rows that must not be there fulfil."""

    name: str
    kind: Kind
    schema: Schema
    numbered: bool = False
    partial: bool = False
    where: str = ""


@dataclass(frozen=True)
class DerivationRule:
    """How heads follow from bodies: the view it is part of, and a line such as `reachable <- link, reachable`."""

    view: str
    text: str


@dataclass(frozen=True)
class Tally:
    """The aggregates of a node over its body, which has an element (with a weight, its copies) for each row of the
    group; `values[i]` are the aggregated Python values of element i, None for NULL. `functions` are those of
    `plan.logical.Agg`, each with whether it is DISTINCT; COUNT(*) has the value 1 everywhere.

    With a `test` the aggregates need not be what they were: it says whether the node is there, of their values over the
    elements that are left and whether there are any. It holds of all elements."""

    functions: tuple[tuple[str, bool], ...]
    weights: Codes
    values: tuple[tuple[Any, ...], ...]
    test: Callable[[tuple[Any, ...], bool], bool] | None = None


@dataclass
class Derivations:
    """The graph. Derivations are sorted by head; body of derivation d is `body[start[d]:start[d + 1]]`."""

    relations: list[GraphRelation]
    relation: Ints  # of each node
    place: Ints  # of each node: which row of `cells[relation]` it is
    cells: list[Codes]  # of each relation: codes [rows, columns]
    steps: list[DerivationRule]
    head: Ints  # of each derivation, ascending
    step: Ints  # of each derivation
    start: Codes  # [derivations + 1]
    body: Ints
    roots: Ints  # the nodes that were asked for
    dictionary: Dictionary
    tallies: dict[int, Tally] = field(default_factory=dict)  # by node
    copies: dict[int, int] = field(default_factory=dict)  # of base rows that are there more than once
    exact: bool = True  # whether the meaning above is exact for every loss of base rows; else `caveat` says why not
    caveat: str = ""

    def __len__(self) -> int:
        return len(self.relation)

    @cached_property
    def first(self) -> Codes:
        """Return the first derivation of each node, and their number: those of n are `first[n]` to `first[n + 1]`."""
        found: Codes = np.searchsorted(self.head, np.arange(len(self) + 1)).astype(np.int64)
        return found

    @cached_property
    def base(self) -> Ints:
        """Return the nodes that are base rows: the variables of every function, in this order."""
        kinds = np.array([r.kind == "base" for r in self.relations], bool)
        return np.flatnonzero(kinds[self.relation]).astype(np.int32) if len(self) else np.empty(0, np.int32)

    @cached_property
    def variable(self) -> Ints:
        """Return the variable of each node, -1 for nodes that are no base rows."""
        found = np.full(len(self), -1, np.int32)
        found[self.base] = np.arange(len(self.base), dtype=np.int32)
        return found

    @property
    def monotone(self) -> bool:
        """Return whether losing rows can only ever remove nodes: there are no tallies."""
        return not self.tallies

    def renamed(self, name: Callable[[str], str]) -> Derivations:
        """Return the same graph whose relations and steps have the names that a function gives."""
        relations = [replace(each, name=name(each.name)) for each in self.relations]
        steps = [DerivationRule(name(each.view), name(each.text)) for each in self.steps]
        return replace(self, relations=relations, steps=steps)

    def kind(self, node: int) -> Kind:
        return self.relations[int(self.relation[node])].kind

    def codes(self, node: int) -> Codes:
        found: Codes = self.cells[self.relation[node]][self.place[node]]
        return found

    def values(self, node: int) -> tuple[Any, ...]:
        """Return the row of a node as Python values."""
        types = self.relations[self.relation[node]].schema.types
        return tuple(decode_value(int(c), t, self.dictionary) for c, t in zip(self.codes(node), types, strict=True))

    def row(self, node: int) -> dict[str, Any]:
        names = self.relations[self.relation[node]].schema.names
        return dict(zip(names, self.values(node), strict=True))

    def rows(self, nodes: Ints | Sequence[int]) -> list[tuple[str, dict[str, Any]]]:
        """Return the name and the row of many nodes, faster than one at a time."""
        found: list[tuple[str, dict[str, Any]]] = [("", {})] * len(nodes)
        for relation, at, codes in self._parted(nodes):
            rows: list[dict[str, Any]] = [{} for _ in at]
            columns = to_columns(codes, relation.schema, self.dictionary)
            for name, column in zip(relation.schema.names, columns, strict=True):
                for row, value in zip(rows, column, strict=True):
                    row[name] = value
            named = list(zip(repeat(relation.name), rows, strict=False))
            if len(named) == len(nodes):
                return named
            for i, one in zip(at, named, strict=True):
                found[i] = one
        return found

    def labels(self, nodes: Ints | Sequence[int]) -> list[str]:
        """Return the labels of many nodes, such as `link(A, B)`."""
        found = [""] * len(nodes)
        for relation, at, codes in self._parted(nodes):
            for i, values in zip(at, to_tuples(codes, relation.schema, self.dictionary), strict=True):
                found[i] = _label(relation, values)
        return found

    def label(self, node: int) -> str:
        return _label(self.relations[self.relation[node]], self.values(node))

    def _parted(self, nodes: Ints | Sequence[int]) -> Iterator[tuple[GraphRelation, list[int], Codes]]:
        """Yield some nodes by relation: which of them, and their codes."""
        nodes = np.asarray(nodes, np.int32)
        mine = self.relation[nodes]
        for number in np.unique(mine).tolist():
            at = np.flatnonzero(mine == number)
            yield self.relations[number], at.tolist(), self.cells[number][self.place[nodes[at]]]

    def bodies(self, derivation: int) -> Ints:
        return self.body[self.start[derivation] : self.start[derivation + 1]]

    def derivations_of(self, node: int) -> range:
        return range(int(self.first[node]), int(self.first[node + 1]))


def _label(relation: GraphRelation, values: tuple[Any, ...]) -> str:
    name = relation.name
    if relation.numbered:
        name, values = f"{name}:{values[0]}", values[1:]
    texts = ["NULL" if v is None else str(v) for v in values]
    if relation.partial:
        texts = [f"{n} = {text}" for n, text in zip(relation.schema.names, texts, strict=True)]
    shown = f"({', '.join(texts)})" if texts or not relation.partial else ""
    where = f" where {relation.where}" if relation.where else ""
    return f"{'no ' if relation.kind == 'absence' else ''}{name}{shown}{where}"
