"""Groups: the rows that an aggregate counts, adds up, or chooses the best of.

Of a group whose aggregates are all MIN or MAX any row of the best value suffices, so each is a derivation. COUNT, SUM
and AVG need all of their rows: the group is a **tally** over its elements (`graph.Tally`).

Losing rows may change the value of a group, and so bring about a row that is not there now. It matters unless the row
that is asked for has the value in it: then only that very value counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from whence.explain.derive.graph_builder import number_distinct
from whence.explain.derive.grouped_query import find_same_code, peel_groups
from whence.explain.derive.parts import Part, Wanted, is_ambiguous, keep_wanted, match_wanted, pair_equal
from whence.explain.derive.sources import MadeRows
from whence.explain.derive.sql_text import write_expr
from whence.explain.graph import Ints, Tally
from whence.io.rows import to_tuples
from whence.model.codes import NULL, Codes, encode_value
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, columns_of, substitute
from whence.plan.algebra.logical import Agg, Aggregate, Node

if TYPE_CHECKING:
    from whence.explain.derive.plan_evaluator import PlanEvaluator


def evaluate_groups(query: PlanEvaluator, node: Aggregate, wanted: Wanted) -> list[Part]:
    """Evaluate an aggregate: return the wanted groups, each a row in between."""
    keys = len(node.keys)
    elements, rows = _grouped(query, node, wanted)
    everything = Part(rows, np.ones(len(rows), np.int64), [])
    (kept,) = keep_wanted([everything], wanted)
    if node.aggs:
        known = {c for cols, _ in wanted for c in cols}
        if len(kept.rows) < len(rows):
            query.doubt("a group that has another value now may come to this one when rows are lost")
        elif len(rows) and (not known >= set(range(keys, len(node.schema))) or is_ambiguous(wanted, range(keys))):
            query.doubt("a group may get another value when rows are lost, and still lead to the same row")
    source = Groups(query, _name(node, elements), node.schema, kept.rows, node, kept.rows, elements)
    return [Part(kept.rows, kept.weight, [(source, np.arange(len(kept.rows)))])]


def _grouped(query: PlanEvaluator, node: Aggregate, wanted: Wanted) -> tuple[list[Part], Codes]:
    """Return the elements of all groups whose keys are wanted, and the groups' rows."""
    down = []
    for cols, values in wanted:
        inside = [i for i, c in enumerate(cols) if c < len(node.keys)]
        if inside:
            down.append((tuple(node.keys[cols[i]] for i in inside), values[:, inside]))
    choosing, query.choosing = query.choosing, all(a.function in ("min", "max") for a in node.aggs)
    elements = query.parts(node.input, tuple(down), bag=True)
    query.choosing = choosing
    return elements, query.run(node, [elements]).rows


def evaluate_tested(query: PlanEvaluator, node: Node, wanted: Wanted) -> list[Part] | None:
    """Evaluate a query directly over groups that does not keep all their values: a group counts while what is left of
    it still passes. None if it is not such a query, or only these very values count."""
    found = peel_groups(node, query.inlined)
    if found is None:
        return None
    inner, test, out = found
    keys, width = len(inner.keys), len(inner.schema)
    used = {c for e in ([test] if test is not None else []) + out for c in columns_of(e)}
    pinned = {at for cols, _ in wanted for c in cols if (at := find_same_code(out[c])) is not None}
    if not inner.aggs or pinned >= set(range(keys, width)):
        return None
    inner, place = _with_only(inner, used)
    out, test = [_moved(e, place) for e in out], test and _moved(test, place)
    if not inner.aggs:  # that there is a group is all that counts, and without keys there always is
        one = Part(np.empty((1, 0), np.int64), np.ones(1, np.int64), [])
        parts = evaluate_groups(query, inner, _over(wanted, out, keys)) if keys else [one]
        if test is not None:
            parts = [p.take(np.flatnonzero(query.value(test, p.rows) == 1)) for p in parts]
        return keep_wanted([p.with_rows(query.values(out, p.rows)) for p in parts], wanted)
    known = {c for cols, _ in wanted for c in cols}
    of_keys = [c for c, e in enumerate(out) if max(columns_of(e), default=-1) < keys]
    if not known >= set(range(len(out))) - set(of_keys) or is_ambiguous(wanted, of_keys):
        query.doubt("a group may get another value when rows are lost, and still lead to the same row")
    elements, rows = _grouped(query, inner, _over(wanted, out, keys))
    made = query.values(out, rows)
    passing = match_wanted(made, wanted)
    if test is not None:
        passing &= query.value(test, rows) == 1
    if not passing.all():
        query.doubt("a group that is passed over now may come to count when rows are lost")
    rows, made = rows[passing], made[passing]
    source = TestedGroups(query, _name(inner, elements), node.schema, made, inner, rows, elements, test, out)
    return [Part(made, np.ones(len(made), np.int64), [(source, np.arange(len(made)))])]


