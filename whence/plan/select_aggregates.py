"""Aggregate selection: a recursive view that is only ever read through MIN or MAX keeps only the rows those can see.

The paper's `path` has infinitely many rows on a cyclic network, but `minHops` and `shortestPath` read only the paths of
least length. Where that can be proved, `path` is planned as two strata: for each aggregate the recursion of keys and
best values alone, and then the recursion of `path` as written, each row of it required to be best in one of the
aggregates.

Proof obligations, for keys G and value v of each aggregate, in every rule of the view: G of the head depends on nothing
of a recursive row but its G; v moves strictly with the recursive row's v (or there is nothing beside G and v);
conditions read nothing else of it and let better values pass. Then a row that is best is derived from rows that are
best, so nothing that is kept is lost. Every reader must be such an aggregate, or join the view with one on G and v.
`WITH (aggregate_selection = 'off')` on the view keeps it whole; `'on'` selects by DOUBLE values too, whose sums may
round to ties that the selection does not see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whence.errors import SqlError
from whence.model.types import BOOLEAN, Schema
from whence.plan.conjunctive import Body, Derived, External, Flattener, columns
from whence.plan.expr import Call, Col, Expr, Lit, columns_of
from whence.plan.logical import Agg, Aggregate, Distinct, Join, Node, Project, Ref, Select, Union, walk
from whence.plan.native import direction, is_present, is_test, is_value, lets_better_pass, strict
from whence.plan.program import Program, View
from whence.plan.rewrite.inputs import with_inputs
from whence.plan.unify import unify


@dataclass(frozen=True)
class Selection:
    """Keep the rows whose `value` is the MIN (sign 1) or MAX (-1) among those with the same `keys`."""

    keys: tuple[int, ...]
    value: int
    sign: int

    @property
    def function(self) -> str:
        return "min" if self.sign > 0 else "max"


def select_aggregates(program: Program) -> Program:
    """The program with hidden views for every recursive view that aggregate selection can cut down."""
    planned = program.copy()
    for view in program.views.values():
        planned.views |= _selected(view, program)
    return planned


def selections(view: View, program: Program) -> list[Selection]:
    """The aggregates a recursive view may be cut down to; none if it must be kept whole."""
    if view.option("aggregate_selection") == "off":
        return []
    if not any(isinstance(n, Ref) and n.view == view.name for n in walk(view.query)):
        return []
    if any(isinstance(n, Aggregate) and _mentions(n, view.name) for n in walk(view.query)):
        return []
    readers = [v for v in program.views.values() if v.name != view.name and _mentions(v.query, view.name)]
    found = list(dict.fromkeys(s for v in readers for n in walk(v.query) for s in _selecting(n, view.name)))
    if not found or not all(_Reader(view, program, found).allows(v.query) for v in readers):
        return []
    try:
        bodies = Flattener({view.name: view.query}, {view.name: view.schema}).flatten(view.query)
    except SqlError:
        return []
    return found if all(_preserves(body, view, s) for body in bodies for s in found) else []


def _mentions(node: Node, view: str) -> bool:
    return any(isinstance(n, Ref) and n.view == view for n in walk(node))


def _selecting(node: Node, view: str) -> list[Selection]:
    """The selections that a GROUP BY straight over the view makes; none if it is anything else."""
    if not isinstance(node, Aggregate) or not node.aggs or not node.keys:
        return []
    source, position = node.input, list(range(len(node.input.schema)))
    while isinstance(source, Project) and all(isinstance(e, Col) for e in source.exprs):
        exprs = source.exprs
        position = [exprs[p].index for p in position]  # type: ignore[attr-defined]  # all are Col, tested above
        source = source.input
    if not isinstance(source, Ref) or source.view != view:
        return []
    found = []
    for agg in node.aggs:
        if agg.function not in ("min", "max") or agg.column is None or agg.distinct:
            return []
        column = position[agg.column]
        if source.schema.types[column].is_interned:
            return []
        keys = tuple(sorted(position[k] for k in node.keys))
        found.append(Selection(keys, column, 1 if agg.function == "min" else -1))
    return found


class _Reader:
    """Whether a query reads the view only where a selection can see."""

    def __init__(self, view: View, program: Program, found: list[Selection]):
        self.view, self.program, self.found = view, program, found
        self._groups: dict[str, Aggregate] = {}

    def allows(self, query: Node) -> bool:
        flat = Flattener({self.view.name: self.view.query}, {self.view.name: self.view.schema}, self._group)
        try:
            return all(self._guarded(body) for body in flat.flatten(query))
        except (SqlError, _NotSelectedError):
            return False

    def _group(self, node: Aggregate) -> list[tuple[str, Schema]]:
        if not _selecting(node, self.view.name) and not self.allows(node.input):
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


def _preserves(body: Body, view: View, selection: Selection) -> bool:
    """The proof obligations of the module's docstring, for one rule."""
    owner = body.owner()
    starts = body.offsets()
    recursive = [s for s, source in zip(starts, body.sources, strict=True) if isinstance(source, Derived)]
    inner = {c for c, o in enumerate(owner) if isinstance(body.sources[o], Derived)}
    keys = {s + k for s in recursive for k in selection.keys}
    values = {s + selection.value for s in recursive}
    conditions: list[Expr] = [*body.tests, *(e for a in body.absences for e, _ in a.keys)]
    conditions += [a for s in body.sources for a in getattr(s, "args", ())]
    for test in conditions:
        read = columns_of(test) & inner
        if not read <= keys | values:
            return False
        if any(not (is_test(test) and lets_better_pass(test, v, selection.sign)) for v in read & values):
            return False
    if any(not columns_of(body.out[k]) & inner <= keys for k in selection.keys):
        return False
    value = body.out[selection.value]
    if not columns_of(value) & inner <= keys | values or not is_value(value):
        return False
    bare = len(view.schema) == len(selection.keys) + 1
    for v in values:
        if bare:
            if direction(value, v) not in (0, 1):
                return False
        elif direction(value, v) != 1 or not strict(value, v, view.option("aggregate_selection") == "on"):
            return False
    return True


