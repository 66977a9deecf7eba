"""Two judges of distributed plans that share nothing with the planner: one checks promises, one runs the plan.

`check` follows a plan upwards with the set of column lists its rows are routed by, and refuses an operator that would
miss rows. `Partitions` runs every operator in every partition with the engine, one table for each move of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.batch import consolidate
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels.routing import route
from whence.engine.recursion.components import build_fixpoint
from whence.engine.recursion.fixpoint import Port
from whence.model.codes import Codes, Dictionary
from whence.model.types import Kind
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Cast, Col, Expr
from whence.plan.algebra.logical import Aggregate, Join, LocalFilter, Node, Project, Ref, Scan, Ship, TopK
from whence.plan.partitions.distribute import Distributed, Distribution, PlannedComponent
from whence.plan.recursion.rule_model import Rule, RuleProgram

# -- promises ----------------------------------------------------------------------------------------------------------

Routed = frozenset[tuple[int, ...]]  # every list of columns that the rows are routed by; with () they are in one place
EVERYWHERE = None
Claim = Routed | None
_NOWHERE: Routed = frozenset()


class MisplacedError(AssertionError):
    """An operator does not see what it must."""


def claim_of(dist: Distribution) -> Claim:
    return {"all": EVERYWHERE, "one": frozenset([()]), "spread": _NOWHERE}.get(dist.kind, frozenset([dist.cols]))


def holds(dist: Distribution, claim: Claim) -> bool:
    """Whether a claim is at least what a distribution says."""
    if dist.kind == "all" or claim is EVERYWHERE:
        return dist.kind == "all" and claim is EVERYWHERE
    return dist.kind == "spread" or dist.cols in claim


def check(plan: Distributed) -> None:
    """MisplacedError if any operator of the plan may miss rows, or a view is not where it is said to be."""
    tables = {name: claim_of(dist) for name, dist in plan.tables.items()}
    if plan.partitions == 1:
        tables = dict.fromkeys(tables, EVERYWHERE)
    known: dict[str, Claim] = {}
    for piece in plan.pieces:
        if piece.exchange is not None:
            known |= {name: frozenset([cols]) for name, cols in piece.exchange.homes}
        elif piece.rules is not None:
            known |= _check_rules(piece.rules, tables, known)
        for name, node in [(piece.views[0], piece.node), *piece.after] if piece.node is not None else piece.after:
            assert node is not None
            known[name] = claim(node, tables, known)
        for name in piece.views:
            if not holds(plan.views[name], known[name]):
                raise MisplacedError(f"{name} is said to be {plan.views[name]}, but is {known[name]}")


def _check_rules(rules: RuleProgram, tables: Mapping[str, Claim], views: Mapping[str, Claim]) -> dict[str, Claim]:
    """Each rule's rows must meet in one partition, and its head be derived there only."""
    claims = [claim(r.source, tables, views) if r.source is not None else _NOWHERE for r in rules.relations]
    outside = [c for c, r in zip(claims, rules.relations, strict=True) if r.source is not None]
    if all(c is EVERYWHERE for c in outside):
        return dict.fromkeys(rules.outputs, EVERYWHERE)
    if all(c is not EVERYWHERE and () in c for c in outside):
        return dict.fromkeys(rules.outputs, frozenset([()]))
    derived = [i for i, r in enumerate(rules.relations) if r.source is None]
    columns = [range(rules.relations[i].keys) for i in derived]
    for choice in product(*columns):
        keys = dict(zip(derived, choice, strict=True))
        if all(_stays(rule, keys, claims, rules) for rule in rules.rules):
            return {name: frozenset([(keys[i],)]) for name, i in rules.outputs.items()}
    raise MisplacedError(f"no key keeps the rules for {list(rules.outputs)} in their partitions")