def _with_only(node: Aggregate, used: set[int]) -> tuple[Aggregate, dict[int, int]]:
    """Return an aggregate without values that are not read, and where its columns are then."""
    kept = [c for c in range(len(node.schema)) if c < len(node.keys) or c in used]
    schema = Schema(tuple(node.schema.columns[c] for c in kept))
    aggs = tuple(node.aggs[c - len(node.keys)] for c in kept if c >= len(node.keys))
    return replace(node, schema=schema, aggs=aggs), {c: i for i, c in enumerate(kept)}


def _moved(expr: Expr, place: dict[int, int]) -> Expr:
    return substitute(expr, lambda c: Col(c.type, place[c.index]))


def _over(wanted: Wanted, out: list[Expr], keys: int) -> Wanted:
    """Return what is wanted of a query over groups, as far as it is of their keys."""
    found = []
    for cols, values in wanted:
        plain = [(i, at) for i, c in enumerate(cols) if (at := find_same_code(out[c])) is not None and at < keys]
        if plain:
            found.append((tuple(at for _, at in plain), values[:, [i for i, _ in plain]]))
    return tuple(found)


def _name(node: Aggregate, elements: list[Part]) -> str:
    if node.label:
        return node.label
    names = dict.fromkeys(s.name for p in elements for s, _ in p.refs)
    return f"group of {', '.join(names)}" if names else "group"


@dataclass
class Groups(MadeRows):
    """The groups of one aggregate: `values` are its rows."""

    node: Aggregate
    values: Codes
    elements: list[Part]
    chooses: ClassVar[bool] = True  # any row of the best value suffices

    @property
    def of(self) -> str:
        """Return what it groups, for the names of rows in between."""
        return self.name.removeprefix("group of ")

    def _derive(self, fresh: Codes) -> None:
        node, rows = self.node, self.values[fresh]
        keys = len(node.keys)
        mine = []  # parts with the positions in `fresh` of their groups
        for part in self.elements:
            if keys:
                at, to = pair_equal(part.rows[:, list(node.keys)], rows[:, :keys])
            else:
                at = np.arange(len(part.rows))
                to = np.zeros(len(at), np.int64)
            if len(at):
                mine.append((part.take(at), to))
        heads = self._nodes[fresh]
        if self.chooses and all(a.function in ("min", "max") for a in node.aggs):
            self._choose(heads, rows, mine)
        else:
            self._tally(heads, rows, mine)

    # -- MIN and MAX -------------------------------------------------------------------------------------------------

    def _choose(self, heads: Ints, rows: Codes, mine: list[tuple[Part, Codes]]) -> None:
        """Add derivations by MIN and MAX: any element of the best value suffices; of several values each needs one."""
        aggs, keys, query = self.node.aggs, len(self.node.keys), self.query
        if len(aggs) <= 1:
            self._best(heads, rows, mine, aggs[0] if aggs else None, keys, self.name)
            return
        builder = query.owner.builder
        bodies = np.empty((len(heads), len(aggs)), np.int32)
        for i, agg in enumerate(aggs):
            columns = (*self.node.schema.columns[:keys], self.node.schema.columns[keys + i])
            name = self._told(agg)
            relation = builder.relation(("best", id(self), i), name, "inner", Schema(columns))
            nodes = builder.append(relation, rows[:, [*range(keys), keys + i]])
            self._best(nodes, rows, mine, agg, keys + i, name)
            bodies[:, i] = nodes
        step = builder.step(self.query.view, f"{self.name} <- {self._said()}")
        builder.add(heads, np.full(len(heads), step, np.int32), bodies)

    def _best(
        self, heads: Ints, rows: Codes, mine: list[tuple[Part, Codes]], agg: Agg | None, column: int, name: str
    ) -> None:
        always = np.zeros(len(heads), bool)
        if agg is not None and not self.node.keys:
            always = rows[:, column] == NULL  # of no rows the best is NULL, too
            empty = Part(rows[always], np.ones(int(always.sum()), np.int64), [])
            self.query.derive(heads[always], empty, name)
        for part, to in mine:
            if agg is not None and agg.column is not None:
                chosen = np.flatnonzero((part.rows[:, agg.column] == rows[to, column]) & ~always[to])
                part, to = part.take(chosen), to[chosen]
            self.query.derive(heads[to], part, name)

    def _column(self, agg: Agg) -> str:
        return "rows" if agg.column is None else self.node.input.schema.names[agg.column]

    # -- COUNT, SUM, AVG ---------------------------------------------------------------------------------------------

    def _tally(self, heads: Ints, rows: Codes, mine: list[tuple[Part, Codes]]) -> None:
        """Add tallies: all elements of each group, with what of them is counted or added up."""
        builder, node = self.query.owner.builder, self.node
        functions = tuple((a.function, a.distinct) for a in node.aggs)
        step = builder.step(self.query.view, f"{self.name}: {self._said()}")
        columns = [a.column for a in node.aggs if a.column is not None]
        schema = Schema(tuple(node.input.schema.columns[c] for c in columns))
        if not node.keys and self._is_nothing(mine):  # what is lost makes no difference
            self.query.derive(heads, Part(rows, rows[:, 0], []), self.name)
            return
        nodes, groups, weights = [], [], []
        values: list[tuple[Any, ...]] = []
        for part, to in mine:
            nodes.append(self._elements(part, to))
            groups.append(to)
            weights.append(part.weight)
            values += (
                to_tuples(part.rows[:, columns], schema, self.query.owner.dictionary) if columns else [()] * len(to)
            )
        body, group, weight = np.concatenate(nodes), np.concatenate(groups), np.concatenate(weights)
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(heads) + 1))
        at = [None if a.column is None else columns.index(a.column) for a in node.aggs]
        for i, head in enumerate(heads.tolist()):
            own = order[starts[i] : starts[i + 1]]
            shown = tuple(tuple(1 if c is None else values[e][c] for c in at) for e in own.tolist())
            tally = Tally(functions, weight[own].astype(np.int64), shown, self._test(rows[i]))
            if tally.test is None and node.keys and _is_empty(tally):
                self._guarded(head, step, body[own], tally, rows[i : i + 1])
            else:
                builder.tally(head, step, body[own], tally)

    def _is_nothing(self, mine: list[tuple[Part, Codes]]) -> bool:
        """Return whether there is nothing to count or add up: no elements, or none that is not NULL."""
        columns = [a.column for a in self.node.aggs]
        return all(c is not None and (p.rows[:, c] == NULL).all() for p, _ in mine for c in columns)

    def _said(self) -> str:
        """Describe what is computed of the elements."""
        return ", ".join(map(self._told, self.node.aggs))

    def _told(self, agg: Agg) -> str:
        return f"{agg.function} of {'distinct ' if agg.distinct else ''}{self._column(agg)}"

    def _test(self, row: Codes) -> Callable[[tuple[Any, ...], bool], bool] | None:
        """Return what a group with this row must pass; None if it must keep its values."""
        return None

    def _guarded(self, head: int, step: int, body: Ints, tally: Tally, row: Codes) -> None:
        """Add a group whose aggregates are those of no rows at all: it also needs some row to be there."""
        builder = self.query.owner.builder
        relation = builder.relation(("tallied", id(self)), self.name, "inner", self.node.schema)
        some = builder.relation(("some", id(self)), f"some {self.of}", "inner", self.node.schema)
        (tallied,), (exists,) = builder.append(relation, row).tolist(), builder.append(some, row).tolist()
        builder.tally(tallied, step, body, tally)
        ways = np.full(len(body), exists, np.int32)
        builder.add(ways, np.full(len(body), step, np.int32), body[:, None])
        builder.add(np.array([head], np.int32), np.array([step], np.int32), np.array([[tallied, exists]], np.int32))

    def _elements(self, part: Part, to: Codes) -> Ints:
        """Return a node for each element: the row it came from where that is one row, else a row in between."""
        if len(part.refs) == 1:
            ((source, places),) = part.refs
            nodes = source.nodes(places)
            both = np.stack([to, nodes.astype(np.int64)], axis=1)
            if len(self.elements) == 1 and len(number_distinct(both)[1]) == len(both):
                return nodes
        builder = self.query.owner.builder
        relation = builder.relation(("element", id(self)), f"rows of {self.of}", "inner", self.node.input.schema)
        nodes = builder.append(relation, part.rows)
        self.query.derive(nodes, part, f"rows of {self.of}")
        return nodes


