"""Recursive components as rules: what the fixpoint engine runs.

    head(terms) <- atom, atom, …, operations

A term is a variable number; variables are rule-local. An atom over an `absence` relation holds when no row matches.
Operations test or compute variables natively (see `Op`). What only Python can compute (text functions, user functions,
table functions) is a `Foreign` pipeline, and its rule derives a relation of its own: the bound arguments followed by
what was computed from them, so that a deletion never has to run it backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from whence.model.types import Schema, Type
from whence.plan.algebra.logical import Node

RelationKind = Literal["external", "absence", "set", "best", "sent"]


@dataclass(frozen=True)
class Op:
    """`to := a op b` for a computation, or the test `a op b`; operands are variables.

    Tests are = <> < <= > >= (never true of NULL), same, not_null, is_null, must_be (NULL is an error), fits (a
    number as large as b is an error) and here (rows that a routes live in this partition; with a below 0, all rows in
    the first); computations are + - *, the same of DOUBLE (+f -f *f), least and greatest (which skip NULL), and
    to_float.
    """

    name: str
    a: int
    b: int = 0
    to: int = -1

    @property
    def is_test(self) -> bool:
        return self.to < 0

    @property
    def reads(self) -> tuple[int, ...]:
        if self.name == "here":
            return (self.a,) if self.a >= 0 else ()
        return (self.a,) if self.name in ("not_null", "is_null", "must_be") else (self.a, self.b)


@dataclass(frozen=True)
class Atom:
    """A body atom: for each column of the relation a variable, or None where the column does not matter."""

    relation: int
    terms: tuple[int | None, ...]


@dataclass(frozen=True)
class Foreign:
    """A chain of stateless nodes over `Scan('$binding')` whose first column numbers the bindings.

    Its rows are the binding's number, the rule's terms, then what was computed."""

    pipeline: Node


@dataclass(frozen=True)
class Rule:
    """`terms` are the head's columns; of a foreign rule, the head's first columns (the rest are computed)."""

    head: int
    terms: tuple[int, ...]
    atoms: tuple[Atom, ...]
    ops: tuple[Op, ...]
    constants: tuple[tuple[int, Any, Type], ...]
    variables: int
    foreign: Foreign | None = None


@dataclass(frozen=True)
class RuleRelation:
    """A relation of the component: `sign` is +1 for MIN and -1 for MAX, whose value is the last column.

    One that is `sent` has the rows that other partitions derive, and which partition does (`plan/partitions/
    exchange.py`). `view` names the user's view that a row of it is reported under."""

    name: str
    schema: Schema
    kind: RelationKind
    sign: int = 0
    source: Node | None = None
    view: str = ""

    @property
    def keys(self) -> int:
        return len(self.schema) - (self.kind == "best" or (self.kind == "sent" and self.sign != 0))


@dataclass
class RuleProgram:
    """The rules of one component; `outputs` maps a name other plans may refer to (a view, or `view$min0`) to a
    relation,
    and `after` gives the views that are plain queries over those outputs, in order."""

    relations: list[RuleRelation] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)
    after: list[tuple[str, Node]] = field(default_factory=list)
