"""Extract derivations: from rows of a view down to rows of base tables.

A recursive component is taken apart by its own rules (`cone.py`), every other query by evaluating it over the
rows that matter, each result row with the rows it came from (`plan_evaluator.py`). Both leave rows of other views open:
those are taken apart in turn, all of one view at once, until only base rows and absences are left.

The graph is exact when no loss of base rows can bring about a row that is not there now and matters here. What is not
monotone (negation, aggregates, top-k) is looked at where it stands; what cannot be ruled out there is a caveat.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.engine.recursion.fixpoint import Fixpoint, Port
from whence.explain.derive.cone import Cone, Outside
from whence.explain.derive.graph_builder import LIMIT, GraphBuilder, GraphRows
from whence.explain.derive.parts import Wanted
from whence.explain.derive.plan_evaluator import PlanEvaluator, is_monotone
from whence.explain.derive.stream_tables import StreamTables
from whence.explain.graph import Derivations, Ints, Kind
from whence.model.codes import Codes, Dictionary
from whence.model.errors import WhenceError
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.logical import Node, Ref, Scan, walk
from whence.plan.algebra.program import Program, View, is_template, is_transient, template_of
from whence.plan.recursion.rule_model import Rule, RuleRelation
from whence.plan.rewrite import optimize
from whence.plan.rewrite.hold_inputs import without_hold

_APART = 1000  # more than a rule has atoms
_LOSING = "losing rows could bring about others: "


def extract(
    flow: Dataflow,
    program: Program,
    planned: Program,
    dictionary: Dictionary,
    name: str,
    rows: Codes | None = None,
    limit: int = LIMIT,
) -> Derivations:
    """Return the derivations behind rows of a table or view that are there, or behind all of its rows.

    `program` is as users wrote it and `planned` as it runs. The dataflow must not change meanwhile."""
    found = Extractor(flow, program, planned, dictionary, limit)
    if rows is None:
        if name not in program.tables and (count := found.count(name)) > limit:
            raise WhenceError(
                f"{name} has {count:,} rows with a derivation each, more than the limit of {limit:,}: ask about a part "
                f"of it, by values of {', '.join(program.views[name].schema.names)}, or raise limit="
            )
        rows = found.contents(name)[0]
        if rows.shape[1]:  # what has the last value in common is derived from much the same rows
            rows = rows[np.argsort(rows[:, -1], kind="stable")]
    return found.graph_of(name, rows)


class Extractor:
    """One graph in the making, and what is still open in it."""

    def __init__(self, flow: Dataflow, program: Program, planned: Program, dictionary: Dictionary, limit: int = LIMIT):
        self.flow, self.program, self.planned, self.dictionary = flow, program, planned, dictionary
        self.borrowed = True  # the dictionary is the database's own, to which nothing may be added
        self.builder = GraphBuilder(dictionary, limit)
        self.streams = StreamTables(flow, planned)
        self.query = PlanEvaluator(self)
        self._cones: dict[int, Cone] = {}
        self._fixpoints: dict[str, Fixpoint] = {}  # by the names of their outputs, and of the queries over those
        self._plans: dict[str, Node] = {}
        for op in flow.order:
            if isinstance(op, Fixpoint):
                self._fixpoints |= dict.fromkeys((*op.program.outputs, *(n for n, _ in op.program.after)), op)
        self._alias: dict[str, str] = {}  # views that are a relation of a fixpoint as it is
        self._named: dict[tuple[int, int], str] = {}  # and the relation's name then
        for name, fixpoint in self._fixpoints.items():
            outputs = fixpoint.program.outputs
            if name not in outputs and isinstance(node := self.plan(name), Ref) and node.view in outputs:
                self._alias[name] = node.view
                self._named.setdefault((id(fixpoint), outputs[node.view]), name)
        self._open: dict[str, list[Codes]] = {}  # rows of views whose derivations are still to be found
        self._volatile: dict[str, bool] = {}

    def graph_of(self, name: str, rows: Codes) -> Derivations:
        roots = self.nodes(name, rows)
        self.close()
        return self.builder.finish(roots)

    def close(self) -> None:
        """Find the derivations of everything that is open."""
        while True:
            cone = next((c for c in self._cones.values() if c.waiting), None)
            if cone is not None:
                self._spread(cone)
            elif self._open:
                name, chunks = self._open.popitem()
                self._expand(name, np.concatenate(chunks))
            else:
                break
        for cone in self._cones.values():
            if cone.lets_in():
                self.builder.doubt(f"{_LOSING}{cone.fixpoint.name} excludes rows that could then be let through")
            cone.release()

    # -- rows of tables and views ------------------------------------------------------------------------------------

    def contents(self, name: str) -> tuple[Codes, Codes]:
        """Return all rows of a table, a view, or an output of a fixpoint, and how often each is there."""
        if self.streams.schema(name) is not None:
            return self.streams.rows(name, self.dictionary)
        op = self.flow.tables.get(name) or self.flow.views.get(name)
        if op is None:
            fixpoint = self._fixpoints[name]
            rows = fixpoint.live(fixpoint.program.outputs[name])
            return rows, np.ones(len(rows), np.int64)
        batch = op.contents()
        return batch.rows, batch.ann

    def count(self, name: str) -> int:
        """Return at most how many distinct rows a view has, without reading them where that is known."""
        op = self.flow.views.get(name)
        return op.fixpoint.count(op.relation) if isinstance(op, Port) else len(self.contents(name)[0])

    def rows_of(self, name: str, wanted: Wanted) -> Codes:
        """Return rows of a view, among them all that are wanted."""
        op = self.flow.views.get(name)
        for cols, values in wanted:
            if op is not None and len(cols) == len(op.schema) and cols == tuple(range(len(cols))):
                values = np.ascontiguousarray(values)
                return values[op.count_of(values) > 0]
        return self.contents(name)[0]

    def is_recursive(self, name: str) -> bool:
        return name in self._fixpoints and name in self._fixpoints[name].program.outputs

    def plan(self, name: str) -> Node:
        """Return the query of a view that is not itself a relation of a fixpoint, as it runs."""
        found = self._plans.get(name)
        if found is None:
            fixpoint = self._fixpoints.get(name)
            node = dict(fixpoint.program.after)[name] if fixpoint is not None else self.planned.views[name].query
            found = self._plans[name] = self.streams.as_tables(_optimized(node, tuple(n.label for n in walk(node))))
        return found

    def relation(self, name: str) -> GraphRows:
        """Return the relation of the graph for a table or view."""
        if (schema := self.streams.schema(name)) is not None:
            return self.builder.relation(("base", name), name, "base", schema)
        if (table := self.program.tables.get(name)) is not None:
            return self.builder.relation(("base", name), name, "base", table.schema)
        if self.is_recursive(name):
            fixpoint = self._fixpoints[name]
            return self._derived(fixpoint, fixpoint.program.outputs[name])
        view = self.planned.views[name]
        hidden = view.hidden
        return self.builder.relation(("view", name), self.name_of(name), "inner" if hidden else "view", view.schema)

    def name_of(self, name: str) -> str:
        """Return the name by which users know a table or view."""
        view = self.planned.views.get(name)
        if view is None or not view.hidden:
            return name if "$" not in name else _readable(name, None)
        return _readable(name, view if name not in self.program.views else None)

    def nodes(self, name: str, rows: Codes, copies: Codes | None = None) -> Ints:
        """Return the nodes of rows that are there; their derivations are found later."""
        stream = self.streams.schema(name) is not None
        if stream or name in self.program.tables:
            nodes, fresh = self.builder.intern(self.relation(name), rows)
            if copies is None and stream:
                copies = self.streams.counts(name, rows, self.dictionary)
            elif copies is None:
                copies = self.flow.tables[name].relation.counts(np.ascontiguousarray(rows))
            several = fresh[copies[fresh] > 1]
            self.builder.copies.update(zip(nodes[several].tolist(), copies[several].tolist(), strict=True))
            return nodes
        if self.is_recursive(name := self._alias.get(name, name)):
            fixpoint = self._fixpoints[name]
            cone = self._cone(fixpoint)
            numbers = cone.ask(fixpoint.program.outputs[name], rows)
            self._settle(cone)
            return cone.nodes(numbers)
        nodes, fresh = self.builder.intern(self.relation(name), rows)
        if len(fresh):
            self._open.setdefault(name, []).append(rows[fresh])
            self.builder.check_room(sum(len(chunk) for chunks in self._open.values() for chunk in chunks))
        return nodes

    def _expand(self, name: str, rows: Codes) -> None:
        """Add the derivations of rows of a view that is a plain query."""
        self.query.view = name
        wanted: Wanted = ((tuple(range(rows.shape[1])), rows),)
        parts = self.query.parts(self.plan(name), wanted)
        relation = self.relation(name)
        derived = []
        for part in parts:
            heads, _ = self.builder.intern(relation, part.rows)
            self.query.derive(heads, part, self.name_of(name))
            derived.append(heads)
        heads, _ = self.builder.intern(relation, rows)
        rest = np.setdiff1d(heads, np.concatenate(derived)) if derived else heads
        if len(rest):
            self._leave_whole(name, rest)

    def _leave_whole(self, name: str, heads: Ints) -> None:
        """Derive rows whose origin is unknown from all that their view reads."""
        self.builder.doubt(f"it is not known which rows lead to those of {name}: it stands on all that it reads")
        read = names_read(self.plan(name))
        found = [self.nodes(n, self.contents(n)[0]) for n in read]
        body = np.concatenate([np.empty(0, np.int32), *found])
        step = self.builder.step(name, f"{self.name_of(name)} <- {', '.join(map(self.name_of, read))}")
        self.builder.add(heads, np.full(len(heads), step, np.int32), np.tile(body, (len(heads), 1)))

    # -- recursive components ----------------------------------------------------------------------------------------

    def _cone(self, fixpoint: Fixpoint) -> Cone:
        found = self._cones.get(id(fixpoint))
        if found is None:
            found = self._cones[id(fixpoint)] = Cone(fixpoint, self.builder)
            self._doubt_component(fixpoint)
        return found

    def _derived(self, fixpoint: Fixpoint, number: int) -> GraphRows:
        """Return the relation of the graph for one that a component derives."""
        relation = fixpoint.program.relations[number]
        name = self._named.get((id(fixpoint), number), relation.name)
        users = name in self.program.views and not self.program.views[name].hidden
        name = name if users else self._inner_name(relation)
        computed = not users and "$computed" in relation.name
        kind: Kind = "view" if users else "inner"
        return self.builder.relation((id(fixpoint), number), name, kind, relation.schema, plain=computed)

    def _inner_name(self, relation: RuleRelation) -> str:
        if relation.kind == "best" and "$rank" in relation.view:
            return f"{_SELECTED['rank']} of {relation.view.partition('$')[0]}"
        if relation.kind == "best":
            return f"best {relation.schema.names[-1]} of {relation.view.partition('$')[0]}"
        return self.name_of(relation.name) if "$computed" not in relation.name else f"computed for {relation.view}"

    def _spread(self, cone: Cone) -> None:
        heads, rules, bodies = cone.spread()
        self._settle(cone)
        builder, program = self.builder, cone.fixpoint.program
        steps = np.array([self._step(cone.fixpoint, r) for r in range(len(program.rules))], np.int32)
        orders = [self._atoms(cone.fixpoint, rule) for rule in program.rules]
        if any(order != sorted(order) for order in orders):
            width = bodies.shape[1]
            whole = np.array([[*order, *range(len(order), width)] for order in orders], np.int64)
            bodies = np.take_along_axis(bodies, whole[rules], axis=1)
        builder.add(cone.nodes(heads), steps[rules], cone.nodes(bodies))

    def _step(self, fixpoint: Fixpoint, number: int) -> int:
        program = fixpoint.program
        rule = program.rules[number]
        names = []
        for atom in (rule.atoms[at] for at in self._atoms(fixpoint, rule)):
            relation = program.relations[atom.relation]
            derived = relation.kind in ("set", "best")
            name = self._derived_name(fixpoint, atom.relation) if derived else self.name_of(relation.name)
            names.append(f"no {name}" if relation.kind == "absence" else name)
        head = self._derived_name(fixpoint, rule.head)
        return self.builder.step(program.relations[rule.head].view, f"{head} <- {', '.join(names)}")

    def _atoms(self, fixpoint: Fixpoint, rule: Rule) -> list[int]:
        """Return the atoms of a rule in reading order; what only lets rows through, or not, comes last."""
        relations = fixpoint.program.relations
        return order_atoms(rule, {i for i, r in enumerate(relations) if r.kind == "absence" or self._selects(r)})

    def _derived_name(self, fixpoint: Fixpoint, number: int) -> str:
        return self.builder.relations[self._derived(fixpoint, number).number].name

    def _settle(self, cone: Cone) -> None:
        """Add nodes for the rows that were met; rows of external relations are those of tables, views or queries."""
        fixpoint = cone.fixpoint
        for met in cone.unsettled():
            relation = fixpoint.program.relations[met.relation]
            if relation.kind in ("set", "best"):
                nodes = self.builder.append(self._derived(fixpoint, met.relation), met.cells)
            else:
                nodes = self._outside(fixpoint, met, relation)
            cone.settle(met.numbers, nodes)

    def _outside(self, fixpoint: Fixpoint, met: Outside, relation: RuleRelation) -> Ints:
        key = (id(fixpoint), met.relation)
        assert relation.source is not None
        source = self.streams.as_tables(without_hold(relation.source))
        name = self.name_of(relation.name)
        if relation.kind == "absence":
            return self.builder.append(self.builder.relation(key, name, "absence", relation.schema), met.cells)
        if isinstance(source, Scan):
            return self.nodes(source.table, met.cells, met.copies)
        if isinstance(source, Ref):
            return self.nodes(source.view, met.cells)
        rows = self.builder.relation(key, name, "inner", relation.schema, plain=True)
        nodes = self.builder.append(rows, met.cells)
        everything = tuple(range(rows.width))
        self.query.view = relation.view or fixpoint.name
        for part in self.query.parts(source, ((everything, met.cells),)):
            heads, _ = self.builder.intern(rows, part.rows)
            self.query.derive(heads, part, name)
        return nodes

    # -- what may appear ---------------------------------------------------------------------------------------------

    def _doubt_component(self, fixpoint: Fixpoint) -> None:
        """Record the caveats of a component: rows outside that may appear, best values that may change."""
        program = fixpoint.program
        for relation in program.relations:
            if relation.source is None:
                continue
            name, view = self.name_of(relation.name), fixpoint.name
            if "$" not in fixpoint.name and self._selects(relation):
                continue  # a row that is best stays derived from the same best rows: plan/rewrite/select_aggregates.py
            if self.is_volatile(without_hold(relation.source)):
                self.builder.doubt(f"{_LOSING}{view} reads {name}, whose rows may change when others are lost")
        for rule in program.rules:
            if self._forgets(fixpoint, rule):
                self.builder.doubt(
                    f"{_LOSING}{fixpoint.name} reads a best value so that another value may lead to the same row"
                )

    def _selects(self, relation: RuleRelation) -> bool:
        """Return whether a relation has the best values that a view was cut down to."""
        source = without_hold(relation.source) if relation.source is not None else None
        if not isinstance(source, Ref):
            return False
        view = self.planned.views.get(source.view)
        if view is None or not view.hidden or source.view in self.program.views:
            return False
        return source.view.rpartition("$")[2].rstrip("0123456789") in ("min", "max")

    def is_selected(self, name: str) -> bool:
        """Return whether a recursive view was cut down to the rows of best values."""
        return any(self._selects(r) for r in self._fixpoints[name].program.relations)

    def is_best(self, name: str) -> bool:
        """Return whether a relation of a fixpoint has the best value of each key."""
        program = self._fixpoints[name].program
        return program.relations[program.outputs[name]].kind == "best"

    def _forgets(self, fixpoint: Fixpoint, rule: Rule) -> bool:
        program = fixpoint.program
        head = program.relations[rule.head]
        for atom in rule.atoms:
            relation = program.relations[atom.relation]
            if relation.kind != "best":
                continue
            value = atom.terms[-1]
            if value is None or head.kind != "best":
                return True
            carried = {value}  # what differs whenever the best value does
            for op in rule.ops:
                if op.name in ("+", "-") and (op.a in carried) != (op.b in carried):
                    carried.add(op.to)
            if rule.terms[-1] not in carried:
                return True
        return False

    def is_volatile(self, node: Node) -> bool:
        """Return whether a query may have rows after a loss of base rows that it does not have now."""
        nodes = walk(self.streams.as_tables(node))
        return any(not is_monotone(n) or (isinstance(n, Ref) and self._is_volatile_view(n.view)) for n in nodes)

    def _is_volatile_view(self, name: str) -> bool:
        found = self._volatile.get(name)
        if found is None:
            self._volatile[name] = False
            fixpoint = self._fixpoints.get(name)
            if self.streams.schema(name) is not None:
                found = False  # its rows are taken for base rows
            elif fixpoint is None:
                found = self.is_volatile(self.plan(name))
            else:
                program = fixpoint.program
                found = any(
                    r.kind in ("absence", "best") or (r.source is not None and self.is_volatile(without_hold(r.source)))
                    for r in program.relations
                )
                if not found and name not in program.outputs:
                    found = self.is_volatile(self.plan(name))
            self._volatile[name] = found
        return found


def order_atoms(rule: Rule, late: Collection[int]) -> list[int]:
    """Return the atoms of a rule in the order in which people read it: by the head's columns that they have, the others
    after what they are joined with, those of `late` relations last. So the steps of a path are in its order, however
    its rule is written."""
    last, shared = _APART * (len(rule.terms) + 1), [{*atom.terms} - {None} for atom in rule.atoms]
    rank: dict[int, int] = {}
    for at, atom in enumerate(rule.atoms):
        if atom.relation in late:
            rank[at] = last
        elif (column := next((i for i, t in enumerate(rule.terms) if t in shared[at]), None)) is not None:
            rank[at] = _APART * column
    while left := [at for at in range(len(shared)) if at not in rank]:
        joined = [(r, at) for at in left for other, r in rank.items() if r < last and shared[at] & shared[other]]
        before, at = min(joined, default=(last - _APART, left[0]))
        rank[at] = before + 1
    return sorted(range(len(shared)), key=lambda at: (rank[at], at))


@lru_cache(maxsize=256)
def _optimized(node: Node, labels: tuple[str, ...]) -> Node:
    """Return the optimized plan of a view, which many questions are about. Equal plans may have other `labels`."""
    return optimize(node)


# Relations that choose one best row per group, see plan/rewrite/best_rows.py.
_SELECTED = {"rank": "fewest steps", "step": "last steps", "first": "first of the last steps", "one": "kept rows"}


def _readable(name: str, selected: View | None) -> str:
    """Return a name for a hidden view: the best values of one that is cut down to them, or a part of a query that had a
    name there."""
    if is_transient(name):
        name = name[1:].partition("$")[2] or "the query"
    if is_template(name):
        return f"answers to {template_of(name)}"
    owner, _, own = name.partition("$")
    if selected is not None:
        what = own.rstrip("0123456789_")
        return f"{_SELECTED[what]} of {owner}" if what in _SELECTED else f"best {selected.schema.names[-1]} of {owner}"
    if own.rstrip("0123456789_") in ("min", "max"):
        return f"best value of {owner}"
    return own or owner