@dataclass
class TestedGroups(Groups):
    """Groups that count while what is left of them passes a condition and leads to the same row `out`."""

    condition: Expr | None
    out: list[Expr]
    chooses = False

    def _said(self) -> str:
        if self.condition is None:
            return super()._said()
        names = [*self.node.schema.names[: len(self.node.keys)], *map(self._told, self.node.aggs)]
        return write_expr(self.condition, lambda column: names[column])

    def _test(self, row: Codes) -> Callable[[tuple[Any, ...], bool], bool]:
        query, keys, types = self.query, len(self.node.keys), self.node.schema.types
        wanted = query.values(self.out, row[None, :])[0]

        def passes(values: tuple[Any, ...], some: bool) -> bool:
            if keys and not some:
                return False
            codes = [encode_value(v, t, query.owner.dictionary) for v, t in zip(values, types[keys:], strict=True)]
            now = np.array([[*row[:keys].tolist(), *codes]], np.int64)
            if self.condition is not None and query.value(self.condition, now)[0] != 1:
                return False
            return bool((query.values(self.out, now)[0] == wanted).all())

        return passes


def _is_empty(tally: Tally) -> bool:
    """Return whether the aggregates are what they would be of no rows: counts of nothing, and NULL."""
    return all(
        v is None
        for (f, _), column in zip(tally.functions, zip(*tally.values, strict=True), strict=True)
        for v in column
    ) and bool(tally.functions)
