"""Which part of the views above is asked of each source: columns, rows, key sets, bounds, and what may be quenched.

Every place in which a plan reads a source is a **use** of it. From the source upwards a use is **linear** as long as
each row above is made of one row of the source (selections, projections, joins that keep its rows). The linear part
says what the use needs of a row:

| of a use      | what it says |
|---------------|-----------------|
| `columns`     | the columns that it reads |
| `predicate`   | a condition over the source's own columns, without which a row makes nothing |
| `keys`        | columns whose values must be among those of another relation: the buy list, places near me |
| `decides`     | the columns that its conditions read; `live` is the plan of the primary keys for which they hold |
| `best`        | if it ends in ORDER BY a column LIMIT k: rows beyond the k best are not seen |

A source is asked for the union over all uses (`SourceNeeds`): what one view can do without still comes for another.

The law: every view over the rows that a `SourceNeeds` lets through equals the view over all rows, provided that
  - rows pass for which the filter is true, and whose key column is among the values of the key plan;
  - for each use, the columns that decide are current in every row, and all its columns are in the rows that are live;
  - a bound is no tighter than leaves each use its k rows, or there are no rows beyond it.
Keeping it so while relations change is `runtime/sources/curiosity.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from whence.model.types import BOOLEAN, Column, Schema
from whence.plan.algebra.constructors import columns, distinct, project
from whence.plan.algebra.expressions import Call, Expr, columns_of
from whence.plan.algebra.logical import Node, Scan, Union, Values, walk
from whence.plan.algebra.pinned import pinned
from whence.plan.algebra.program import Program, Table
from whence.plan.rewrite import optimize
from whence.plan.streams.model import Stream
from whence.subscribe.source_needs import KeyRule, LiveRule, SourceNeeds, SourceUse
from whence.subscribe.source_uses import names_under, use_of

_MOST_TERMS = 50  # uses whose conditions are told apart in a filter


def curiosity(program: Program, sources: Collection[str], whole: Collection[str] = ()) -> dict[str, SourceNeeds]:
    """Return what each source is asked for, so that all views of a program, as it runs, have what they can use.

    `whole` names sources of which all rows are needed: they are subscribed to themselves. A source that no view reads
    is asked for everything, for whoever queries it."""
    uses: dict[str, list[SourceUse]] = {name: [] for name in sources}
    for view in program.views.values():
        if not any(name in uses for node in walk(view.query) for name in node.names):
            continue
        query = optimize(view.query)
        for path in _paths(query, uses):
            source = path[0].names[0]
            uses[source].append(use_of(path, view.name, program))
        for name in _fetched(query, uses):  # kept rows that an operator looks up beside its inputs
            uses[name].append(SourceUse(view.name, frozenset(range(len(program.tables[name].schema)))))
    asked: dict[str, SourceNeeds] = {}
    depends: dict[str, set[str]] = {}

    def preference(name: str) -> tuple[bool, int, str]:
        table = program.tables[name]
        return table.stream is None, -len(table.schema), name

    for name in sorted(sources, key=preference):
        table = program.tables[name]
        if name in whole or not uses[name]:
            asked[name] = SourceNeeds(table, tuple(range(len(table.schema))), readers=tuple(_readers(uses[name])))
        else:
            asked[name] = _union(table, uses[name], program, sources, depends)
    return {name: asked[name] for name in sources}


def _readers(uses: Sequence[SourceUse]) -> list[str]:
    return list(dict.fromkeys(use.reader for use in uses))


def _fetched(query: Node, names: Collection[str]) -> list[str]:
    return [name for node in walk(query) for name in node.fetches if name in names]


def _paths(node: Node, sources: Collection[str], above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """Yield, for each leaf that is a source, the nodes from there to the root."""
    if isinstance(node, (Scan, Stream)) and node.names[0] in sources:
        yield (node, *above)
    for child in node.inputs:
        yield from _paths(child, sources, (node, *above))


def _union(
    table: Table,
    uses: Sequence[SourceUse],
    program: Program,
    sources: Collection[str],
    depends: dict[str, set[str]],
) -> SourceNeeds:
    """Return what all uses of a source need together; `depends` says which sources decide about which, so far."""
    needed = frozenset(_always(table)).union(*(use.columns for use in uses))
    shown = tuple(sorted(needed)) or (0,)
    ask = SourceNeeds(table, shown, _any_of([use.predicate for use in uses]), readers=tuple(_readers(uses)))
    for rule in _common_keys(table, uses):
        deciding = {name for name in names_under(rule.values, program) if name in sources}
        if not any(_reaches(name, table.name, depends) for name in deciding):
            depends.setdefault(table.name, set()).update(deciding)
            ask = replace(ask, key=rule)
            break
    best = [use.best for use in uses]
    rules = [rule for rule in best if rule is not None]
    if len(rules) == len(best) and len({(rule.column, rule.descending) for rule in rules}) == 1:
        ask = replace(ask, best=tuple(dict.fromkeys(rules)))
    return _with_quench(ask, uses)


def _always(table: Table) -> set[int]:
    """Return the columns that are asked for in any case: by which rows are told apart, and by which time passes."""
    found, ordered = set(table.key), table.promises.ordered
    if ordered is not None:
        found.add(ordered.column)
    if table.tick is not None:
        found.add(table.tick)
    return found


def _with_quench(ask: SourceNeeds, uses: Sequence[SourceUse]) -> SourceNeeds:
    """Add which columns may be left out for which keys, over all uses."""
    if not ask.table.key or ask.table.stream is not None:
        return ask
    watched, live, readers = set(ask.table.key), dict[Node, frozenset[int]](), dict[Node, list[str]]()
    if ask.key is not None:
        watched |= set(ask.key.columns)
    watched |= {rule.column for rule in ask.best}
    if ask.filter is not None:
        watched |= columns_of(ask.filter)
    for use in uses:
        watched |= use.decides if use.live is not None else use.columns
        if use.live is not None:
            live[use.live] = live.get(use.live, frozenset()) | use.columns
            readers.setdefault(use.live, []).append(use.reader)
    rules = tuple(
        LiveRule(node, reads, tuple(dict.fromkeys(readers[node]))) for node, reads in live.items() if reads - watched
    )
    return replace(ask, watched=frozenset(watched), live=rules) if rules else ask


def _reaches(start: str, goal: str, depends: Mapping[str, set[str]]) -> bool:
    seen, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(depends.get(name, ()))
    return False


def _any_of(predicates: Sequence[Expr | None]) -> Expr | None:
    """Return a condition that is true where one of some is; None if one of them is always true."""
    terms = list(dict.fromkeys(term for term in predicates if term is not None))
    if None in predicates or not terms or len(terms) > _MOST_TERMS:
        return None
    return terms[0] if len(terms) == 1 else Call(BOOLEAN, "or", tuple(terms))


def _common_keys(table: Table, uses: Sequence[SourceUse]) -> list[KeyRule]:
    """Return, for the columns that all uses restrict together, the values that one of them wants: plans of other
    relations, and constants of conditions. More columns come first: they leave more out."""
    found = []
    restricted = {rule.columns for use in uses for rule in use.keys}
    for chosen in sorted(restricted, key=lambda columns: (-len(columns), columns)):
        plans: list[Node] = []
        for use in uses:
            own = next((rule.values for rule in use.keys if rule.columns == chosen), None) or _constants(use, chosen)
            if own is None:
                break
            plans.append(own)
        else:
            shape = Schema(tuple(Column(table.schema.names[c], table.schema.types[c]) for c in chosen))
            alike = tuple(dict.fromkeys(project(plan, columns(plan), shape.names) for plan in plans))
            union = alike[0] if len(alike) == 1 else Union(shape, alike)
            found.append(KeyRule(chosen, distinct(union)))
    return found


def _constants(use: SourceUse, chosen: tuple[int, ...]) -> Node | None:
    keys = pinned(use.predicate) if use.predicate is not None else None
    if keys is None or keys.cols != chosen or not keys.values:
        return None
    schema = Schema(tuple(Column(f"value{at}", value.type) for at, value in enumerate(keys.values[0])))
    return Values(schema, tuple(tuple(value.value for value in row) for row in keys.values))
