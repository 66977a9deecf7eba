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

from whence.model.types import BOOLEAN, Column, Schema
from whence.plan.algebra.constructors import columns as own_columns
from whence.plan.algebra.constructors import join_schema
from whence.plan.algebra.expressions import Col, Expr, conjuncts, is_volatile, substitute
from whence.plan.algebra.logical import (
    Agg,
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    Values,
)
from whence.plan.algebra.program import Program, Table
from whence.plan.knowledge.bounds import ANYTHING, Bounds
from whence.plan.knowledge.describe import describe_cells
from whence.plan.knowledge.facts import Cell, Described, Facts, shown, unknown_row
from whence.plan.knowledge.model import (
    Branch,
    Doubt,
    Function,
    Growing,
    Growth,
    Operation,
    Padded,
    RelationKnowledge,
    Shown,
    SourceColumn,
    SourceFacts,
    Term,
    Variable,
    plain_constant,
)
from whence.plan.knowledge.terms import (
    Direction,
    bound,
    column_bounds,
    columns_in,
    direction_of,
    growths_in,
    moved,
    to_term,
    together,
    unknown,
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
        self.growths.append(Growth(tuple(columns), branches))
        return len(self.growths) - 1

    def _moved_growth(self, growth: int, place: dict[int, int]) -> int:
        """Return a growth for rows whose columns stand at other places."""
        columns = tuple(place[column] for column in self.growths[growth].columns)
        key = (growth, columns)
        if key not in self._moves:
            self.growths.append(Growth(columns, self.growths[growth].branches))
            self._moves[key] = len(self.growths) - 1
        return self._moves[key]

    def _moved(self, cell: Cell, place: dict[int, int]) -> Cell:
        term = moved(cell.term, lambda column: place[column], lambda growth: self._moved_growth(growth, place))
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

    def picked(self, facts: Facts, order: Sequence[int], plan: Node, width: int) -> Facts:
        """Return facts for a plan that has these columns of the former one, in this order."""
        place: dict[int, int] = {}
        for at, column in enumerate(order):
            place.setdefault(column, at)
        rows = tuple(replace(row, columns=tuple(row.columns[c] for c in order)) for row in facts.rows)
        cells = tuple(
            Cell(Shown(facts.cells[c].term.type, at), "still", facts.cells[c].domain)
            if facts.cells[c].direction == "still"
            else self._moved(facts.cells[c], place)
            for at, c in enumerate(order)
        )
        presence = tuple(self._moved(cell, place) for cell in facts.presence)
        key = None if facts.key is None or not set(facts.key) <= place.keys() else tuple(place[c] for c in facts.key)
        return Facts(plan, width, cells, rows, presence, key)

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
        number = self._source(node.stream, lambda: _source_facts(table))
        known = self.sources[number].columns
        columns = [Variable(type, 0, i) for i, type in enumerate(types[: len(known)])]
        rows = Described((number,), (*columns, *(unknown(type) for type in types[len(known) :])), (), single=True)
        domains = [column_bounds(column) for column in known] + [ANYTHING] * (len(types) - len(known))
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

    def multiplied(self, node: Lateral) -> Facts:
        """Return the facts of rows with the rows that a function makes of each."""
        facts = self.of(node.input)
        if not facts.is_settled:
            return self.unsure(node)
        below, types = facts.width, node.schema.types
        rows = tuple(
            replace(row, columns=(*row.columns[:below], *map(unknown, types[below:])), single=False)
            for row in facts.rows
        )
        return Facts(node, len(types), facts.cells + shown(types)[below:], rows)

    def selected(self, node: Select) -> Facts:
        """Return the facts of rows for which a predicate is true."""
        facts = self.of(node.input)
        where, presence = list[Expr](), list(facts.presence)
        terms = [cell.term for cell in facts.cells]
        for term in conjuncts(node.predicate):
            direction = direction_of(term, facts.directions, facts.domains)
            if direction != "still":
                presence.append(Cell(to_term(term, terms), direction))
            where.append(term)
        rows = tuple(
            replace(row, where=row.where + tuple(to_term(term, row.columns) for term in where)) for row in facts.rows
        )
        plan = node if facts.plan is node.input else Select(facts.plan.schema, facts.plan, node.predicate)
        return replace(facts, plan=plan, rows=rows, presence=tuple(presence))

    def projected(self, node: Project) -> Facts:
        """Return the facts of expressions of rows, with the columns behind them that they need."""
        facts = self.of(node.input)
        width = len(node.exprs)
        directions = [
            "any" if is_volatile(expr) and not facts.is_settled else direction_of(expr, facts.directions, facts.domains)
            for expr in node.exprs
        ]
        place: dict[int, int] = {}
        for at, expr in enumerate(node.exprs):
            if isinstance(expr, Col):
                place.setdefault(expr.index, at)
        below = [cell.term for cell in facts.cells]
        computed = [
            Cell(to_term(expr, below), way, bound(to_term(expr, _domains(facts)), lambda _: ANYTHING))
            for expr, way in zip(node.exprs, directions, strict=True)
        ]
        moving = [cell for cell in computed if cell.direction != "still"]
        extras = sorted(self.needed(facts, moving) - place.keys())
        for at, column in enumerate(extras):
            place[column] = width + at
        cells = [
            Cell(Shown(str(expr.type), at), "still", cell.domain)
            if cell.direction == "still"
            else self._moved(cell, place)
            for at, (expr, cell) in enumerate(zip(node.exprs, computed, strict=True))
        ]
        cells += [self._moved(facts.cells[column], place) for column in extras]
        rows = tuple(
            replace(
                row,
                columns=(*(to_term(e, row.columns) for e in node.exprs), *(row.columns[column] for column in extras)),
            )
            for row in facts.rows
        )
        presence = tuple(self._moved(cell, place) for cell in facts.presence)
        key = None if facts.key is None or not set(facts.key) <= place.keys() else tuple(place[c] for c in facts.key)
        plan: Node = node
        if extras or facts.plan is not node.input:
            behind = tuple(_extra(facts.plan.schema.columns[column], column) for column in extras)
            exprs = (*node.exprs, *(Col(facts.plan.schema.types[column], column) for column in extras))
            plan = Project(Schema((*node.schema.columns, *behind)), facts.plan, exprs)
        return Facts(plan, width, tuple(cells), rows, presence, key)

    # -- whole rows --------------------------------------------------------------------------------------------------

    def united(self, node: Node) -> Facts:
        """Return the facts of all rows of all branches: each row changes as it does in its own."""
        below = [self.of(child) for child in node.inputs]
        width = len(node.schema)
        rows = tuple(replace(row, columns=row.columns[:width]) for facts in below for row in facts.rows)
        ways: list[Direction] = [together([facts.cells[c].direction for facts in below]) for c in range(width)]
        domains = [_hull([facts.cells[c].domain for facts in below]) for c in range(width)]
        growth = self.growth([c for c in range(width) if ways[c] == "still"], rows)
        presence = together([cell.direction for facts in below for cell in facts.presence])
        return self._by_direction(node, ways, domains, rows, growth, presence)

    def _by_direction(
        self,
        node: Node,
        ways: Sequence[Direction],
        domains: Sequence[Bounds],
        rows: tuple[Described, ...],
        growth: int,
        presence: Direction,
    ) -> Facts:
        functions: dict[Direction, Function] = {"up": "up", "down": "down", "any": "asof"}
        cells = tuple(
            Cell(Shown(str(type), i), "still", domain)
            if way == "still"
            else Cell(Growing(str(type), i, functions[way], growth), way, domain)
            for i, (type, way, domain) in enumerate(zip(node.schema.types, ways, domains, strict=True))
        )
        stays = () if presence in ("still", "up") else (Cell(Doubt("BOOLEAN", growth), presence),)
        return Facts(node, len(cells), cells, rows, stays)

    def compared(self, node: Node) -> Facts:
        """Return the facts of a node whose rows depend on equal rows of its inputs only: DISTINCT, INTERSECT,
        EXCEPT."""
        below = [self.of(child) for child in node.inputs]
        if not all(facts.is_still for facts in below):
            return self.unsure(node)
        width = len(node.schema)
        rows = tuple(replace(r, columns=r.columns[:width]) for facts in below for r in facts.rows)
        refusing = [side for side in range(len(below)) if node.refuses_recursion(side) is not None]
        # If more rows of one input only mean fewer here, a row that went stays away; if of all, nothing is known.
        ways: list[Direction] = ["down" if len(refusing) < len(below) else "any"] if refusing else []
        ways += ["any" for facts in below if not facts.only_comes]
        growth = self.growth(range(width), rows)
        domains = [_hull([facts.cells[c].domain for facts in below]) for c in range(width)]
        found = self._by_direction(node, ["still"] * width, domains, rows, growth, together(ways))
        return replace(found, key=tuple(range(width)) if isinstance(node, Distinct) else None)

    # -- groups ------------------------------------------------------------------------------------------------------

    def grouped(self, node: Aggregate) -> Facts:
        """Return the facts of groups."""
        below = node.input
        if isinstance(below, Distinct) and all(agg.function in ("min", "max") for agg in node.aggs):
            below = below.input  # each once or more often: the same best
        facts = self.of(below)
        width, types = len(node.keys), [str(type) for type in node.schema.types]
        certain = facts.only_comes and facts.are_still(node.keys)
        arguments = [agg.column for agg in node.aggs]
        rows = [replace(row, columns=(*(row.columns[k] for k in node.keys), *row.columns)) for row in facts.rows]
        growth = self.growth(range(width), rows, [None if a is None else a + width for a in arguments])
        cells = [Cell(Shown(types[i], i), "still", facts.cells[k].domain) for i, k in enumerate(node.keys)]
        for number, agg in enumerate(node.aggs):
            function, way = _kind_of(agg, facts) if certain else ("asof", "any")
            at, domain = width + number, self._domain(agg, facts, bool(node.keys))
            if types[at] == "INTERVAL" and function in ("min", "max", "up", "down"):
                function, way = "asof", "any"  # intervals compare by their spans, not by their parts
            index = None if agg.column is None else number
            cells.append(Cell(Growing(types[at], at, function, growth, index), way, domain))
        made = tuple(
            Described(
                row.bases,
                (*row.columns[:width], *(unknown(cell.term.type, cell.domain) for cell in cells[width:])),
                row.where,
            )
            for row in rows
        )
        if not node.keys:
            made += (unknown_row(types, ()),)
        presence = () if certain or not node.keys else (Cell(Doubt("BOOLEAN", growth), "any"),)
        return Facts(node, len(types), tuple(cells), made, presence, tuple(range(width)))

    def _domain(self, agg: Agg, facts: Facts, keyed: bool) -> Bounds:
        """Return what an aggregate is whatever the rows are."""
        if agg.function == "count":
            return Bounds(int(keyed and agg.column is None), None, null=False)
        if agg.column is None:
            return ANYTHING
        argument = facts.cells[agg.column].domain
        if agg.function in ("min", "max", "first", "last"):
            return argument.or_null()
        if agg.function == "sum" and argument.some:
            low = argument.low if argument.low is not None and argument.low >= 0 else None
            high = argument.high if argument.high is not None and argument.high <= 0 else None
            return Bounds(low, high)
        return ANYTHING

    # -- joins -------------------------------------------------------------------------------------------------------

    def joined(self, node: Join) -> Facts:
        """Return the facts of a join."""
        if node.kind in ("right", "full"):
            return self.unsure(node)
        left, right = self.of(node.left), self.of(node.right)
        if node.kind == "left" and not self._is_optional(node, right):
            return self.unsure(node)
        if node.kind not in ("inner", "left"):
            right = replace(right, plan=node.right, cells=right.cells[: right.width])
        pairs = _Pairs(node, left, right)
        rows = pairs.rows()
        match node.kind:
            case "inner":
                return self._inner(pairs, rows)
            case "left":
                return self._left(pairs, rows)
        return self._existential(pairs, rows)

    def _is_optional(self, node: Join, right: Facts) -> bool:
        """Return whether each row of the left has at most one partner, the same one for good."""
        matched = {b for _, b in node.keys}
        return right.key is not None and set(right.key) <= matched and bool(node.keys) and right.only_comes

    def _inner(self, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
        left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
        shift = {c: c + by for c in range(len(right.cells))}
        cells = left.cells + tuple(self._moved(cell, shift) for cell in right.cells)
        presence = left.presence + tuple(self._moved(cell, shift) for cell in right.presence)
        presence += tuple(pairs.tests(cells))
        key = None if left.key is None or right.key is None else left.key + tuple(c + by for c in right.key)
        return self._shown_first(pairs, Facts(pairs.plan(), len(cells), cells, rows, presence, key))

    def _left(self, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
        left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
        types = [cell.term.type for cell in (*left.cells, *right.cells)]
        alone = tuple(Described(r.bases, r.columns + tuple(unknown(t) for t in types[by:]), r.where) for r in left.rows)
        if not (left.is_still or left.key is not None) or any(True for _ in pairs.tests(pairs.cells())):
            return self.unsure(pairs.node)
        growth = self.growth(left.identity, rows, new=pairs.right_bases)
        shift = {c: c + by for c in range(len(right.cells))}
        matched = by + pairs.node.keys[0][1]  # it is NULL if, and only if, there is no partner
        cells = list(left.cells)
        for cell in right.cells:
            own = self._moved(cell, shift)
            fresh = unknown(own.term.type, own.domain)
            way: Direction = cell.direction if cell.direction in ("up", "down") else "any"
            cells.append(Cell(Padded(own.term.type, matched, own.term, fresh, growth), way, own.domain.or_null()))
        facts = Facts(pairs.plan(), len(cells), tuple(cells), alone + rows, left.presence, left.key)
        return self._shown_first(pairs, facts)

    def _existential(self, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
        """Return the facts of rows of the left that have a partner, have none, or are told whether they have one."""
        node, left, right, by = pairs.node, pairs.left, pairs.right, len(pairs.left.cells)
        exact = right.only_comes and not any(True for _ in pairs.tests(pairs.cells()))
        growth = self.growth(left.identity, rows, new=pairs.right_bases)
        pairs_only = tuple(replace(row, columns=row.columns[:by]) for row in rows)
        wide = len(left.cells) > left.width
        plan = node if left.plan is node.left else _over_left(node, left.plan)
        if node.kind == "semi":
            doubt = () if exact else (Cell(Doubt("BOOLEAN", growth), "any"),)
            return replace(left, plan=plan, rows=pairs_only, presence=left.presence + doubt)
        everything = left.rows + pairs_only
        if node.kind == "anti":
            doubt = (Cell(Doubt("BOOLEAN", growth), "down" if exact else "any"),)
            return replace(left, plan=plan, rows=everything, presence=left.presence + doubt)
        mark = Cell(Growing("BOOLEAN", by, "up" if exact else "asof", growth), "up" if exact else "any")
        mark = replace(mark, domain=Bounds(False, True, null=False))
        marked = tuple(replace(row, columns=(*row.columns, unknown(BOOLEAN))) for row in everything)
        facts = Facts(plan, by + 1, (*left.cells, mark), marked, left.presence, left.key)
        if not wide:
            return facts
        order = [*range(left.width), by, *range(left.width, by)]
        return self.picked(facts, order, _reordered(plan, order), left.width + 1)

    def _shown_first(self, pairs: _Pairs, facts: Facts) -> Facts:
        """Return the facts of a join with the shown columns of both sides first."""
        left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
        width = left.width + right.width
        if len(facts.cells) == width:
            return replace(facts, width=width)
        order = [*range(left.width), *range(by, by + right.width)]
        order += [*range(left.width, by), *range(by + right.width, len(facts.cells))]
        return self.picked(facts, order, _reordered(facts.plan, order), width)

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
            plan = _reordered(plan, order)
        place = {column: at for at, column in enumerate(order)}
        final = self.picked(facts, order, plan, width)
        if not set(facts.identity) <= place.keys():
            whole = self.growth([c for c in facts.identity if c in place], facts.rows)
        whole = self._moved_growth(whole, place)
        terms = [cell.term for cell in (*final.cells[:width], *final.presence)]
        used = sorted({growth for term in terms for growth in growths_in(term)} | {whole})
        number = {growth: at for at, growth in enumerate(used)}

        def renumbered(term: Term) -> Term:
            return moved(term, lambda column: column, lambda growth: number[growth])

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


class _Pairs:
    """The pairs of rows of a join, over the columns of both plans side by side."""

    def __init__(self, node: Join, left: Facts, right: Facts) -> None:
        self.node, self.left, self.right = node, left, right
        self._split: dict[int, int] = {}

    def _place(self, column: int) -> int:
        """Return where a column that the residual reads stands."""
        return column if column < self.left.width else column - self.left.width + len(self.left.cells)

    def _residual(self) -> list[Expr]:
        return [substitute(term, lambda c: Col(c.type, self._place(c.index))) for term in conjuncts(self.node.residual)]

    def rows(self) -> tuple[Described, ...]:
        """Return what describes the pairs."""
        by, made = len(self.left.cells), list[Described]()
        if len(self.left.rows) * len(self.right.rows) > _MOST_BRANCHES:
            types = [cell.term.type for cell in (*self.left.cells, *self.right.cells)]
            bases = tuple(dict.fromkeys(base for f in (self.left, self.right) for r in f.rows for base in r.bases))
            return tuple(unknown_row(types, (base,)) for base in bases)
        for left in self.left.rows:
            for right in self.right.rows:
                both = left.beside(replace(right, columns=right.columns[: len(self.right.cells)]))
                equal = [Operation("BOOLEAN", "=", (both.columns[a], both.columns[by + b])) for a, b in self.node.keys]
                tests = [to_term(term, both.columns) for term in self._residual()]
                row = replace(both, where=(*both.where, *equal, *tests))
                self._split[id(row)] = len(left.bases)
                made.append(row)
        self._made = made  # ids stay theirs
        return tuple(made)

    def right_bases(self, row: Described) -> tuple[int, ...]:
        """Return the bases of a pair that are of the right; all, if that is not known."""
        return tuple(range(self._split.get(id(row), 0), len(row.bases)))

    def cells(self) -> list[Cell]:
        """Return the cells of both sides; their terms are those of either side."""
        return [*self.left.cells, *self.right.cells]

    def tests(self, cells: Sequence[Cell]) -> Iterable[Cell]:
        """Yield the conditions of the join that may change."""
        by = len(self.left.cells)
        for a, b in self.node.keys:
            if cells[a].direction != "still" or cells[by + b].direction != "still":
                yield Cell(Operation("BOOLEAN", "=", (cells[a].term, cells[by + b].term)), "any")
        directions, domains = [cell.direction for cell in cells], [cell.domain for cell in cells]
        for term in self._residual():
            way = direction_of(term, directions, domains)
            if way != "still":
                yield Cell(to_term(term, [cell.term for cell in cells]), way)

    def plan(self) -> Node:
        """Return the join of both plans."""
        node, left, right = self.node, self.left.plan, self.right.plan
        if left is node.left and right is node.right:
            return node
        residual = node.residual
        if residual is not None:
            residual = substitute(residual, lambda c: Col(c.type, self._place(c.index)))
        return Join(join_schema(left, right, node.kind), left, right, node.kind, node.keys, residual)


# -- helpers ---------------------------------------------------------------------------------------------------------


def _kind_of(agg: Agg, facts: Facts) -> tuple[Function, Direction]:
    """Return how an aggregate of rows that only come can change."""
    if agg.column is None:
        return ("count", "up") if agg.function == "count" else ("asof", "any")
    cell = facts.cells[agg.column]
    still, low, high = cell.direction == "still", cell.domain.low, cell.domain.high
    match agg.function:
        case "count" if still or (not cell.domain.null and not agg.distinct):
            return "count", "up"
        case "max" if still:
            return "max", "up"
        case "min" if still:
            return "min", "down"
        case "max" if cell.direction == "up":
            return "up", "up"
        case "min" if cell.direction == "down":
            return "down", "down"
        case "sum" if still:
            return "sum", "up" if low is not None and low >= 0 else "down" if high is not None and high <= 0 else "any"
        case "sum" if cell.direction == "up" and low is not None and low >= 0 and not agg.distinct:
            return "up", "up"
        case "sum" if cell.direction == "down" and high is not None and high <= 0 and not agg.distinct:
            return "down", "down"
        case "avg" if still:
            return "avg", "any"
    return "asof", "any"


def _source_facts(table: Table) -> SourceFacts:
    """Return what a stream promises."""
    columns = []
    for column in table.schema.columns:
        low, high = table.domain(column.name)
        columns.append(SourceColumn(str(column.type), plain_constant(low), plain_constant(high), column.nullable))
    ordered, closes = table.promises.ordered, table.promises.closes
    return SourceFacts(
        table.name,
        tuple(columns),
        None if ordered is None else ordered.column,
        "" if ordered is None else table.schema.names[ordered.column],
        ordered is not None and ordered.strictly,
        () if closes is None else closes.columns,
    )


def _all_still(facts: Facts) -> tuple[int, ...]:
    """Return all columns that are shown, if they do not change; else none."""
    return tuple(range(facts.width)) if facts.is_still else ()


def _domains(facts: Facts) -> list[Term]:
    return [unknown(cell.term.type, cell.domain) for cell in facts.cells]


def _hull(bounds: Sequence[Bounds]) -> Bounds:
    found = bounds[0] if bounds else ANYTHING
    for other in bounds[1:]:
        found = found.hull(other)
    return found


def _extra(column: Column, number: int) -> Column:
    return Column(f"${number}_{column.name}", column.type, column.nullable)


def _first_columns(plan: Node, width: int) -> Node:
    return _reordered(plan, range(width))


def _reordered(plan: Node, order: Sequence[int]) -> Node:
    own = own_columns(plan)
    return Project(Schema(tuple(plan.schema.columns[c] for c in order)), plan, tuple(own[c] for c in order))


def _over_left(node: Join, left: Node) -> Join:
    """Put a semi, anti or mark join over a left side that has more columns."""
    before, now = len(node.left.schema), len(left.schema)
    residual = node.residual
    if residual is not None:
        residual = substitute(residual, lambda c: c if c.index < before else Col(c.type, c.index - before + now))
    added = node.schema.columns[before:]
    return Join(Schema((*left.schema.columns, *added)), left, node.right, node.kind, node.keys, residual)


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
