"""Why a row is not in a view: what it lacks and what excludes it, level by level down to base rows.

A query is read as ways to its rows: sources side by side, tests over them, absences. A way without a match fails
because of one part, if it has matches without that part (`gaps.py`): a source that has no such row, which is explained
in turn; a test that is not true; rows that an absence forbids, which are there because of others. Where every part
alone is not enough, several rows are missing, and the first of them are named.

Goals are sets of rows, any of which would do. Through a recursive view they are followed to all of its rows that would
lead to the one that is asked for, so a row of `reachable` lacks a link from what is reached to what it is reached from.
Every goal is looked at once. The work is bounded: goals, combinations and rows are counted, not listed, beyond limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.explain.derive.body_matcher import BodyMatcher, pair_keys
from whence.explain.derive.extractor import Extractor
from whence.explain.derive.gaps import (
    UNKNOWN,
    Goals,
    Match,
    columns_over,
    find_classes,
    is_unknown,
    match_without,
    restrict_body,
)
from whence.explain.derive.graph_builder import LIMIT
from whence.explain.derive.grouped_query import peel_groups
from whence.explain.derive.parts import drop_duplicates, match_values
from whence.explain.derive.sql_text import write_expr, write_value
from whence.explain.derive.stream_tables import list_streams
from whence.explain.graph import Derivations
from whence.explain.missing import Exclusion, FailedWay, MissingRows, Row
from whence.model.codes import NULL, Codes, Dictionary, decode_value, encode_value
from whence.model.errors import WhenceError
from whence.model.types import Schema, Type
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, conjuncts
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    TopK,
    Union,
    Values,
)
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import Absence, Body, External, Flattener
from whence.plan.rewrite.fold_constants import fold

_WAYS = 8  # ways of a query that are looked at
_ROOM = 24  # goals that are explained
_DEPTH = 12  # levels
_FEW = 20  # rows that are named
_SHOWN = 4  # values that are there instead
_ROUNDS = 200  # of following a recursion
_GOALS = 2_000  # rows that a recursion is followed to
_EXCLUDING = 3  # rows that exclude another and are explained


def why_not(
    flow: Dataflow,
    program: Program,
    planned: Program,
    dictionary: Dictionary,
    name: str,
    given: Mapping[str, Any],
    limit: int = LIMIT,
) -> MissingRows:
    """Explain why a table or view has no row with the given values."""
    search = WhyNot(lambda: Extractor(flow, program, planned, dictionary, limit))
    known = program.tables.get(name) or program.views[name]
    goals = search.encode(given, known.schema)
    if name in program.tables:
        return search.explain(Scan(known.schema, name), goals)
    view = program.views[name]
    if streams := list_streams(view.query, program, planned):
        missing = search.describe(Ref(view.schema, name), goals)
        missing.note = f"there is no such row now; {name} is made of what comes in {', '.join(streams)}"
        return missing
    return search.explain(Ref(view.schema, name), goals)


@dataclass(frozen=True)
class Context:
    """What stands around a goal, from the row that was asked for on: whether its coming would bring that one about as
    long as nothing of `beside` is lost, and nothing of `absent` comes."""

    sound: bool = True
    beside: tuple[Node, ...] = ()
    absent: tuple[Node, ...] = ()


class WhyNot:
    """One question."""

    def __init__(self, extractor: Callable[[], Extractor]):
        self.new_extractor = extractor
        self.owner = extractor()
        self.query = self.owner.query
        self.unknown: dict[int, Any] = {}  # values that no row has, by the code they have here
        self.done: dict[object, set[tuple[int, ...]]] = {}  # goals that are explained, by relation and columns
        self.room = _ROOM

    # -- values ------------------------------------------------------------------------------------------------------

    def encode(self, given: Mapping[str, Any], schema: Schema) -> Goals:
        """Return the goal that has the given values."""
        codes = []
        given = dict(sorted(given.items(), key=lambda item: schema.names.index(item[0])))
        for column, value in given.items():
            kind, scratch = schema.types[schema.names.index(column)], Dictionary()
            code = scratch.translated(encode_value(value, kind, scratch), kind, self.owner.dictionary)
            if code is None:
                code = UNKNOWN - len(self.unknown)
                self.unknown[code] = value
            codes.append(code)
        return Goals(tuple(map(schema.names.index, given)), np.array([codes], np.int64).reshape(1, len(codes)))

    def decode(self, code: int, kind: Type) -> Any:
        return self.unknown[code] if code in self.unknown else decode_value(code, kind, self.owner.dictionary)

    def _written(self, code: int, kind: Type) -> str:
        return write_value(self.decode(code, kind))

    def rows_of(self, node: Node, goals: Goals) -> Codes:
        """Return the rows of a query that are among the goals."""
        known = ~np.array([is_unknown(row).any() for row in goals.values], bool)
        if not known.any():
            return np.empty((0, len(node.schema)), np.int64)
        parts = self.query.parts(node, Goals(goals.cols, goals.values[known]).wanted)
        return np.concatenate([p.rows for p in parts]) if parts else np.empty((0, len(node.schema)), np.int64)

    # -- goals -------------------------------------------------------------------------------------------------------

    def describe(self, node: Node, goals: Goals, where: str = "") -> MissingRows:
        """Name goals."""
        schema, few = node.schema, goals.values[:_FEW]
        every = _unique(schema.names)
        types, names = [schema.types[c] for c in goals.cols], [every[c] for c in goals.cols]
        rows: list[Row] = [
            {n: self.decode(c, t) for n, c, t in zip(names, row, types, strict=True)} for row in few.tolist()
        ]
        name = self.query.name_of(node)
        return MissingRows(name, isinstance(node, Scan), every, rows, len(goals.values), where)

    def explain(
        self, node: Node, goals: Goals, context: Context | None = None, where: str = "", depth: int = 0
    ) -> MissingRows:
        """Explain why a query has none of some rows."""
        context = context or Context()
        missing = self.describe(node, goals, where)
        if not where:
            missing.nearest = self._nearest(node, goals, missing.relation)
        if isinstance(node, Scan):
            if context.sound and not where:
                missing.sufficient = self._insertable(node, goals, context)
            return missing
        key = (node.view if isinstance(node, Ref) else node, goals.cols)
        done = self.done.setdefault(key, set())
        fresh = np.array([tuple(row) not in done for row in goals.values.tolist()], bool)
        if not fresh.any():
            missing.note = "see above"
            return missing
        if depth >= _DEPTH or self.room <= 0:
            missing.note = "not looked into any further: ask about this row"
            return missing
        self.room -= 1
        goals = replace(goals, values=goals.values[fresh])
        done.update(map(tuple, goals.values.tolist()))
        self._ways(node, goals, context, missing, depth)
        return missing

    def _nearest(self, node: Node, goals: Goals, name: str) -> list[str]:
        """Say what a table or view has instead of the goals: of each of their columns, with what it is there."""
        told, names, types = [], node.schema.names, node.schema.types
        if not len(goals.cols):
            return [f"{name} is empty"]
        if self._is_empty(node):
            return [f"{name} is empty"]
        if len(goals.cols) == 1:
            return []
        for at, c in enumerate(goals.cols):
            own = drop_duplicates(goals.values[:, [at]])
            rows = self.rows_of(node, Goals((c,), own))
            these = f"{names[c]} = {self._written(int(own[0, 0]), types[c])}" if len(own) == 1 else f"these {names[c]}"
            if not len(rows):
                told.append(f"{name} has no row with {these}")
                continue
            others = []
            for other in (o for o in goals.cols if o != c):
                values = drop_duplicates(rows[:, [other]])[:, 0]
                some = ", ".join(self._written(int(v), types[other]) for v in values[:_SHOWN])
                rest = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
                others.append(f"{names[other]} = {some}{rest}")
            told.append(f"{name} has {these} with {'; '.join(others)}")
        return told

    def _is_empty(self, node: Node) -> bool:
        """Return whether a table or view is known to have no row."""
        flow = self.owner.flow
        match node:
            case Scan():
                return not len(flow.tables[node.table].relation) if node.table in flow.tables else False
            case Ref():
                return node.view in flow.views and not flow.views[node.view].size
        return False

    # -- ways --------------------------------------------------------------------------------------------------------

    def _ways(self, node: Node, goals: Goals, context: Context, missing: MissingRows, depth: int) -> None:
        query = self.owner.program.views[node.view].query if isinstance(node, Ref) else node
        own = node.view if isinstance(node, Ref) else None
        if isinstance(query, TopK):
            if len(self.rows_of(query.input, goals)):
                missing.note = (
                    f"the row is there, but outside the first {query.limit} rows that {missing.relation} keeps"
                )
                return
            query, context = query.input, replace(context, sound=False)
        if isinstance(top := peel_groups(query, lambda name: None), tuple):
            inner = self._group(missing, node.schema, *top, goals)
            if inner is None:
                return
            aggregate, _, out = top
            context, goals = replace(context, sound=False), inner
            bodies = [self._over_keys(b, aggregate, out) for b in self._bodies(aggregate.input)]
        else:
            bodies = self._bodies(query)
        if bodies == [Body((External(query),), (), tuple(_columns(query)))] and not isinstance(query, (Scan, Ref)):
            missing.note = f"{missing.relation} is computed as a whole"
            return
        possible = [b for b in bodies if self._is_possible(b, goals)]
        bodies = possible or bodies
        goals, context = self._follow(own, bodies, goals, context, missing)
        for body in bodies[:_WAYS]:
            missing.ways.append(self._way(missing.relation, own, body, goals, context, node.schema, depth))
        if len(bodies) > _WAYS:
            missing.note = f"and {len(bodies) - _WAYS} more ways"

    def _bodies(self, node: Node) -> list[Body]:
        """Return the ways to the rows of a query, down to what has a name and what is computed as a whole."""
        views, is_recursive = self.owner.program.views, self.owner.is_recursive
        hidden = {name: v.query for name, v in views.items() if v.hidden and not is_recursive(name)}

        def opens(node: Node) -> bool:
            match node:
                case Ref():
                    return node.view in hidden
                case Values(rows=((),)) | Select() | Project() | Union() | Distinct() | Join() | SetOp(all=False):
                    return True
            return False

        found = Flattener(hidden, {}, opens=opens, for_rules=False).flatten(node)
        return [_folded(b) for b in found]

    def _over_keys(self, body: Body, node: Aggregate, out: list[Expr]) -> Body:
        """Return a way to the rows of a group as one to the keys of the groups' rows."""
        shown: list[Expr] = []
        for expr in out:
            key = isinstance(expr, Col) and expr.index < len(node.keys)
            shown.append(body.out[node.keys[expr.index]] if key else Lit(expr.type, None))  # type: ignore[attr-defined]
        return replace(body, out=tuple(shown))

    def _is_possible(self, body: Body, goals: Goals) -> bool:
        """Return whether a way could ever lead to a goal: no condition is false, no constant another."""
        strict = {c for t in body.tests if isinstance(t, Call) and t.op == "=" for c in columns_of(t)}
        for test in body.tests:
            if isinstance(test, Lit):
                return False
            match test:
                case Call(op="is_null", args=(Col(index=c),)) if c in strict:
                    return False
        classes, met = find_classes(body), dict[int, int]()
        for at, c in enumerate(goals.cols):
            if isinstance(expr := body.out[c], Col):
                first = met.setdefault(classes[expr.index], at)
                if not (goals.values[:, first] == goals.values[:, at]).any():
                    return False
            elif isinstance(expr, Lit):
                try:
                    code = encode_value(expr.value, expr.type, self.owner.dictionary)
                except WhenceError:
                    return False
                if not (goals.values[:, at] == code).any():
                    return False
        return True

    def _follow(
        self, own: str | None, bodies: list[Body], goals: Goals, context: Context, missing: MissingRows
    ) -> tuple[Goals, Context]:
        """Follow a recursion: return all rows of the view that would lead to the goals, and what stands around them."""
        again = [(b, i) for b in bodies for i, s in enumerate(b.sources) if _reads(s, own)]
        if not again:
            return goals, context
        found, frontier, sound, cut = goals.values, goals.values, True, False
        known = set(map(tuple, found.tolist()))
        for _ in range(_ROUNDS):
            new = []
            for body, i in again:
                match = match_without(self.query, body, i, replace(goals, values=frontier))
                if match is None:
                    continue
                cols, rows, whole = self._asked_of(body, i, match, replace(goals, values=frontier))
                cut = cut or match.cut
                if cols == goals.cols:
                    sound = sound and whole and not match.undecided
                    new.append(rows)
            fresh = [r for r in dict.fromkeys(tuple(r) for rows in new for r in rows.tolist()) if r not in known]
            if not fresh or len(found) > _GOALS:
                cut = cut or bool(fresh)
                break
            frontier = np.array(fresh[:_GOALS], np.int64)
            known.update(map(tuple, frontier.tolist()))
            found = np.concatenate([found, frontier])
        self.done.setdefault((own, goals.cols), set()).update(known)
        if len(found) > len(goals.values):
            every = self.describe(
                Ref(self.owner.program.views[own or ""].schema, own or ""), replace(goals, values=found)
            )
            missing.note = f"any of {every.label} would lead to it; none is there"
        beside = tuple(s.node for b in bodies for s in b.sources if isinstance(s, External) and not _reads(s, own))
        absent = tuple(a.node for b in bodies for a in b.absences)
        around = Context(context.sound and sound, (*context.beside, *beside), (*context.absent, *absent))
        return replace(goals, values=found), around if len(found) > len(goals.values) else context

    # -- one way -----------------------------------------------------------------------------------------------------

    def _way(
        self, head: str, own: str | None, body: Body, goals: Goals, context: Context, schema: Schema, depth: int
    ) -> FailedWay:
        """Find what stands in the way of goals in one way to them."""
        names = [*map(self._name, body.sources), *(f"no {self.query.name_of(a.node)}" for a in body.absences)]
        way = FailedWay(f"{head} <- {', '.join(names) or 'a constant'}")
        whole = match_without(self.query, body, None, goals)
        if whole is not None:
            self._passed_over(way, body, whole, goals, context, schema)
            return way
        beside = [s.node if isinstance(s, External) else None for s in body.sources]
        for i, source in enumerate(body.sources):
            match = match_without(self.query, body, i, goals)
            if match is None:
                continue
            assert isinstance(source, External)
            cols, rows, sure = self._asked_of(body, i, match, goals)
            if _reads(source, own) and cols == goals.cols:
                continue  # `_follow` has been there
            others = tuple(n for j, n in enumerate(beside) if j != i and n is not None)
            around = Context(
                context.sound and sure and not match.undecided,
                (*context.beside, *others),
                (*context.absent, *(a.node for a in body.absences)),
            )
            where = " AND ".join(self._said(body, t, i) for t in match.undecided)
            way.lacking.append(self.explain(source.node, Goals(cols, rows), around, where, depth + 1))
        self._failing(way, body, goals)
        if not way.lacking and not way.reason:
            self._several(way, own, body, goals, depth)
        return way

    def _asked_of(self, body: Body, i: int, match: Match, goals: Goals) -> tuple[tuple[int, ...], Codes, bool]:
        """Return the columns and rows that matches ask of a source, and whether nothing else is in their way."""
        start = body.offsets()[i]
        cols = tuple(c - start for c in sorted(match.filled) if start <= c < start + len(body.sources[i].schema))
        rows, sure = match.rows, True
        for absence in body.absences:
            read = {c for e in (*(e for e, _ in absence.keys), *absence.given) for c in columns_of(e)}
            if not read <= match.filled or is_unknown(rows[:, sorted(read)]).any():
                sure = False
                continue
            blocked, _ = BodyMatcher(self.query, body).blocked(absence, rows)
            if blocked.all():
                sure = False
            else:
                rows = rows[~blocked]
        for c in goals.cols:
            sure = sure and isinstance(body.out[c], Col)
        return cols, drop_duplicates(rows[:, [start + c for c in cols]]), sure

    def _failing(self, way: FailedWay, body: Body, goals: Goals) -> None:
        """Name a test that alone is not true."""
        for test in body.tests:
            if isinstance(test, Lit):
                way.reason = "its condition is never true"
                return
            match test:
                case Call(op="=" | "is_not_distinct", args=(Col(), Col())):
                    continue
            match_ = match_without(self.query, body, None, goals, skip=test)
            if match_ is None:
                continue
            way.reason = f"{self._said(body, test)} is not true ({self._values(body, test, match_.rows)})"
            way.lacking = [lack for lack in way.lacking if not lack.where]
            return

    def _values(self, body: Body, test: Expr, rows: Codes) -> str:
        """Say which values a test was decided for: of the first match, and of how many."""
        types = [c.type for s in body.sources for c in s.schema.columns]
        read = sorted(columns_of(test))
        distinct = drop_duplicates(rows[:, read])
        shown = [
            f"{self._column(body, c)} = {self._written(int(v), types[c])}"
            for c, v in zip(read, distinct[0], strict=True)
        ]
        return f"{'for example ' if len(distinct) > 1 else ''}{', '.join(shown)}"

    def _several(self, way: FailedWay, own: str | None, body: Body, goals: Goals, depth: int) -> None:
        """Name the sources that have nothing for what is known of them, or else the first two that do not meet."""
        way.any_of = False
        unsound = Context(sound=False)
        for i, source in enumerate(body.sources):
            assert isinstance(source, External)
            alone = restrict_body(body, [i])
            if match_without(self.query, alone, None, goals) is None:
                match = match_without(self.query, alone, 0, goals)
                if match is not None:
                    cols, rows, _ = self._asked_of(alone, 0, match, goals)
                    where = " AND ".join(self._said(alone, t, 0) for t in match.undecided)
                    if not _reads(source, own):
                        way.lacking.append(self.explain(source.node, Goals(cols, rows), unsound, where, depth + 1))
                    elif cols != goals.cols:
                        way.lacking.append(self.describe(source.node, Goals(cols, rows), where))
        if way.lacking:
            return
        taken: list[int] = []
        for i, source in enumerate(body.sources):
            assert isinstance(source, External)
            part, at = restrict_body(body, [*taken, i]), len(taken)
            if match_without(self.query, part, None, goals) is not None:
                taken.append(i)
                continue
            match = match_without(self.query, part, at, goals)
            if match is not None:
                cols, rows, _ = self._asked_of(part, at, match, goals)
                where = " AND ".join(self._said(part, t, at) for t in match.undecided)
                way.lacking.append(self.describe(source.node, Goals(cols, rows), where))
                way.lacking[-1].nearest = self._nearest(source.node, Goals(cols, rows), way.lacking[-1].relation)
                break
        names = ", ".join(self._name(s) for s in body.sources)
        if not way.lacking:
            way.reason = f"no rows of {names} can have these values together"

    # -- what is passed over -----------------------------------------------------------------------------------------

    def _passed_over(
        self, way: FailedWay, body: Body, whole: Match, goals: Goals, context: Context, schema: Schema
    ) -> None:
        """Say why matches do not lead to the row: it has another value, or rows exclude it."""
        rows, goal = whole.rows, whole.goal
        for at, c in enumerate(goals.cols):
            if isinstance(expr := body.out[c], Col):
                continue
            made, asked = self.query.value(expr, rows), goals.values[goal, at]
            if not (made == asked).any():
                is_, asked_for = self._written(int(made[0]), expr.type), self._written(int(asked[0]), expr.type)
                way.reason = f"{schema.names[c]} is {is_}, not {asked_for}"
                return
            rows, goal = rows[made == asked], goal[made == asked]
        if not body.absences:
            way.reason = "its parts are there, but not all of them together"
            return
        blocking = [(a, BodyMatcher(self.query, body).blocked(a, rows)[0]) for a in body.absences]
        count = np.sum([hit for _, hit in blocking], axis=0)
        best = np.argsort(count, kind="stable")[:_EXCLUDING]  # what the fewest absences forbid
        for row in rows[best[count[best] == count[best[0]]]]:
            self._exclude(way, body, row[None, :], context)

    def _exclude(self, way: FailedWay, body: Body, row: Codes, context: Context) -> None:
        """Add the rows that exclude a match, with the derivations of the match and of those rows."""
        extractor = self.new_extractor()
        query, builder = extractor.query, extractor.builder
        roots, names, more, sound = [], [], 0, context.sound
        try:
            for absence in body.absences:
                found = self._excluding(body, absence, row)
                more += max(0, len(found) - _EXCLUDING)
                sound = sound and len(found) <= _EXCLUDING and not extractor.is_volatile(absence.node)
                if not len(found):
                    continue
                found, name = found[:_EXCLUDING], self.query.name_of(absence.node)
                if isinstance(absence.node, (Scan, Ref)):
                    (named,) = absence.node.names
                    roots += extractor.nodes(named, found).tolist()
                else:
                    relation = builder.relation(("excluding", len(roots)), name, "inner", absence.node.schema)
                    heads, _ = builder.intern(relation, found)
                    for part in query.parts(absence.node, ((tuple(range(found.shape[1])), found),)):
                        query.derive(builder.intern(relation, part.rows)[0], part, name)
                    roots += heads.tolist()
                names += [name] * len(found)
            start = len(roots)
            cut = Body(body.sources, body.tests, columns_over(body.sources))
            relation = builder.relation(
                "match", "match", "inner", Schema(tuple(c for s in body.sources for c in s.schema.columns))
            )
            heads, _ = builder.intern(relation, row)
            for part in BodyMatcher(query, cut).match(((tuple(range(body.width)), row),), bag=False):
                query.derive(builder.intern(relation, part.rows)[0], part, "match")
            roots += heads.tolist()
            extractor.close()
            graph = builder.finish(np.array(roots, np.int32))
        except WhenceError as error:
            way.reason = f"excluded by rows of {', '.join(dict.fromkeys(names)) or 'what must not be there'} ({error})"
            return
        nodes = [_behind(graph, int(n)) for n in graph.roots[:start]]
        protected = {t for n in context.beside for t in tables_read(self.owner.program, n)}
        protected |= {t for n in context.absent if extractor.is_volatile(n) for t in tables_read(self.owner.program, n)}
        sound = sound and graph.exact
        way.exclusions.append(Exclusion(graph, nodes, int(graph.roots[start]), more, sound, frozenset(protected)))

    def _excluding(self, body: Body, absence: Absence, row: Codes) -> Codes:
        """Return the rows that an absence forbids to be there for a match."""
        query, cols = self.query, tuple(c for _, c in absence.keys)
        values = query.values((*(e for e, _ in absence.keys), *absence.given), row)
        keys, given = values[:, : len(cols)], values[:, len(cols) :]
        found = []
        for part in query.parts(absence.node, ((cols, keys),) if cols else ()):
            _, at = pair_keys(keys, part.rows[:, list(cols)], [absence.null_safe] * len(cols))
            if absence.residual is not None and len(at):
                both = np.concatenate([part.rows[at], np.repeat(given, len(at), axis=0)], axis=1)
                at = at[query.value(absence.residual, both) == 1]
            found.append(part.rows[at])
        return drop_duplicates(np.concatenate(found)) if found else np.empty((0, len(absence.node.schema)), np.int64)

    # -- groups ------------------------------------------------------------------------------------------------------

    def _group(
        self, missing: MissingRows, schema: Schema, node: Aggregate, tests: Expr | None, out: list[Expr], goals: Goals
    ) -> Goals | None:
        """Say of a group that is there what it has instead; of one that is not, return the goals of its keys."""
        keys = {
            e.index: at for at, c in enumerate(goals.cols) if isinstance(e := out[c], Col) and e.index < len(node.keys)
        }
        inner = Goals(tuple(keys), goals.values[:, list(keys.values())])
        rows = self.rows_of(node, inner)
        if not len(rows):
            cols = [c for c in range(len(out)) if isinstance(e := out[c], Col) and e.index in keys and c in goals.cols]
            return Goals(tuple(cols), goals.values[:, [goals.cols.index(c) for c in cols]])
        names = [*node.schema.names]
        for column, expr in enumerate(out):
            if isinstance(expr, Col):
                names[expr.index] = schema.names[column]
        if len(rows) > 1:
            missing.note = f"{missing.relation} has {len(rows):,} groups for this row, none with these values"
            return None
        told = ", ".join(
            f"{n} = {self._written(int(c), t)}" for n, c, t in zip(names, rows[0], node.schema.types, strict=True)
        )
        failing = [t for t in conjuncts(tests) if self.query.value(t, rows)[0] != 1]
        if failing:
            said = " and ".join(write_expr(t, lambda c: names[c]) for t in failing)
            missing.note = f"its group is ({told}), for which {said} is not true"
        else:
            missing.note = f"its group is there with other values: {told}"
        return None

    # -- text --------------------------------------------------------------------------------------------------------

    def _name(self, source: Any) -> str:
        return self.query.name_of(source.node)

    def _column(self, body: Body, index: int) -> str:
        """Return the name of a column, with that of its source where there are several."""
        number = body.owner()[index]
        own = body.sources[number].schema.names[index - body.offsets()[number]]
        return f"{self._name(body.sources[number])}.{own}" if len(body.sources) > 1 else own

    def _said(self, body: Body, expr: Expr, of: int | None = None) -> str:
        """Write a condition; columns of the source `of` without its name."""
        start = body.offsets()[of] if of is not None else 0
        own = range(start, start + len(body.sources[of].schema)) if of is not None else range(0)
        return write_expr(
            expr, lambda c: body.sources[of or 0].schema.names[c - start] if c in own else self._column(body, c)
        )

    # -- what suffices -----------------------------------------------------------------------------------------------

    def _insertable(self, node: Scan, goals: Goals, context: Context) -> list[Row]:
        """Return the goals of a table whose insertion brings the row about that was asked for: nothing that is beside
        them may be lost by it, and nothing come that is forbidden."""
        table = self.owner.program.tables.get(node.table)
        if table is None or table.stream is not None or not is_harmless(self.owner, node.table, context):
            return []
        types, cols = [node.schema.types[c] for c in goals.cols], list(goals.cols)
        required = np.array([not node.schema.columns[c].nullable for c in cols], bool)
        values = goals.values[~((goals.values == NULL) & required).any(axis=1)]
        if table.key:
            if not set(table.key) <= set(cols):
                return []
            taken = self.rows_of(node, Goals(tuple(table.key), values[:, [cols.index(c) for c in table.key]]))
            if len(taken):  # another row of this key would go
                values = values[~match_values(values[:, [cols.index(c) for c in table.key]], taken[:, list(table.key)])]
        return [
            {node.schema.names[c]: self.decode(v, t) for c, v, t in zip(cols, row, types, strict=True)}
            for row in values[:_FEW].tolist()
        ]