def _selected(view: View, program: Program) -> dict[str, View]:
    """The views that take the place of one that is cut down: the best values, then the view itself."""
    made: dict[str, View] = {}
    branches: list[Node] = []
    for number, selection in enumerate(selections(view, program)):
        name = f"{view.name}${selection.function}{number}"
        schema = Schema(tuple(view.schema.columns[c] for c in (*selection.keys, selection.value)))
        made[name] = View(name, schema, _best(view, selection, name, schema), view.options, owner=view.name)
        branches.append(_guard(view, selection, Ref(schema, name)))
    if not made:
        return {}
    query = branches[0] if len(branches) == 1 else Distinct(view.schema, Union(view.schema, tuple(branches)))
    return {**made, view.name: replace(view, query=query)}


def _best(view: View, selection: Selection, name: str, schema: Schema) -> Node:
    """The recursion of keys and best value alone: the view's query over itself, everything else forgotten."""
    kept = (*selection.keys, selection.value)
    padded = tuple(Col(t, kept.index(c)) if c in kept else Lit(t, None) for c, t in enumerate(view.schema.types))
    itself = Project(view.schema, Ref(schema, name), padded)
    query = _with_reference(view.query, view.name, itself)
    rows = Project(schema, query, tuple(Col(view.schema.types[c], c) for c in kept))
    last = len(kept) - 1
    return Aggregate(schema, rows, tuple(range(last)), (Agg(selection.function, last),))  # type: ignore[arg-type]


def _guard(view: View, selection: Selection, best: Ref) -> Node:
    """The view's own query, joined with the best values."""
    width = len(view.schema)
    kept = (*selection.keys, selection.value)
    same = tuple(
        Call(BOOLEAN, "is_not_distinct", (Col(view.schema.types[c], c), Col(view.schema.types[c], width + i)))
        for i, c in enumerate(kept)
    )
    condition = same[0] if len(same) == 1 else Call(BOOLEAN, "and", same)
    both = Schema(view.schema.columns + best.schema.columns)
    joined = Join(both, view.query, best, "inner", (), condition)
    return Project(view.schema, joined, columns(view.schema))


def _with_reference(node: Node, name: str, by: Node) -> Node:
    """The query with every reference to a view replaced."""
    if isinstance(node, Ref):
        return by if node.view == name else node
    return with_inputs(node, tuple(_with_reference(i, name, by) for i in node.inputs))
