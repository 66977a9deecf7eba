"""Calls every kernel of operators and annotations once, on tiny inputs, so that it is compiled (`runtime.warm`).

A part is what one process compiles; parts have few kernels in common.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.annotate.bdd import Bdd
from whence.annotate.covering import Covering
from whence.annotate.lineage import ENCODINGS, Lineage
from whence.annotate.order import DepthFirst
from whence.annotate.relative import Relative
from whence.annotate.witnesses import Witnesses
from whence.engine.build import Builder
from whence.engine.core.batch import consolidate
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.kernels import batches, index, table
from whence.engine.core.operator import Batch
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.core.relation import Relation
from whence.engine.core.statistics import distinct_keys
from whence.engine.exchange.heavy_keys import with_key
from whence.engine.exchange.kernels import routing
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.exchange.wire import MessageWriter, packed_size, packets
from whence.engine.expressions.kernels import conditions
from whence.engine.matching.interval_histogram import IntervalHistogram
from whence.engine.matching.match_distinct import MatchDistinct
from whence.engine.matching.match_least import MatchLeast
from whence.engine.matching.match_pairs import MatchPairs
from whence.engine.matching.match_rows import MatchRows
from whence.engine.matching.match_top import MatchTop
from whence.engine.matching.matching import Matching
from whence.engine.matching.range_minima import RangeMinima
from whence.engine.recursion.components import build_fixpoint, build_outputs
from whence.engine.recursion.fixpoint import Fixpoint, annotated_policy
from whence.engine.recursion.kernels import fixpoint as fixpoint_kernels
from whence.engine.recursion.kernels import mailbox as mb
from whence.engine.recursion.kernels.search import GATHER
from whence.engine.relational.aggregate import Aggregate
from whence.engine.relational.kernels import aggregate, float_sum
from whence.engine.relational.topk_per_group import TopKPerGroup
from whence.engine.relational.values import Values
from whence.engine.streams.sort import BSort
from whence.engine.streams.windows.bounded_join import BoundedJoin
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.engine.streams.windows.window_join import WindowJoin
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, DOUBLE, Column, Schema
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col, Lit
from whence.plan.partitions.exchange import plan_exchange
from whence.plan.recursion.rule_model import Atom, RelationKind, Rule, RuleProgram, RuleRelation
from whence.plan.recursion.settings import POLICIES, Maintain, Settings
from whence.plan.streams.model import AT, MemoryLimit, Span

_NOTHING = logical.Values(Schema(()), ())


def _relations() -> None:
    """Rows through a relation, an aggregate and an order."""
    rows = np.array([[1, 2], [1, 3], [1, 2]], np.int64)
    ones = np.ones(3, np.int64)
    _relation(consolidate(Batch(rows, ones)))
    first = np.zeros(1, np.int64)
    batches.join_batches(rows, first, rows, first)
    batches.number_rows(rows)
    batches.split_signs(rows, ones)
    routing.split(routing.route(rows, first, 2), 2)
    with_key(rows, (0,), first.reshape(1, 1))
    batches.sum_by(aggregate.group_rows(rows, first, ones)[0], ones, 1)
    batches.run_sums(first, first, 1)
    conditions.decide(np.array([[conditions.COLUMN, 0, 0]]), rows)
    conditions.select_each(np.array([[conditions.COLUMN, 0, 0]]), np.ones(1, np.int64), rows)
    index.pair_rows(rows, ones, first, rows, ones, first, first)
    float_sum.find_range(rows, 1, np.empty(2, np.int64))
    _aggregates(Batch(rows, ones))
    ordered = Ordered([Rank(0), Rank(1)], Dictionary())
    ordered.add(rows, ones)
    ordered.first(rows[:, :1].copy())
    ordered.head(1)


def _range_minima() -> None:
    """Points whose ranges change."""
    points, rows = RangeMinima(0, BIGINT, BIGINT, Dictionary()), np.array([[1, 2], [1, 3]], np.int64)
    for change in (1, -1):
        points.change(rows, np.full(2, change, np.int64))
    points.undo()
    points.least(np.zeros((1, 2), np.int64))
    points.mar(rows[0])


def _recursion() -> None:
    for policy in POLICIES:
        _fixpoint(policy)
    for kind in ("set", "best"):
        for policy in POLICIES:
            _exchange(kind, policy=policy)
    _provenance()
    _letters()


def _witnesses() -> None:
    for algebra in (Witnesses(), Relative()):
        _functions(algebra)


def _aggregates(batch: Batch) -> None:
    """A sum of doubles, and one of distinct ones."""
    words, schema = Dictionary(), Schema((Column("a", BIGINT), Column("b", DOUBLE)))
    input = Values(((1, 1.0),), schema, words)
    for distinct in (False, True):
        operator = Aggregate(input, (0,), (logical.Agg("sum", 1, distinct),), schema, words)
        operator.apply([batch])
        operator.recompute()


def _windows() -> None:
    """A row through a traced window of its key."""
    words, pair = Dictionary(), Schema((Column("a", BIGINT), Column(AT, BIGINT)))
    tracer, stream = Covering(("a",)), Values(((1, 1),), pair, words)
    row = stream.recompute()
    stream.tracer = tracer  # as instrumented streams have it
    window = Window(stream, Span(1, 1, by=(0,)), (), (logical.Agg("count", None),), pair, words)
    window.apply([Batch(row.rows, tracer.generate("a", row.ann))])
    window.commit()
    window.held()
    window.restore(window.image())
    values = Window(stream, Span(None, 1, on=0, by=(0,)), (0,), (), Schema((*pair.columns,)), words)
    values.apply([Batch(row.rows, tracer.generate("a", row.ann))])
    values.promise(None, 2)
    values.undo()


def _matching() -> None:
    """Subscriptions of each kind of template, and rows of the data, that come, go and are undone."""
    words, one, three = Dictionary(), Schema((Column("a", BIGINT),)), Schema(tuple(Column(n, BIGINT) for n in "ilh"))
    data, parameters = Values(((1,),), one, words), Values(((1, 0, 2),), three, words)
    columns = Schema((Column("i", BIGINT), Column("a", BIGINT)))
    shown = tuple(Col(BIGINT, at) for at in range(2))
    node = logical.MatchRows(columns, _NOTHING, _NOTHING, (), (logical.Range(0, 1, 2),), shown)
    _come_and_go(MatchRows([data, parameters], node, words))
    triple, side = Schema(tuple(Column(name, BIGINT) for name in "iab")), logical.Side((), logical.Range(0, 1, 2), ())
    shown = tuple(Col(BIGINT, at) for at in range(3))
    pair = logical.MatchPairs(triple, _NOTHING, _NOTHING, _NOTHING, 0, (side, side), None, shown)
    _come_and_go(MatchPairs([data, data, parameters], pair, words))
    two, given = (
        Schema((*one.columns, *one.columns)),
        (columns, _NOTHING, _NOTHING, (), logical.Range(0, 1, 2), shown[:2]),
    )
    points = Values(((1, 1),), two, words)
    _come_and_go(MatchLeast([points, parameters], logical.MatchLeast(*given), words))
    _come_and_go(MatchDistinct([points, parameters], logical.MatchDistinct(*given), words))
    ranges, order = (logical.Range(0, 1, 2),), (logical.Order(1),)
    top = logical.MatchTop(columns, _NOTHING, _NOTHING, (), ranges, order, 1, 0, shown[:2])
    _come_and_go(MatchTop([points, parameters], top, words))
    first = TopKPerGroup(points, logical.TopKPerGroup(two, _NOTHING, (0,), order, Lit(BIGINT, 1)), words)
    first.apply([points.recompute()])
    _range_minima()
    ends = np.arange(4, dtype=np.int64)
    histogram = IntervalHistogram()
    histogram.build(ends, ends + 2)


def _come_and_go(op: Matching) -> None:
    contents = [one.recompute() for one in op.inputs]
    for change in (1, -1):
        op.apply([Batch(batch.rows, change * batch.ann) for batch in contents])
        op.commit()
    op.apply(contents)
    op.undo()


def _stream_operators() -> None:
    """A row, and one that is undone, through each operator with kernels of its own."""
    words, pair = Dictionary(), Schema((Column("a", BIGINT), Column(AT, BIGINT)))
    stream, three = Values(((1, 1),), pair, words), Schema((*pair.columns, Column("b", BIGINT)))
    row = stream.recompute()
    for span in (Span(1, by=(0,)), Span(1, on=0)):
        join = WindowJoin(stream, stream, span, span, ((0, 0),), None, three, words)
        bounded = [
            BoundedJoin(stream, stream, Span(1), Span(1), ((0, 0),), None, three, words, MemoryLimit(rows, keep="prob"))
            for rows in (1, 100)
        ]
        for op in (BSort(stream, 0, 0), Latest(stream, span, Schema(pair.columns[:1])), join, *bounded):
            op.apply([row] * len(op.inputs))
            op.commit()
            op.apply([row] * len(op.inputs))
            if isinstance(op, BSort):
                op.promise(None, 2)
            op.undo()
            op.restore(op.image())


def _tracers() -> None:
    """Windows of windows, in order and not, of one stream and of two."""
    starts = np.arange(20, dtype=np.int64)
    for encoding in ENCODINGS:
        lineage = Lineage(("a", "b"), encoding)
        a, b = (lineage.generate(source, starts + 1) for source in lineage.sources)
        for column in (a[::2].repeat(2), a[::-1], np.column_stack((a, b)).reshape(-1)):
            found = lineage.over(lineage.over(column, starts[:10], starts[:10] + 9), starts[:4], starts[:4] + 5)
        paths = [lineage.over(lineage.generate("a", 2 * np.arange(40) + at), starts, starts + 20) for at in (1, 2)]
        lineage.over(np.column_stack(paths).reshape(-1), starts, starts + 2)
        lineage.contains(found, "a", 1)
        lineage.spans(lineage.restore(lineage.image(found)), "b")
        lineage.tids(found, "a")
        lineage.collect([found])
    covering = Covering(("a",))
    for hulls in (covering.generate("a", starts + 1), covering.generate("a", 20 - starts)):
        covering.over(covering.times(hulls, hulls), starts[:9], starts[:9] + 9)


def _functions(algebra: Witnesses | Relative | Bdd) -> None:
    """Two alternatives of each of many rows, through every operation of an algebra; enough of them that it grows."""
    names = np.arange(1000, dtype=np.int64)
    one, other = algebra.of_tid(names), algebra.of_tid(names + 1)
    found = algebra.derived(algebra.times(one, other), names, names + 2000, np.column_stack([names, names + 1]))
    found = algebra.plus(found, algebra.derived(one, names, names + 2000, names[:, None]))
    found = algebra.total(np.repeat(found, 3), 3 * names)
    algebra.implied(found, one)
    algebra.without(found, names[:2])
    algebra.support(found)
    algebra.sizes(found)
    algebra.unpack(*algebra.pack(found))
    algebra.restore(algebra.image())
    if isinstance(algebra, Witnesses):
        algebra.parts(found)
    algebra.collect(found)


def _diagrams() -> None:
    bdd, names = Bdd(order=DepthFirst()), np.arange(10, dtype=np.int64)
    for part in (names[:9], names[9:]):
        bdd.place(part, part, part + 1)
    _functions(bdd)
    (one,) = bdd.total(bdd.reorder(bdd.of_tid(names)), np.zeros(1, np.int64))
    bdd.witnesses(int(one), 1)
    bdd.labels.displaced  # noqa: B018  # computed


def _fixpoint(policy: str) -> None:
    """A closure of two links, one of which comes and goes, and every other call on its store."""
    pair = Schema((Column("a", BIGINT), Column("b", BIGINT)))
    link, closure = RuleRelation("link", pair, "external"), RuleRelation("closure", pair, "set")
    base = Rule(1, (0, 1), (Atom(0, (0, 1)),), (), (), 2)
    step = Rule(1, (0, 2), (Atom(0, (0, 1)), Atom(1, (1, 2))), (), (), 3)
    program = RuleProgram([link, closure], [base, step])
    fixpoint = Fixpoint(program, [], Dictionary(), {}, name="closure", policy=policy)
    rows = np.array([[1, 2], [2, 3]], np.int64)
    for change in (1, -1):
        fixpoint.apply([Batch(rows, np.full(2, change, np.int64))])
        fixpoint.commit()
    fixpoint.holds(1, fixpoint.live(1))
    store = fixpoint.store
    store.gather(np.zeros(1, np.int64), GATHER, False)
    none = np.empty((0, 2), np.int64)
    store.drive(fixpoint_kernels.emit_block, 0, 1, none, none)
    for _ in range(2):
        store.grow()
    store.compact(at_least=0)


def _provenance() -> None:
    """Cheapest paths with annotations: a link comes, goes, and comes in an epoch that is taken back."""
    triple = Schema(tuple(Column(name, BIGINT) for name in "abc"))
    link, found = RuleRelation("link", triple, "external"), RuleRelation("found", triple, "best", 1)
    base = Rule(1, (0, 1, 2), (Atom(0, (0, 1, 2)),), (), (), 3)
    step = Rule(1, (0, 3, 4), (Atom(0, (0, 1, 2)), Atom(1, (1, 3, 4))), (), (), 5)
    program = RuleProgram([link, found], [base, step])
    fixpoint = Fixpoint(program, [], Dictionary(), {}, name="found", policy=Maintain("absorption"))
    policy = annotated_policy(fixpoint)
    assert policy is not None
    rows = np.array([[1, 2, 5], [2, 3, 1], [1, 2, 4]], np.int64)
    for change in (1, -1):
        fixpoint.apply([Batch(rows, np.full(3, change, np.int64))])
        fixpoint.commit()
    fixpoint.apply([Batch(rows, np.ones(3, np.int64))])
    policy.annotations_of(1, fixpoint.live(1))
    fixpoint.undo()
    variables = policy.variables
    variables.find(*variables.rows(np.zeros(1, np.int64)))
    variables.keep(np.zeros(1, np.int64))


def _letters() -> None:
    """What partitions tell each other of annotated rows."""
    _exchange("set", Maintain("absorption"))
    numbers = np.arange(3)
    for packet in packets(MessageWriter().numbers(numbers).letter()):
        packet.numbers()
    packed_size(numbers)


def _exchange(kind: RelationKind, maintain: Maintain | None = None, policy: str = "support") -> None:
    """A closure, or cheapest paths, in a partition that could exchange rows with others, with an epoch taken back."""
    triple = Schema(tuple(Column(name, BIGINT) for name in "abc"))
    link = RuleRelation("link", triple, "external", source=logical.Scan(triple, "link"))
    found = RuleRelation("found", triple, kind, sign=int(kind == "best"))
    base = Rule(1, (0, 1, 2), (Atom(0, (0, 1, 2)),), (), (), 3)
    step = Rule(1, (0, 3, 4), (Atom(0, (0, 1, 2)), Atom(1, (1, 3, 4))), (), (), 5)
    ranked = policy == "support" and maintain is None
    spec = plan_exchange(RuleProgram([link, found], [base, step], {"found": 1}), lambda _: False, ranked)
    flow = Dataflow()
    flow.table("link", triple)
    builder = Builder(flow, Dictionary(), flow.views.__getitem__)
    operator = build_fixpoint(spec.rules, builder, ("found",), Settings("found", policy, 100, 1000, maintain), spec)
    flow.install(build_outputs(operator, ("found",), (), builder))
    _run(flow, {})
    flow.commit()
    rows = np.array([[1, 2, 5], [2, 3, 1], [1, 2, 4]], np.int64)
    _run(flow, {"link": Batch(rows, np.ones(3, np.int64), True)})
    flow.commit()
    _run(flow, {"link": Batch(rows[:1], np.full(1, -1, np.int64), True)})
    flow.undo()
    if ranked:  # alone it is sent nothing, and doubts nothing
        operator.runner.call(mb.deliver, operator.runner.joined([]), restart=True)
        operator.runner.call(mb.settle_doubts, restart=True)
        operator.runner.call(fixpoint_kernels.suspect_doubted, restart=True)


def _run(flow: Dataflow, deltas: dict[str, Batch]) -> None:
    """All stages of one partition that is alone."""
    stage: int | None = 0
    waiting: dict[int, list[PartitionMessage]] = {}
    while stage is not None:
        received = {message.channel: message.batch for message in waiting.pop(stage, [])}
        for message in flow.run_stage(stage, deltas, received):
            waiting.setdefault(message.stage, []).append(message)
        stage, deltas = min((s for s in (*waiting, flow.waits(stage)) if s is not None), default=None), {}


def _relation(batch: Batch) -> None:
    relation = Relation(2)
    relation.index((0,))
    relation.apply(batch)
    distinct_keys(relation, (1,))
    relation.range_index((0, 1)).between(batch.rows, batch.ann)
    relation.apply(Batch(batch.rows, -batch.ann, True))
    relation.undo()
    relation.probe((0,), batch.rows[:, :1].copy())
    key, found = np.zeros(1, np.int64), relation.index((0,))
    index.join_rows(batch.rows, batch.ann, key, relation.rows, relation.ann, found.cols, found.slots, found.nxt, key)
    relation.lookup(batch.rows)
    relation.restore(relation.image())
    relation.scan()
    table.rehash(relation.slots, np.zeros(2 * len(relation.slots), np.int64))


# The longest first: so several processes end at about the same time.
PARTS: dict[str, Callable[[], None]] = {
    "recursion": _recursion,
    "windows": _windows,
    "lineage": _tracers,
    "witnesses": _witnesses,
    "diagrams": _diagrams,
    "streams": _stream_operators,
    "matching": _matching,
    "relations": _relations,
}