def is_harmless(owner: Extractor, table: str, context: Context) -> bool:
    """Return whether more rows of a table never take away what is beside a goal, nor bring what is forbidden."""
    if any(table in tables_read(owner.program, node) for node in context.absent):
        return False
    return not any(owner.is_volatile(node) and table in tables_read(owner.program, node) for node in context.beside)


def tables_read(program: Program, node: Node) -> set[str]:
    """Return the tables that a query reads, through views too."""
    found, todo = set[str](), [*names_read(node)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += names_read(program.views[name].query) if name in program.views else []
    return found & program.tables.keys()


def _reads(source: object, view: str | None) -> bool:
    return isinstance(source, External) and isinstance(source.node, Ref) and source.node.view == view


def _folded(body: Body) -> Body:
    """Return a body without conditions that are always true."""
    tests = [t for test in body.tests for t in conjuncts(fold(test))]
    return replace(body, tests=tuple(t for t in tests if not (isinstance(t, Lit) and t.value)))


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of which no two are equal.

    >>> _unique(("a", "b", "a"))
    ('a', 'b', 'a_2')
    """
    count = [names[: i + 1].count(n) for i, n in enumerate(names)]
    return tuple(n if c == 1 else f"{n}_{c}" for n, c in zip(names, count, strict=True))


def _columns(node: Node) -> list[Expr]:
    return [Col(t, i) for i, t in enumerate(node.schema.types)]


def _behind(graph: Derivations, node: int) -> int:
    """Return the row that another is a copy of under the same name."""
    while len(ways := graph.derivations_of(node)) == 1 and len(body := graph.bodies(ways[0])) == 1:
        below = int(body[0])
        if graph.relations[graph.relation[below]].name != graph.relations[graph.relation[node]].name:
            break
        if graph.kind(node) != "inner":
            break
        node = below
    return node