def _stays(rule: Rule, keys: dict[int, int], claims: list[Claim], rules: RuleProgram) -> bool:
    if keys[rule.head] >= len(rule.terms):
        return False
    key = rule.terms[keys[rule.head]]
    bound = False
    for atom in rule.atoms:
        if atom.relation in keys:
            if atom.terms[keys[atom.relation]] != key:
                return False
            bound = True
        elif (found := claims[atom.relation]) is not EVERYWHERE:
            if not any(cols and all(atom.terms[c] == key for c in cols) for cols in found):
                return False
            bound |= rules.relations[atom.relation].kind == "external"
    return bound


def claim(node: Node, tables: Mapping[str, Claim], views: Mapping[str, Claim]) -> Claim:
    """Where the rows of a plan are; MisplacedError if an operator in it does not see what it must."""
    match node:
        case Scan():
            return tables[node.table]
        case Ref():
            return views[node.view]
        case logical.Values():
            return EVERYWHERE
        case LocalFilter():
            if _first_only(node, tables, views):
                return frozenset([()])
            _must(claim(node.input, tables, views) is EVERYWHERE, node)
            return frozenset([node.cols or ()])
        case Ship():
            _must(claim(node.input, tables, views) is not EVERYWHERE, node)
            return EVERYWHERE if node.to == "all" else frozenset([node.cols])
    inputs = [_below(node, tables, views)] if len(node.inputs) == 1 else [claim(n, tables, views) for n in node.inputs]
    everywhere = all(i is EVERYWHERE for i in inputs)
    match node:
        case Project():
            return inputs[0] if inputs[0] is EVERYWHERE else _projected(node, inputs[0])
        case logical.Union():
            if everywhere:
                return EVERYWHERE
            return frozenset.intersection(*(_routed(i, node) for i in inputs))
        case Join():
            return _joined(node, inputs[0], inputs[1])
        case logical.SetOp():
            if everywhere:
                return EVERYWHERE
            common = _routed(inputs[0], node) & _routed(inputs[1], node)
            _must(bool(common), node)
            return common
        case logical.Distinct():
            _must(inputs[0] is EVERYWHERE or bool(inputs[0]), node)
        case Aggregate():
            if inputs[0] is EVERYWHERE:
                return EVERYWHERE
            _must(bool(node.keys), node)  # without keys it has a row in every partition
            own = frozenset(cols for cols in inputs[0] if set(cols) <= set(node.keys))
            _must(bool(own), node)
            places = [[i for i, k in enumerate(node.keys) if k == c] for c in range(len(node.input.schema))]
            return frozenset(p for cols in own for p in product(*(places[c] for c in cols)))
        case TopK():
            whole = node.limit is None and not node.offset
            _must(whole or inputs[0] is EVERYWHERE or () in inputs[0], node)
    return inputs[0]


def _must(fact: bool, node: Node) -> None:
    if not fact:
        raise MisplacedError(f"{type(node).__name__} does not see all it must: {node}")


def _routed(found: Claim, node: Node) -> Routed:
    _must(found is not EVERYWHERE, node)
    assert found is not None
    return found


def _below(node: Node, tables: Mapping[str, Claim], views: Mapping[str, Claim]) -> Claim:
    """Where the rows of a node's one input are; they may be results for parts that the node makes the whole of."""
    (below,) = node.inputs
    try:
        return claim(below, tables, views)
    except MisplacedError:
        if not (isinstance(below, Ship) and _completes(node, below.input)):
            raise
        _must(claim(below.input.inputs[0], tables, views) is not EVERYWHERE, node)
        return EVERYWHERE if below.to == "all" else frozenset([below.cols])


def _completes(node: Node, part: Node) -> bool:
    """Whether the node makes of results for parts of the rows what it would make of all rows."""
    if isinstance(node, TopK) and isinstance(part, TopK):
        reach = node.limit is not None and part.limit == node.limit + node.offset
        return reach and not part.offset and part.order == node.order
    if not (isinstance(node, Aggregate) and isinstance(part, Aggregate)):
        return isinstance(node, logical.Distinct) and isinstance(part, logical.Distinct)
    keys = len(part.keys)
    exact = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
    for i, (agg, of) in enumerate(zip(node.aggs, part.aggs, strict=True)):
        bounded = of.function != "sum" or part.input.schema.types[of.column or 0].kind in (Kind.INTEGER, Kind.DECIMAL)
        if exact.get(of.function) != agg.function or agg.column != keys + i or not bounded:
            return False
        if of.distinct and of.function not in ("min", "max"):
            return False
    return node.keys == tuple(range(keys)) and node.schema.types == part.schema.types


