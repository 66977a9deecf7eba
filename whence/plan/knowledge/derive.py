"""Derive what the rows of a view can still become, from its plan and from what its sources promise.

The law: whatever rows the sources take in from now on, as far as they keep their promises, the final rows of the view
lie in what `subscribe/cells.py` reads from the knowledge. Where that cannot be shown, nothing is claimed.

Each node says what is known of its rows (`Node.knows`), given what is known of its inputs. Recursive views are assumed
to have rows that only come and never change; what follows from that replaces the assumption until it follows from
itself. That is sound because no node gives more for weaker inputs, so stages of the fixpoint are ordered as the
inputs are.

Cost: linear in the plan; joins multiply branches, which are given up beyond `_MOST_BRANCHES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from whence.model.types import Schema
from whence.plan.algebra.constructors import relabel
from whence.plan.algebra.logical import (
    Aggregate,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    TopK,
    Values,
)
from whence.plan.algebra.program import Program
from whence.plan.knowledge import rowwise
from whence.plan.knowledge.bounds import ANYTHING
from whence.plan.knowledge.checks import narrow_by_checks
from whence.plan.knowledge.describe import describe_cells
from whence.plan.knowledge.facts import Cell, Described, Facts, reordered, shown, unknown_row
from whence.plan.knowledge.groups import group_facts
from whence.plan.knowledge.joins import join_facts
from whence.plan.knowledge.model import (
    Branch,
    Doubt,
    Function,
    Growing,
    Growth,
    KeyTest,
    RelationKnowledge,
    Shown,
    SourceFacts,
    Term,
    Variable,
)
from whence.plan.knowledge.sources import source_facts
from whence.plan.knowledge.terms import (
    Direction,
    column_bounds,
    columns_in,
    growths_in,
    moved_term,
    together,
    unknown,
    walk,
)
from whence.plan.recursion.scc import strongly_connected
from whence.plan.recursion.strata import references

if TYPE_CHECKING:
    from whence.plan.streams.model import Lookup, Stream, StreamToRelation

_MOST_BRANCHES = 32
_NEVER = SourceFacts("", is_stream=False)  # of what something may come at any time


@dataclass(frozen=True)
class AugmentedPlan:
    """A plan with the rows of a view, behind whose columns stand those that bounds need, and what is known of it."""

    plan: Node
    knowledge: RelationKnowledge


def knowledge_of(program: Program, view: str | Node) -> RelationKnowledge:
    """Return what is known of the rows of a view, stream or table, or of a plan, of a program of networks."""
    return augmented(program, view).knowledge


def augmented(program: Program, view: str | Node) -> AugmentedPlan:
    """Return the plan of a view, or a plan, with the columns that its bounds need, and what is known of it."""
    deriver = KnowledgeDeriver(program)
    facts = deriver.of(view) if isinstance(view, Node) else deriver.named(view)
    return deriver.finish(facts)


class KnowledgeDeriver:
    """Derives facts of nodes of one program of networks."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: list[SourceFacts] = []
        self.growths: list[Growth] = []
        self._numbers: dict[str, int] = {}
        self._views: dict[str, Facts] = {}
        self._moves: dict[tuple[int, tuple[int, ...]], int] = {}

    def of(self, node: Node) -> Facts:
        """Return the facts of a node."""
        return node.knows(self)

    def named(self, name: str) -> Facts:
        """Return the facts of a relation, without the hidden column of streams."""
        from whence.plan.streams.model import Stream, has_at, with_at

        if name in self.program.tables:
            table = self.program.tables[name]
            if table.stream is None:
                return self.of(Scan(table.schema, name))
            return self.without_at(self.of(Stream(with_at(table.schema), name)))
        view = self.program.views[name]
        found = self.of(Ref(view.query.schema, name))
        return self.without_at(found) if has_at(view.query.schema) else found

    # -- sources and growths -----------------------------------------------------------------------------------------

    @property
    def never(self) -> int:
        """The source that anything may come from at any time."""
        return self._source("", lambda: _NEVER)

    def _source(self, name: str, make: Callable[[], SourceFacts]) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.sources)
            self.sources.append(make())
        return self._numbers[name]

    def growth(
        self,
        columns: Sequence[int],
        rows: Iterable[Described],
        arguments: Sequence[int | None] = (),
        new: Callable[[Described], tuple[int, ...] | None] = lambda row: None,
        tests: Sequence[KeyTest] = (),
    ) -> int:
        """Add a growth: these rows, by the columns that say which row is meant; `arguments` are columns to bound."""
        branches = tuple(
            Branch(
                row.bases,
                tuple(row.columns[column] for column in columns),
                row.where,
                tuple(None if column is None else row.columns[column] for column in arguments),
                row.single,
                new(row),
            )
            for row in rows
        )
        self.growths.append(Growth(tuple(columns), branches, tuple(tests)))
        return len(self.growths) - 1

    def _moved_growth(self, growth: int, place: dict[int, int]) -> int:
        """Return a growth for rows whose columns stand at other places."""
        columns = tuple(place[column] for column in self.growths[growth].columns)
        key = (growth, columns)
        if key not in self._moves:
            self.growths.append(msgspec.structs.replace(self.growths[growth], columns=columns))
            self._moves[key] = len(self.growths) - 1
        return self._moves[key]

    def moved(self, cell: Cell, place: dict[int, int], by: dict[int, int] | None = None) -> Cell:
        """Return a cell of a row whose columns stand at other places; `by` says so of those that growths go by."""
        keys = place if by is None else by
        term = moved_term(cell.term, lambda column: place[column], lambda growth: self._moved_growth(growth, keys))
        return replace(cell, term=term)

    def needed(self, facts: Facts, cells: Iterable[Cell]) -> set[int]:
        """Return the columns that some cells, the presence and the key of rows read."""
        if facts.is_settled:
            return set()
        found = set(facts.key or ())
        for cell in (*cells, *facts.presence):
            found |= columns_in(cell.term)
            for growth in growths_in(cell.term):
                found.update(self.growths[growth].columns)
        return found

    def decided_by(self, cell: Cell) -> set[int]:
        """Return the columns of a row that a condition goes by: rows that agree in them agree in what becomes of it."""
        found = {part.index for part in walk(cell.term) if isinstance(part, Shown)}
        return found.union(*(self.growths[growth].columns for growth in growths_in(cell.term)))

    def picked(self, facts: Facts, order: Sequence[int], plan: Node, width: int) -> Facts:
        """Return facts for a plan that has these columns of the former one, in this order."""
        place: dict[int, int] = {}
        for at, column in enumerate(order):
            place.setdefault(column, at)
        rows = tuple(replace(row, columns=tuple(row.columns[c] for c in order)) for row in facts.rows)
        cells = tuple(
            Cell(Shown(facts.cells[c].term.type, at), "still", facts.cells[c].domain)
            if facts.cells[c].direction == "still"
            else self.moved(facts.cells[c], place)
            for at, c in enumerate(order)
        )
        presence = tuple(self.moved(cell, place) for cell in facts.presence)
        key = None if facts.key is None or not set(facts.key) <= place.keys() else tuple(place[c] for c in facts.key)
        merged = tuple(tuple(place[c] for c in each) for each in facts.merged if set(each) <= place.keys())
        return Facts(plan, width, cells, rows, presence, key, merged)  # type: ignore[arg-type]  # three of each

    def without_at(self, facts: Facts) -> Facts:
        """Return the facts of a stream without its hidden column."""
        width = facts.width - 1
        plan = facts.plan if len(facts.plan.schema) == width else _first_columns(facts.plan, width)
        return self.picked(facts, range(width), plan, width)

    # -- leaves ------------------------------------------------------------------------------------------------------

    def constant(self, node: Values) -> Facts:
        """Return the facts of rows that are always there."""
        return Facts(node, len(node.schema), shown(node.schema.types), (unknown_row(node.schema.types, ()),))

    def table(self, node: Scan) -> Facts:
        """Return the facts of a table: any of its rows may change or go, only keys stay what they are."""
        types, table = node.schema.types, self.program.tables.get(node.table)
        key = () if table is None else table.key
        rows = (unknown_row(types, (self.never,)),)
        growth = self.growth((), rows)
        cells = tuple(
            Cell(Shown(str(type), i)) if i in key else Cell(Growing(str(type), i, "asof", growth), "any")
            for i, type in enumerate(types)
        )
        presence = (Cell(Doubt("BOOLEAN", growth), "any"),)
        return Facts(node, len(types), cells, rows, presence, tuple(key) or None)

    def stream(self, node: Stream) -> Facts:
        """Return the facts of a stream: rows only come, as far as it promises not."""
        table = self.program.tables.get(node.stream)
        types = [str(type) for type in node.schema.types]
        if table is None:
            return Facts(node, len(types), shown(types), (unknown_row(types, (self.never,)),))
        number = self._source(node.stream, lambda: source_facts(table))
        source = self.sources[number]
        known = source.columns
        columns = [Variable(type, 0, i) for i, type in enumerate(types[: len(known)])]
        rows = Described((number,), (*columns, *(unknown(type) for type in types[len(known) :])), (), single=True)
        places = {(0, i): column_bounds(column) for i, column in enumerate(known)}
        narrow_by_checks(places, source)
        domains = [*places.values(), *[ANYTHING] * (len(types) - len(known))]
        cells = tuple(Cell(Shown(t, i), "still", d) for i, (t, d) in enumerate(zip(types, domains, strict=True)))
        return Facts(node, len(types), cells, (rows,))

    def view(self, node: Ref) -> Facts:
        """Return the facts of a view, which stands for its own plan where its bounds need more columns."""
        if node.view not in self.program.views:
            return self.unsure(node)
        if node.view not in self._views:
            self._views |= self._component(node.view)
        facts = self._views[node.view]
        return facts if len(facts.cells) > facts.width else replace(facts, plan=node)

    # -- recursion ---------------------------------------------------------------------------------------------------

    @cached_property
    def _members(self) -> dict[str, list[str]]:
        """The views that are recursive, each with those of its component."""
        views = self.program.views
        graph = {name: sorted(references(view) & views.keys()) for name, view in views.items()}
        found: dict[str, list[str]] = {}
        for members in strongly_connected(graph):
            if len(members) > 1 or members[0] in graph[members[0]]:
                found |= dict.fromkeys(members, members)
        return found

    def _component(self, name: str) -> dict[str, Facts]:
        views = self.program.views
        if name not in self._members:
            return {name: self.of(views[name].query)}
        members = self._members[name]
        directions = {m: ["still"] * len(views[m].query.schema) for m in members}
        comes, keys = dict.fromkeys(members, True), dict[str, tuple[int, ...] | None]()
        while True:
            assumed = {m: self._assumed(m, directions[m], comes[m]) for m in members}
            self._views |= assumed
            weaker = False
            for member in members:
                found = self.of(views[member].query)
                now: list[Direction] = [
                    together([before, cell.direction])  # type: ignore[list-item]  # directions, as they began
                    for before, cell in zip(directions[member], found.cells, strict=False)
                ]
                stays = comes[member] and found.only_comes
                weaker |= now != directions[member] or stays != comes[member]
                directions[member], comes[member] = list(now), stays
                keys[member] = found.key if set(found.key or ()) <= set(range(found.width)) else None
            if not weaker:
                return {m: replace(assumed[m], key=keys[m]) for m in members}

    def _assumed(self, name: str, directions: Sequence[str], comes: bool) -> Facts:
        schema = self.program.views[name].query.schema
        rows = (unknown_row(schema.types, (self.never,)),)
        growth = self.growth((), rows)
        functions: dict[str, Function] = {"up": "up", "down": "down"}
        cells = tuple(
            Cell(Shown(str(type), i))
            if way == "still"
            else Cell(Growing(str(type), i, functions.get(way, "asof"), growth), way)  # type: ignore[arg-type]
            for i, (type, way) in enumerate(zip(schema.types, directions, strict=True))
        )
        presence = () if comes else (Cell(Doubt("BOOLEAN", growth), "any"),)
        return Facts(Ref(schema, name), len(schema), cells, rows, presence)

    # -- nodes of rows -----------------------------------------------------------------------------------------------

    def unsure(self, node: Node) -> Facts:
        """Return the facts of a node of which nothing is known but what it reads: its rows come and go."""
        types = node.schema.types
        below = [self.of(child) for child in node.inputs]
        rows = [unknown_row(types, row.bases) for facts in below for row in facts.rows]
        if not node.inputs:
            rows.append(unknown_row(types, (self.never,)))
        return self._unsettled(node, tuple(dict.fromkeys(rows)), ())

    def restless(self, node: Node) -> Facts:
        """Return the facts of rows that come and go with time alone."""
        return self._unsettled(node, (unknown_row(node.schema.types, (self.never,)),), ())

    def _unsettled(self, node: Node, rows: tuple[Described, ...], key: tuple[int, ...]) -> Facts:
        growth = self.growth(key, rows)
        cells = tuple(
            Cell(Shown(str(type), i)) if i in key else Cell(Growing(str(type), i, "asof", growth), "any")
            for i, type in enumerate(node.schema.types)
        )
        return Facts(node, len(cells), cells, rows, (Cell(Doubt("BOOLEAN", growth), "any"),), key or None)

    def flowing(self, node: Node, delayed: bool = False) -> Facts:
        """Return the facts of a node that makes a stream: its rows are never taken back. With `delayed` they may come
        without a new row of a source."""
        types = node.schema.types
        if delayed:
            return Facts(node, len(types), shown(types), (unknown_row(types, (self.never,)),))
        made = []
        for side, child in enumerate(node.inputs):
            for row in self.of(child).rows:
                origins = [node.origin(side, column) for column in range(len(types))]
                columns = [unknown(t) if o is None else row.columns[o] for t, o in zip(types, origins, strict=True)]
                made.append(replace(row, columns=tuple(columns)))
        return Facts(node, len(types), shown(types), tuple(made))

    def looked_up(self, node: Lookup) -> Facts:
        """Return the facts of a stream whose rows meet a relation when they come."""
        facts = self.flowing(_over_stream(node))
        many = node.kind in ("inner", "left")
        return replace(facts, plan=node, rows=tuple(replace(r, single=r.single and not many) for r in facts.rows))

    def related(self, node: StreamToRelation) -> Facts:
        """Return the facts of all rows of a stream so far."""
        facts = self.of(node.input)
        return self.picked(facts, range(len(node.schema)), node, len(node.schema))

    # -- nodes that modules of their own are about ------------------------------------------------------------------

    def multiplied(self, node: Lateral) -> Facts:
        return rowwise.lateral_facts(self, node)

    def selected(self, node: Select) -> Facts:
        return rowwise.select_facts(self, node)

    def projected(self, node: Project) -> Facts:
        return rowwise.project_facts(self, node)

    def united(self, node: Node) -> Facts:
        return rowwise.union_facts(self, node)

    def cut(self, node: TopK) -> Facts:
        return rowwise.topk_facts(self, node)

    def compared(self, node: Node) -> Facts:
        return rowwise.set_facts(self, node)

    def grouped(self, node: Aggregate) -> Facts:
        return group_facts(self, node)

    def joined(self, node: Join) -> Facts:
        return join_facts(self, node)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, facts: Facts) -> AugmentedPlan:
        """Return the knowledge of a relation, with only the columns, growths and sources that it needs."""
        whole = self.growth(facts.identity, facts.rows)
        width = facts.width
        needed = self.needed(facts, facts.cells[:width])
        extras = sorted(column for column in needed if column >= width)
        order = [*range(width), *extras]
        plan = facts.plan
        if len(order) < len(facts.cells):
            plan = reordered(plan, order)
        place = {column: at for at, column in enumerate(order)}
        final = self.picked(facts, order, plan, width)
        if not set(facts.identity) <= place.keys():
            whole = self.growth([c for c in facts.identity if c in place], facts.rows)
        whole = self._moved_growth(whole, place)
        terms = [cell.term for cell in (*final.cells[:width], *final.presence)]
        used = sorted({growth for term in terms for growth in growths_in(term)} | {whole})
        number = {growth: at for at, growth in enumerate(used)}

        def renumbered(term: Term) -> Term:
            return moved_term(term, lambda column: column, lambda growth: number[growth])

        plan = _with_names(plan, width)
        schema = plan.schema
        knowledge = RelationKnowledge(
            columns=schema.names[:width],
            cells=tuple(renumbered(cell.term) for cell in final.cells[:width]),
            presence=tuple(renumbered(cell.term) for cell in final.presence),
            key=tuple(c for c in final.key if c < width) if final.key is not None else _all_still(final),
            growth=number[whole],
            growths=tuple(self.growths[growth] for growth in used),
            sources=tuple(self.sources),
            returns=any(cell.direction == "any" for cell in final.presence),
            text=(),
            extras=tuple((column.name, str(column.type)) for column in schema.columns[width:]),
        )
        described = describe_cells(knowledge, [cell.direction for cell in final.cells[:width]], final.only_comes)
        return AugmentedPlan(plan, msgspec.structs.replace(knowledge, text=described))


# -- helpers ---------------------------------------------------------------------------------------------------------


def _all_still(facts: Facts) -> tuple[int, ...]:
    """Return all columns that are shown, if they do not change; else none."""
    return tuple(range(facts.width)) if facts.is_still else ()


def _with_names(plan: Node, width: int) -> Node:
    """Return a plan whose columns behind the shown ones have names of their own."""
    shown_columns, behind = plan.schema.columns[:width], plan.schema.columns[width:]
    if not behind:
        return plan
    named = tuple(replace(column, name=f"${number}") for number, column in enumerate(behind))
    return relabel(plan, Schema((*shown_columns, *named)))


def _first_columns(plan: Node, width: int) -> Node:
    return reordered(plan, range(width))


def _over_stream(node: Lookup) -> Node:
    """Return a look-up as a node over the stream alone."""
    return _LookedUp(node.schema, node)


@dataclass(frozen=True)
class _LookedUp(Node):
    """A look-up, as far as its rows come from the stream."""

    lookup: Lookup

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.lookup.input,)

    def origin(self, side: int, column: int) -> int | None:
        return self.lookup.origin(0, column)
