"""Aggregate selection: a recursive view that is only ever read through MIN or MAX keeps only the rows those can see.

The paper's `path` has infinitely many rows on a cyclic network, but `minHops` and `shortestPath` read only the paths of
least length. This module decides which views can be cut down, and to what; `plan/rewrite/best_rows.py` plans them.

For keys G and value v of an aggregate there are two selections.

*All best rows.* Proof obligations, in every rule of the view: G of the head depends on nothing of a recursive row but
its G; v moves strictly with the recursive row's v (or there is nothing beside G and v); conditions read nothing else of
it and let better values pass. Then a row that is best is derived from rows that are best, so nothing that is kept is
lost. Every reader must be such an aggregate, or join the view with one on G and v.

*One best row per group.* Where v need not move strictly (LEAST and GREATEST, sums of DOUBLE that round), ties may
derive ties for ever around a cycle. v must move with the recursive row's v, and be strict in every rule, or in every
rule no better than the recursive row's v: then every group has a best row that is derived from best rows of fewer
steps. Readers that are aggregates of G and v alone cannot tell the kept row from its ties, so for them this is done
unasked; for others only if `aggregate_selection = 'one'` is said.

A reader may also take in which groups there are, since each keeps a row: COUNT, SUM and AVG of DISTINCT group keys.

`'off'` keeps the view whole; `'on'` and `'one'` take sums of DOUBLE for strict. While nothing reads the view, it keeps
what the option spells out: `'min(cost) by src, dst'`, or `'one max(bw) by src, dst'`, several separated by semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from whence.model.errors import SqlError
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, columns_of, rebuild
from whence.plan.algebra.logical import Aggregate, Node, Project, Ref, Select, walk
from whence.plan.algebra.program import Program, View
from whence.plan.recursion.conjunctive import Body, Derived, External, Flattener
from whence.plan.recursion.native import (
    direction,
    is_present,
    is_test,
    is_value,
    lets_better_pass,
    never_better,
    strict,
)
from whence.plan.recursion.unify import unify

OPTION = "aggregate_selection"
_SELECTION = re.compile(r"(one )?(min|max)\((#?\w+)\) by (#?\w+(?:, ?#?\w+)*)", re.IGNORECASE)


@dataclass(frozen=True)
class Selection:
    """Keep the rows whose `value` is the MIN (sign 1) or MAX (-1) among those with the same `keys`, or one of them."""

    keys: tuple[int, ...]
    value: int
    sign: int
    one: bool = False

    @property
    def function(self) -> str:
        return "min" if self.sign > 0 else "max"

    def text(self, schema: Schema) -> str:
        """Return the selection as the option spells it."""
        names = [n if re.fullmatch(r"\w+", n) else f"#{i}" for i, n in enumerate(schema.names)]
        keys = ", ".join(names[k] for k in self.keys)
        return f"{'one ' if self.one else ''}{self.function}({names[self.value]}) by {keys}"


def is_spelled_out(option: str) -> bool:
    """Return whether the value of the option names selections.

    >>> is_spelled_out("min(cost) by src, dst; one max(bw) by src"), is_spelled_out("on")
    (True, False)
    """
    return all(_SELECTION.fullmatch(part.strip()) for part in option.split(";"))


def selections(view: View, program: Program) -> list[Selection]:
    """Return the aggregates a recursive view is cut down to; none if it must be kept whole."""
    option = view.option(OPTION)
    if option == "off" or not _mentions(view.query, view.name):
        return []
    if any(isinstance(n, Aggregate) and _mentions(n, view.name) for n in walk(view.query)):
        return []
    readers = [v for v in program.views.values() if v.name != view.name and _mentions(v.query, view.name)]
    if not readers:
        return _spelled_out(view, option) if option is not None and is_spelled_out(option) else []
    found = list(dict.fromkeys(s for v in readers for n in walk(v.query) for s in _selecting(n, view.name)))
    reading = _Reader(view, program, found)
    if not found or not all(reading.allows(v.query) for v in readers):
        return []
    bodies = bodies_of(view)
    chosen = [_provable(view, s, bodies, may_drop_ties=not reading.sees_ties) for s in found]
    return [s for s in chosen if s is not None] if None not in chosen else []


def is_read(view: View, program: Program) -> bool:
    """Return whether another view refers to a view."""
    return any(v.name != view.name and _mentions(v.query, view.name) for v in program.views.values())


def bodies_of(view: View) -> list[Body]:
    """Return the rules of a view that recurses through itself alone; none if it cannot be written so."""
    try:
        return Flattener({view.name: view.query}, {view.name: view.schema}).flatten(view.query)
    except SqlError:
        return []


def _provable(view: View, selection: Selection, bodies: list[Body], may_drop_ties: bool) -> Selection | None:
    """Return the selection as it can be made without a reader seeing it, or as the option asks for it."""
    option, asked_one = view.option(OPTION), view.option(OPTION) == "one"
    rounding = option in ("on", "one")
    if not bodies:
        return None
    if view.option("maintain") is not None:
        if asked_one:
            raise SqlError(
                f"{view.name}: maintain keeps the provenance of every best row, and {OPTION} = 'one' only one of them; "
                "leave one of the two options out"
            )
        may_drop_ties = False
    if not asked_one and all(_preserves(body, view, selection, rounding) for body in bodies):
        return selection
    if (asked_one or may_drop_ties) and _has_best_row(bodies, selection, rounding):
        return replace(selection, one=True)
    return None


def _spelled_out(view: View, option: str) -> list[Selection]:
    """Return the selections that the option names; SqlError if one cannot be made."""
    found, bodies = [], bodies_of(view)
    for part in option.split(";"):
        match = _SELECTION.fullmatch(part.strip())
        assert match is not None
        keys = tuple(sorted(_column(view, k.strip()) for k in match[4].split(",")))
        selection = Selection(keys, _column(view, match[3]), 1 if match[2].lower() == "min" else -1, bool(match[1]))
        provable = not view.schema.types[selection.value].is_interned and (
            _has_best_row(bodies, selection, True)
            if selection.one
            else all(_preserves(body, view, selection, True) for body in bodies)
        )
        if not bodies or not provable:
            raise SqlError(
                f"{view.name} cannot be cut down to {part.strip()}: in some rule a best row need not come from best "
                "rows. Leave the option out, or see docs/sql.md, Aggregate selection"
            )
        found.append(selection)
    return found


def _column(view: View, name: str) -> int:
    names = view.schema.names
    if name.startswith("#") and name[1:].isdigit() and int(name[1:]) < len(names):
        return int(name[1:])
    if name.lower() not in names:
        raise SqlError(f"{OPTION} names {name}, which is no column of {view.name} ({', '.join(names)})")
    return names.index(name.lower())


def _mentions(node: Node, view: str) -> bool:
    return any(isinstance(n, Ref) and n.view == view for n in walk(node))


def _selecting(node: Node, view: str) -> list[Selection]:
    """Return the selections that a GROUP BY straight over the view makes; none if it is anything else."""
    if not isinstance(node, Aggregate) or not node.aggs or not node.keys:
        return []
    position = _positions(node, view)
    if position is None:
        return []
    found = []
    for agg in node.aggs:
        if agg.function not in ("min", "max") or agg.column is None or agg.distinct:
            return []
        column = position[agg.column]
        if node.input.schema.types[agg.column].is_interned:
            return []
        keys = tuple(sorted(position[k] for k in node.keys))
        found.append(Selection(keys, column, 1 if agg.function == "min" else -1))
    return found


def _positions(node: Aggregate, view: str) -> list[int] | None:
    """Return the view's column behind each input column of a GROUP BY straight over it; None if it is over anything
    else."""
    source, position = node.input, list(range(len(node.input.schema)))
    while isinstance(source, Project) and all(isinstance(e, Col) for e in source.exprs):
        exprs = source.exprs
        position = [exprs[p].index for p in position]  # type: ignore[attr-defined]  # all are Col, tested above
        source = source.input
    return position if isinstance(source, Ref) and source.view == view else None


def _sees_groups(node: Aggregate, view: str, found: Iterable[Selection]) -> bool:
    """Return whether a GROUP BY straight over the view depends only on which groups of a selection there are.

    It reads their keys alone, and takes equal ones for one: COUNT(DISTINCT dst) by src."""
    position = _positions(node, view)
    if position is None:
        return False
    if any(agg.column is None or not (agg.distinct or agg.function in ("min", "max")) for agg in node.aggs):
        return False
    read = {position[k] for k in node.keys} | {position[a.column] for a in node.aggs if a.column is not None}
    return any(read <= set(selection.keys) for selection in found)


class _Reader:
    """Whether a query reads the view only where a selection can see."""

    def __init__(self, view: View, program: Program, found: list[Selection]):
        self.view, self.program, self.found = view, program, found
        self.sees_ties = False  # whether a query joins the view with an aggregate, and so sees every best row
        self._groups: dict[str, Aggregate] = {}

    def allows(self, query: Node) -> bool:
        flat = Flattener({self.view.name: self.view.query}, {self.view.name: self.view.schema}, self._group)
        try:
            return all(self._guarded(body) for body in flat.flatten(query))
        except (SqlError, _NotSelectedError):
            return False

    def _group(self, node: Aggregate) -> list[tuple[str, Schema]]:
        name = self.view.name
        seen = _selecting(node, name) or _sees_groups(node, name, self.found)
        if not seen and not self.allows(node.input):
            raise _NotSelectedError
        name = f"group{len(self._groups)}"
        self._groups[name] = node
        return [(name, node.schema)]

    def _guarded(self, body: Body) -> bool:
        """Every recursive row in the body is joined with an aggregate over the view on its keys and value."""
        variable, _, pending = unify(body)
        present = {variable[c] for test in pending if is_present(test) for c in columns_of(test)}
        starts = body.offsets()
        guards = []
        for source, start in zip(body.sources, starts, strict=True):
            node = self._groups.get(source.name) if isinstance(source, Derived) else None
            if isinstance(source, External):
                node = source.node  # type: ignore[assignment]  # any node: _roles looks for the aggregate in it
            if node is not None and (roles := self._roles(node)):
                guards.append({role: variable[start + c] for c, role in enumerate(roles) if role is not None})
        for source, start in zip(body.sources, starts, strict=True):
            if isinstance(source, Derived) and source.name == self.view.name:
                self.sees_ties = True
                wanted = [
                    {("key", k): variable[start + k] for k in s.keys}
                    | {(s.function, s.value): variable[start + s.value]}
                    for s in self.found
                ]
                # NULLs tie whatever they were added to, so the value must be met by =, which no NULL passes.
                met = [w for w, s in zip(wanted, self.found, strict=True) if variable[start + s.value] in present]
                if not any(w.items() <= g.items() for w in met for g in guards):
                    return False
        return True

    def _roles(self, node: Node) -> list[tuple[str, int] | None] | None:
        """For each column of a query that is a selecting aggregate underneath: which key or best value it is."""
        if isinstance(node, Ref):
            view = self.program.views.get(node.view)
            return self._roles(view.query) if view is not None else None
        if isinstance(node, Select):
            return self._roles(node.input)
        if isinstance(node, Project):
            inner = self._roles(node.input)
            return inner and [inner[e.index] if isinstance(e, Col) else None for e in node.exprs]
        made = _selecting(node, self.view.name)
        if not made:
            return None
        assert isinstance(node, Aggregate)
        source, keys = node.input, list(node.keys)
        while isinstance(source, Project):
            keys = [source.exprs[k].index for k in keys]  # type: ignore[attr-defined]  # plain columns, or made is empty
            source = source.input
        return [*(("key", k) for k in keys), *((s.function, s.value) for s in made)]


class _NotSelectedError(Exception):
    """A GROUP BY reads the view where no selection can see."""


def _preserves(body: Body, view: View, selection: Selection, rounding: bool) -> bool:
    """Return the proof obligations for all best rows, for one rule."""
    rule = _Rule(body, selection)
    if not rule.keeps_groups():
        return False
    if len(view.schema) == len(selection.keys) + 1:  # nothing beside keys and value: ties are the same row
        return all(direction(rule.value, v) in (0, 1) for v in rule.values)
    return all(direction(rule.value, v) == 1 and strict(rule.value, v, rounding) for v in rule.values)


def _has_best_row(bodies: Iterable[Body], selection: Selection, rounding: bool) -> bool:
    """Return the proof obligations for one best row per group, for all rules."""
    rules = [_Rule(body, selection) for body in bodies]
    if not rules or not all(rule.keeps_groups() for rule in rules):
        return False
    moving = [(rule, v) for rule in rules for v in rule.values]
    if not all(direction(rule.value, v) == 1 for rule, v in moving):
        return False
    return all(strict(rule.value, v, rounding) for rule, v in moving) or all(
        never_better(rule.body.out[selection.value], v, selection.sign, rule.body.tests) for rule, v in moving
    )


class _Rule:
    """A rule as a selection sees it; parts of it that read no recursive row stand for columns of other rows."""

    def __init__(self, body: Body, selection: Selection):
        starts, owner = body.offsets(), body.owner()
        recursive = [s for s, source in zip(starts, body.sources, strict=True) if isinstance(source, Derived)]
        self.body, self.selection = body, selection
        self.inner = {c for c, o in enumerate(owner) if isinstance(body.sources[o], Derived)}
        self.keys = {s + k for s in recursive for k in selection.keys}
        self.values = {s + selection.value for s in recursive}
        self.value = self._opaque(body.out[selection.value])

    def keeps_groups(self) -> bool:
        """Return whether keys come from keys, the value from keys and values, and conditions let better rows pass."""
        body, known = self.body, self.keys | self.values
        conditions: list[Expr] = [*body.tests, *(e for a in body.absences for e, _ in a.keys)]
        conditions += [a for s in body.sources for a in getattr(s, "args", ())]
        for test in map(self._opaque, conditions):
            read = columns_of(test) & self.inner
            if not read <= known:
                return False
            passes = is_test(test) and all(lets_better_pass(test, v, self.selection.sign) for v in read & self.values)
            if read & self.values and not passes:
                return False
        if any(not columns_of(body.out[k]) & self.inner <= self.keys for k in self.selection.keys):
            return False
        return columns_of(self.value) & self.inner <= known and is_value(self.value)

    def _opaque(self, expr: Expr) -> Expr:
        """Return the expression with what is computed from other rows alone as one column of them: `abs(t.w)` as
        `w`."""
        read = columns_of(expr)
        if isinstance(expr, Col) or not expr.children or not read:
            return expr
        if not read & self.inner:
            return Col(expr.type, -1)
        return rebuild(expr, tuple(map(self._opaque, expr.children)))