def _first_only(node: LocalFilter, tables: Mapping[str, Claim], views: Mapping[str, Claim]) -> bool:
    """An aggregate without keys whose rows are in the first partition, and its answer there."""
    if node.cols is not None or not isinstance(node.input, Aggregate) or node.input.keys:
        return False
    below = _below(node.input, tables, views)
    return below is not EVERYWHERE and () in below


def _strip(expr: Expr) -> Expr:
    if isinstance(expr, Cast) and expr.type.kind is Kind.BIGINT and expr.arg.type.is_integer:
        return _strip(expr.arg)
    return expr


def _projected(node: Project, found: Routed) -> Routed:
    exprs = [_strip(e) for e in node.exprs]
    places = [[i for i, e in enumerate(exprs) if e == Col(e.type, c)] for c in range(len(node.input.schema))]
    return frozenset(p for cols in found for p in product(*(places[c] for c in cols)))


def _joined(node: Join, left: Claim, right: Claim) -> Claim:
    ours, theirs, width = node.left.schema.types, node.right.schema.types, len(node.left.schema)
    whole = (Kind.INTEGER, Kind.BIGINT)
    keys = {
        (a, b)
        for a, b in node.keys
        if (ours[a] == theirs[b] and ours[a].kind is not Kind.INTERVAL) or {ours[a].kind, theirs[b].kind} <= {*whole}
    }
    if left is EVERYWHERE and right is EVERYWHERE:
        return EVERYWHERE
    if left is EVERYWHERE:
        _must(node.kind in ("inner", "right"), node)
    elif right is EVERYWHERE:
        _must(node.kind in ("inner", "left", "semi", "anti", "mark"), node)
    else:
        meet = any(len(a) == len(b) and set(zip(a, b, strict=True)) <= keys for a in left for b in right)
        _must(meet, node)
    beside = frozenset(tuple(c + width for c in cols) for cols in right) if right is not EVERYWHERE else _NOWHERE
    if node.kind == "right":
        return beside
    if node.kind == "full":
        assert left is not EVERYWHERE
        return left & frozenset([()])
    if node.kind != "inner":
        return left
    found = (left if left is not EVERYWHERE else _NOWHERE) | beside
    same = [{c} for c in range(width + len(theirs))]
    for a, b in keys:
        both = same[a] | same[b + width]
        for c in both:
            same[c] = both
    return frozenset(p for cols in found for p in product(*(sorted(same[c]) for c in cols)))


# -- running -----------------------------------------------------------------------------------------------------------


def _batch(parts: Iterable[Batch], width: int) -> Batch:
    parts = list(parts)
    rows = np.concatenate([np.empty((0, width), np.int64), *(p.rows for p in parts)])
    return Batch(np.ascontiguousarray(rows), np.concatenate([np.empty(0, np.int64), *(p.ann for p in parts)]))


def _kept(batch: Batch, keep: Codes) -> Batch:
    return Batch(np.ascontiguousarray(batch.rows[keep]), batch.ann[keep])


