"""Evaluate queries so that every result row knows the rows it came from.

A query gives **parts**: rows side by side with, for each of its sources, which row of that source stands behind them. A
row of a part is one way in which that result row comes about, with a weight, the number of its copies. `Wanted` says
which rows matter, as values that some columns must have; it is pushed down to tables and views, and sideways from one
side of a join to the other, so what is looked at is what may matter.

As a **set** a result row is there if any of its ways is; below an aggregate copies count, and the query is read as a
**bag**, in which whatever is once for several ways (DISTINCT, a semi-join, a group) becomes a row in between.
Rows get nodes only when a derivation has them (`PartSource.nodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.build import Builder as Plans
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch
from whence.engine.expressions.evaluate import compile_expr
from whence.explain.derive.body_matcher import BodyMatcher
from whence.explain.derive.graph_builder import number_distinct
from whence.explain.derive.grouped_query import peel_groups
from whence.explain.derive.groups import evaluate_groups, evaluate_tested
from whence.explain.derive.parts import (
    SIDEWAYS,
    Part,
    Wanted,
    drop_duplicates,
    is_ambiguous,
    keep_wanted,
    match_values,
    pair_equal,
    restrict_wanted,
)
from whence.explain.derive.sources import Between, Given, StoredRows
from whence.explain.derive.sql_text import write_expr
from whence.explain.graph import Ints
from whence.io.rows import encode
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, Lit, conjuncts, may_fail
from whence.plan.algebra.expressions import walk as walk_expr
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    TopK,
    TopKPerGroup,
    Union,
    Values,
    walk,
)
from whence.plan.recursion.conjunctive import Body, Flattener

if TYPE_CHECKING:
    from whence.explain.derive.extractor import Extractor


class PlanEvaluator:
    """Evaluates plans for one graph."""

    def __init__(self, owner: Extractor):
        self.owner = owner
        self.view = ""  # whose derivations are being added
        self.choosing = False  # whether a MIN or MAX is all that reads what is being evaluated
        self._kept: list[object] = []
        self._compiled: dict[Expr, Callable[[Codes], Codes]] = {}

    def keep(self, source: object) -> None:
        """Keep a source alive: its identity is a name in the graph, so nothing else may get it."""
        self._kept.append(source)

    def doubt(self, why: str) -> None:
        self.owner.builder.doubt(why)

    def derive(self, heads: Ints, part: Part, head: str) -> None:
        """Add a derivation of each head from the rows its row of the part came from."""
        if not len(heads):
            return
        builder = self.owner.builder
        names = ", ".join(s.name for s, _ in part.refs) or "always"
        step = builder.step(self.view, f"{head} <- {names}")
        bodies = np.empty((len(heads), len(part.refs)), np.int32)
        for i, (source, places) in enumerate(part.refs):
            bodies[:, i] = source.nodes(places)
        both = np.concatenate([heads[:, None], bodies], axis=1).astype(np.int64)
        _, first = number_distinct(both)
        builder.add(heads[first], np.full(len(first), step, np.int32), bodies[first])

    # -- the algebra -------------------------------------------------------------------------------------------------

    def parts(self, node: Node, wanted: Wanted = (), bag: bool = False) -> list[Part]:
        """Return the wanted rows of a query, each way in which they come about; as a bag, each copy."""
        found = self._parts(node, wanted, bag)
        return [p for p in found if len(p.rows)]

    def _parts(self, node: Node, wanted: Wanted, bag: bool) -> list[Part]:
        if not bag and (found := evaluate_tested(self, node, wanted)) is not None:
            return found
        match node:
            case Scan():
                return self._scan(node, wanted)
            case Ref():
                return self._ref(node, wanted, bag)
            case Values():
                rows = encode(list(node.rows), node.schema, self.owner.dictionary, "VALUES")
                rows = rows.reshape(len(node.rows), len(node.schema))
                return keep_wanted([Part(rows, np.ones(len(rows), np.int64), [])], wanted)
            case Given():
                return keep_wanted(node.parts, wanted)
            case Distinct() | SetOp(all=False) if bag:
                inner = self.parts(node if isinstance(node, SetOp) else node.input, wanted)
                name = node.label or ("distinct rows" if isinstance(node, Distinct) else f"{node.kind} rows")
                return [self.once(inner, node.schema, name)] if inner else []
            case SetOp(all=True):
                return self._set_operation(node, wanted, bag)
            case Join(kind="semi" | "mark") if bag:
                return self._matched_once(node, wanted)
            case Join(kind="left" | "right" | "full" | "mark"):
                return self._outer(node, wanted, bag)
            case Aggregate():
                return evaluate_groups(self, node, wanted)
            case TopK() | TopKPerGroup():
                return self._top(node, wanted, bag)
        return [p for body in self._bodies(node, bag) for p in BodyMatcher(self, body).match(wanted, bag)]

    def _bodies(self, node: Node, bag: bool) -> list[Body]:
        """Return the bodies of a query, down to what has to be evaluated as a whole."""

        def opens(n: Node) -> bool:
            return n is node or (not _may_fail(node) and self._is_open(n, bag))

        return Flattener({}, {}, opens=opens, for_rules=False).flatten(node)

    def _is_open(self, node: Node, bag: bool) -> bool:
        """Return whether a node below another is part of the same body. What is an error for some rows is not: only
        the rows that the plan has there may meet it."""
        match node:
            case Select() | Project() | Union() | Lateral() | Join(kind="inner" | "anti"):
                pass
            case Distinct() | Join(kind="semi") | SetOp(all=False) if not bag:
                pass
            case _:
                return False
        return not _may_fail(node) and (bag or peel_groups(node, self.inlined) is None)

    def value(self, expr: Expr, rows: Codes) -> Codes:
        """Evaluate an expression over rows."""
        if any(e.type.needs_dictionary and not isinstance(e, (Col, Lit)) for e in walk_expr(expr)):
            self.own_words()
        found = self._compiled.get(expr)
        if found is None:
            found = self._compiled[expr] = compile_expr(expr, self.owner.dictionary)
        return found(np.ascontiguousarray(rows)) if len(rows) else np.empty(0, np.int64)

    def values(self, exprs: Sequence[Expr], rows: Codes) -> Codes:
        """Evaluate expressions over rows, a column each."""
        found = np.empty((len(rows), len(exprs)), np.int64)
        for c, e in enumerate(exprs):
            found[:, c] = rows[:, e.index] if isinstance(e, Col) else self.value(e, rows)
        return found

    def inlined(self, name: str) -> Node | None:
        """Return the query of a view that does not depend on itself."""
        return None if self.owner.is_recursive(name) else self.owner.plan(name)

    def own_words(self) -> None:
        """Take a copy of the dictionary before anything is computed that may add to it: a reader must not."""
        if self.owner.borrowed:
            words = Dictionary()
            words.extend(0, self.owner.dictionary.since(0))
            self.owner.dictionary = self.owner.builder.dictionary = words
            self.owner.borrowed = False
            self._compiled.clear()

    def once(self, parts: list[Part], schema: Schema, name: str, counted: Batch | None = None) -> Part:
        """Return each distinct row once, as a row in between, or as often as it is counted."""
        rows = np.concatenate([p.rows for p in parts])
        number, first = number_distinct(rows)
        ways, at = [], 0
        for part in parts:
            ways.append((part, number[at : at + len(part.rows)]))
            at += len(part.rows)
        source = Between(self, name, schema, rows[first], ways)
        weight = np.ones(len(first), np.int64)
        if counted is not None:
            mine, theirs = pair_equal(source.rows, counted.rows)
            weight[mine] = counted.ann[theirs]
        return Part(source.rows, weight, [(source, np.arange(len(first)))])

    # -- leaves ------------------------------------------------------------------------------------------------------

    def _scan(self, node: Scan, wanted: Wanted) -> list[Part]:
        if self.owner.streams.schema(node.table) is not None:
            rows, counts = self.owner.streams.rows(node.table, self.owner.dictionary)
            read = StoredRows(self, node.table, node.table, rows, counts)
            return keep_wanted([Part(rows, counts, [(read, np.arange(len(rows)))])], wanted)
        relation = self.owner.flow.tables[node.table].relation
        whole = next((t for c, t in wanted if c == tuple(range(len(node.schema)))), None)
        if whole is not None:
            ids = relation.lookup(np.ascontiguousarray(whole))
            ids = np.unique(ids[ids >= 0])
        elif (index := next((w for w in wanted if w[0] in relation.indexes), None)) is not None:
            ids = np.unique(relation.probe(index[0], np.ascontiguousarray(index[1]), null_safe=True)[1])
        else:
            ids = relation.ids()
        rows, counts = relation.rows[ids], relation.ann[ids]
        source = StoredRows(self, node.table, node.table, rows, counts)
        return keep_wanted([Part(rows, counts, [(source, np.arange(len(rows)))])], wanted)

    def _ref(self, node: Ref, wanted: Wanted, bag: bool) -> list[Part]:
        owner, name = self.owner, node.view
        if not owner.is_recursive(name):
            plan = owner.plan(name)
            if bag and not self.is_set(plan):
                return self.parts(plan, wanted, True)
            if owner.is_volatile(plan):  # what may appear is seen where it may
                parts = self.parts(plan, wanted)
                rows = np.concatenate([p.rows for p in parts]) if parts else np.empty((0, len(node.schema)), np.int64)
                rows = rows[number_distinct(rows)[1]]
                return self._stored(name, rows)
        elif owner.is_best(name):
            return self._best(node, wanted)
        found = keep_wanted(self._stored(name, owner.rows_of(name, wanted)), wanted)
        if owner.is_recursive(name) and owner.is_selected(name) and not self.choosing:
            asked = next((len(values) for cols, values in wanted if len(cols) == len(node.schema)), None)
            if asked is None or asked > sum(len(p.rows) for p in found):
                self.doubt(f"another row of {name} may become the best when rows are lost, and lead to the same row")
        return found

    def _best(self, node: Ref, wanted: Wanted) -> list[Part]:
        """Return best values by key. Another may come when rows are lost, which matters unless this very value is
        wanted."""
        keys = len(node.schema) - 1
        by_key = restrict_wanted(wanted, range(keys))
        found = keep_wanted(self._stored(node.view, self.owner.rows_of(node.view, by_key)), by_key)
        kept = keep_wanted(found, wanted)
        pinned = any(keys in cols for cols, _ in wanted)
        if sum(len(p.rows) for p in (found if pinned else [])) > sum(len(p.rows) for p in kept):
            self.doubt("a best value that is another one now may come to this one when rows are lost")
        elif (not pinned or is_ambiguous(wanted, range(keys))) and any(len(p.rows) for p in kept):
            self.doubt("another best value may come when rows are lost, and still lead to the same row")
        return kept

    def _stored(self, name: str, rows: Codes) -> list[Part]:
        source = StoredRows(self, self.owner.name_of(name), name, rows)
        return [Part(rows, np.ones(len(rows), np.int64), [(source, np.arange(len(rows)))])]

    def is_set(self, node: Node) -> bool:
        """Return whether no row of a query can be there twice."""
        match node:
            case Distinct() | Aggregate():
                return True
            case SetOp():
                return not node.all
            case Scan():
                if self.owner.streams.schema(node.table) is not None:
                    return False
                table = self.owner.program.tables[node.table]
                return bool(table.key) or table.lifetime is not None
            case Ref():
                return self.owner.is_recursive(node.view) or self.is_set(self.owner.plan(node.view))
            case Select() | TopK() | TopKPerGroup():
                return self.is_set(node.input)
            case Project():
                kept = {e.index for e in node.exprs if isinstance(e, Col)}
                return kept >= set(range(len(node.input.schema))) and self.is_set(node.input)
            case Join(kind="semi" | "anti" | "mark"):
                return self.is_set(node.left)
            case Join(kind="inner"):
                return self.is_set(node.left) and self.is_set(node.right)
        return False

    # -- one input ---------------------------------------------------------------------------------------------------

    def _top(self, node: TopK | TopKPerGroup, wanted: Wanted, bag: bool) -> list[Part]:
        copies = self.parts(node.input, (), True)
        head = self.run(node, [copies])
        if any(not match_values(part.rows, head.rows).all() for part in keep_wanted(copies, wanted)):
            self.doubt("rows outside a LIMIT may move into it when others are lost")
        if node.offset or bag:
            self.doubt("how much a LIMIT lets through depends on all other rows")
        everything = tuple(range(len(node.schema)))
        inner = self.parts(node.input, (*wanted, (everything, head.rows)))
        return [self.once(inner, node.schema, node.label or "first rows", head)] if bag and inner else inner

    # -- two inputs --------------------------------------------------------------------------------------------------

    def _outer(self, node: Join, wanted: Wanted, bag: bool) -> list[Part]:
        """Return the rows of a join that keeps those without a match; each side is evaluated once."""
        width, kind = len(node.left.schema), node.kind
        left_wanted = restrict_wanted(wanted, range(width)) if kind in ("left", "mark") else ()
        right_wanted = restrict_wanted(wanted, range(width, len(node.schema))) if kind == "right" else ()
        left = self.parts(node.left, left_wanted, bag)
        if kind in ("left", "mark") and node.keys and sum(len(p.rows) for p in left) <= SIDEWAYS:
            own, other = zip(*node.keys, strict=True)
            values = [np.empty((0, len(own)), np.int64), *(p.rows[:, own] for p in left)]
            right_wanted = ((other, drop_duplicates(np.concatenate(values))),)
        right = self.parts(node.right, right_wanted, bag)
        sides = Given(node.left.schema, node.left, left), Given(node.right.schema, node.right, right)
        bodies = self._bodies(replace(node, left=sides[0], right=sides[1]), bag)
        return [p for b in bodies for p in BodyMatcher(self, b).match(wanted, bag, outer=kind != "mark")]

    def _matched_once(self, node: Join, wanted: Wanted) -> list[Part]:
        """Return the left rows of a semi or mark join, each as often as it is there: a match is a row in between."""
        found = []
        for part in self.parts(node.left, restrict_wanted(wanted, range(len(node.left.schema))), True):
            source = Between(self, "rows with a match", node.left.schema, part.rows, [])
            numbered_part = Part(part.rows, part.weight, [(source, np.arange(len(part.rows)))])
            left = Given(node.left.schema, node.left, [numbered_part])
            hit, unmatched = np.zeros(len(part.rows), bool), []
            for body in self._bodies(replace(node, left=left), False):
                for match in BodyMatcher(self, body).match(wanted, False):
                    (_, places), *others = match.refs
                    whole = Part(match.rows, match.weight, part.take(places).refs + others)
                    if body.absences:
                        unmatched.append(whole)
                    else:
                        source.ways.append((whole, places))
                        hit[places] = True
            matched = numbered_part.take(np.flatnonzero(hit))
            if node.kind == "mark":
                matched = matched.with_rows(np.insert(matched.rows, matched.rows.shape[1], 1, axis=1))
            found += [*keep_wanted([matched], wanted), *unmatched]
        return found

    def _set_operation(self, node: SetOp, wanted: Wanted, bag: bool) -> list[Part]:
        """Return the rows of INTERSECT ALL or EXCEPT ALL."""
        left = self.parts(node.left, wanted, True)
        if not left:
            return []
        everything = tuple(range(len(node.schema)))
        rows = np.concatenate([p.rows for p in left])
        there = (*wanted, (everything, drop_duplicates(rows))) if len(rows) < SIDEWAYS else wanted
        right = self.parts(node.right, there, True)
        result = self.run(node, [left, right])
        if node.kind == "except":
            if right:
                self.doubt("losing rows of what EXCEPT takes away lets more through")
            right = [
                p.take(np.flatnonzero(~match_values(p.rows, result.rows))) for p in right
            ]  # what it takes all copies of
        sides = Given(node.schema, node.left, left), Given(node.right.schema, node.right, right)
        found = self.parts(SetOp(node.schema, *sides, node.kind), wanted)
        if bag:
            self.doubt(f"how many copies {node.kind.upper()} ALL leaves depends on both sides")
        return [self.once(found, node.schema, node.label or f"{node.kind} rows", result)] if bag and found else found

    def source_of(self, node: Node) -> Node:
        """Return what a query selects its rows from, or itself."""
        while (below := _selected_from(node)) is not None:
            node = below
        return node

    def name_of(self, node: Node) -> str:
        """Return what people know the rows of a query by: a table, a view, the name of a CTE or an alias, or else what
        it reads."""
        at = self.source_of(node)
        if at.label or isinstance(at, (Scan, Ref)):
            return at.label or self.owner.name_of(*at.names)
        read = [name for n in walk(node) if isinstance(n, (Scan, Ref)) for name in n.names]
        return " joined with ".join(map(self.owner.name_of, read)) or "values"

    def condition_of(self, node: Node) -> str:
        """Return the conditions under which a query selects rows of its source, in SQL."""
        texts = []
        while (below := _selected_from(node)) is not None:
            names = node.schema.names
            match node:
                case Select():
                    texts += [write_expr(term, lambda c: names[c]) for term in conjuncts(node.predicate)]  # noqa: B023
                case Join(kind="semi" | "anti"):
                    texts.append(f"{self.name_of(node.right)} has {'no' if node.kind == 'anti' else 'a'} match")
            node = below
        return " AND ".join(texts)

    def run(self, node: Node, inputs: list[list[Part]]) -> Batch:
        """Run a node over given rows, by the engine's own operator."""
        flow = Dataflow()
        scans = []
        for i, (parts, child) in enumerate(zip(inputs, node.inputs, strict=True)):
            scan = flow.table(f"${i}", child.schema)
            if parts:
                rows = np.ascontiguousarray(np.concatenate([p.rows for p in parts]))
                weight = np.concatenate([p.weight for p in parts])
                scan.relation.apply(scan.apply([Batch(rows, weight)]))
                scan.relation.commit()
            scans.append(Scan(child.schema, f"${i}"))
        op = Plans(flow, self.owner.dictionary, flow.tables.__getitem__).build(node.with_inputs(tuple(scans)))
        flow.add_view("$", op)
        return op.contents()


# -- helpers -----------------------------------------------------------------------------------------------------------


def is_monotone(node: Node) -> bool:
    """Return whether a node, by itself, never has a row more for having a row less below it."""
    match node:
        case Aggregate():
            return not node.aggs and bool(node.keys)
        case SetOp(kind="intersect"):
            return True
    return not any(map(node.refuses_recursion, range(len(node.inputs))))


def _selected_from(node: Node) -> Node | None:
    """Return the query whose rows, or some columns of them, these are; None where rows are made, or have a name."""
    if node.label:
        return None
    selects = isinstance(node, (Select, Project, Distinct, Given))
    return node.inputs[0] if selects or (isinstance(node, Join) and node.kind in ("semi", "anti", "mark")) else None


def _may_fail(node: Node) -> bool:
    """Return whether a condition or a projection is an error for some rows."""
    match node:
        case Select():
            return may_fail(node.predicate)
        case Project():
            return any(map(may_fail, node.exprs))
    return False