class Partitions:
    """The partitions of a database, each with its share of the tables, and the views as the plan makes them."""

    def __init__(self, plan: Distributed, tables: Mapping[str, Batch], dictionary: Dictionary):
        self.plan, self.dictionary, self.count = plan, dictionary, plan.partitions
        self.held: list[dict[str, Batch]] = [{} for _ in range(self.count)]  # tables as $t, views, moved rows as $1 …
        for name, batch in tables.items():
            self._keep(f"table {name}", self._sent([batch], plan.tables[name]))
        for piece in plan.pieces:
            self._run(piece)

    def _run(self, piece: PlannedComponent) -> None:
        if piece.node is not None:
            self._keep(piece.views[0], self._rows(piece.node))
        if piece.rules is None:
            return
        rules = piece.rules
        relations = list(rules.relations)
        for i, relation in enumerate(relations):
            if relation.source is not None:
                moved = self._table(self._rows(relation.source), relation.source)
                relations[i] = replace(relation, source=moved)
        over = RuleProgram(relations, rules.rules, rules.outputs)
        found: dict[str, list[Batch]] = {name: [] for name in rules.outputs}
        for held in self.held:
            flow, builder = self._flow(held, [r.source for r in relations if r.source is not None])
            assert piece.settings is not None
            fixpoint = build_fixpoint(over, builder, piece.views, replace(piece.settings, maintain=None))
            for name, number in rules.outputs.items():
                port = Port(fixpoint, number)
                flow.add_view(name, port)
                found[name].append(port.contents())
        for name, rows in found.items():
            self._keep(name, rows)
        for name, node in piece.after:
            self._keep(name, self._rows(node))

    def rows(self, view: str) -> Batch:
        """A view as its readers see it."""
        parts = [held[view] for held in self.held]
        everywhere = self.plan.views[view].kind == "all"
        return _batch(parts[:1] if everywhere else parts, parts[0].rows.shape[1])

    def astray(self, view: str) -> int:
        """The rows of a view that are not where the plan says."""
        parts = [held[view] for held in self.held]
        match self.plan.views[view]:
            case Distribution("hash", cols):
                at = [route(p.rows, np.array(cols, np.int64), self.count) for p in parts]
                return sum(int((a != i).sum()) for i, a in enumerate(at))
            case Distribution("one"):
                return sum(len(p.rows) for p in parts[1:])
            case Distribution("all"):
                return sum(sorted(p.rows.tolist()) != sorted(parts[0].rows.tolist()) for p in parts)
        return 0

    def _keep(self, name: str, rows: list[Batch]) -> None:
        for held, batch in zip(self.held, rows, strict=True):
            held[name] = batch

    def _sent(self, parts: list[Batch], dist: Distribution) -> list[Batch]:
        whole = _batch(parts, parts[0].rows.shape[1])
        if dist.kind == "all":
            return [whole] * self.count
        at = route(whole.rows, np.array(dist.cols, np.int64), self.count)
        return [_kept(whole, at == p) for p in range(self.count)]

    def _table(self, rows: list[Batch], node: Node) -> Node:
        name = f"${len(self.held[0])}"
        self._keep("table " + name, rows)
        return Scan(node.schema, name)

    def _rows(self, node: Node) -> list[Batch]:
        """The rows of a plan in every partition."""
        node = self._without_moves(node)
        out = []
        for held in self.held:
            flow, builder = self._flow(held, [node])
            op = builder.build(node)
            if not op.primed:
                flow.add_view("result", op)
            out.append(op.contents())
        return out

    def _without_moves(self, node: Node) -> Node:
        """The plan over tables of what has been moved."""
        match node:
            case Ref():
                return self._table([held[node.view] for held in self.held], node)
            case Ship():
                parts = self._rows(node.input)
                return self._table(
                    self._sent(parts, Distribution("hash" if node.to != "all" else "all", node.cols)), node
                )
            case LocalFilter():
                parts = self._rows(node.input)
                at = [route(p.rows, np.array(node.cols or (), np.int64), self.count) for p in parts]
                return self._table([_kept(p, a == i) for i, (p, a) in enumerate(zip(parts, at, strict=True))], node)
        return node.with_inputs([self._without_moves(child) for child in node.inputs]) if node.inputs else node

    def _flow(self, held: dict[str, Batch], nodes: list[Node]) -> tuple[Dataflow, Builder]:
        flow = Dataflow()
        for scan in [n for node in nodes for n in logical.walk(node) if isinstance(n, Scan)]:
            if scan.table not in flow.tables:
                table = flow.table(scan.table, scan.schema)
                table.relation.apply(consolidate(held["table " + scan.table]))
                table.relation.commit()
        return flow, Builder(flow, self.dictionary, flow.views.__getitem__)
