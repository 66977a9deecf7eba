"""Whatever is in an image, restoring it raises or gives an operator that stays inside its memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import whence
from tests import inside
from tests.streams.window_reference import Source
from whence.annotate import lineage as lineages
from whence.annotate.covering import Covering
from whence.annotate.kernels import tid_sets as ts
from whence.annotate.lineage import ENCODINGS, Lineage
from whence.engine.core.image import Image, StaleImage
from whence.engine.core.operator import Batch
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream import StreamOperator
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.engine.streams.windows.window_join import WindowJoin
from whence.model import types as t
from whence.model.codes import Dictionary, encode_value
from whence.model.errors import DataError
from whence.model.types import Column, Schema
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import Span, with_at
from whence.runtime.durable.images import Capture

ROWS = with_at(Schema((Column("k", t.BIGINT), Column("time", t.BIGINT), Column("name", t.TEXT))))
WORDS = Dictionary()
NAMES = [encode_value(name, t.TEXT, WORDS) for name in "abc"]
AGGS = (Agg("count", None), Agg("min", 2), Agg("count", 1, True), Agg("quantile", 1, False, 0.5))
SHOWN = with_at(
    Schema(
        (
            Column("k", t.BIGINT),
            Column("n", t.BIGINT),
            Column("m", t.TEXT),
            Column("d", t.BIGINT),
            Column("q", t.BIGINT),
        )
    )
)
PAIRS = with_at(Schema(ROWS.columns[:-1] + ROWS.columns[:-1]))


def rows(first: int, end: int) -> np.ndarray:
    return np.array([(i % 3, i // 2, NAMES[i % 2], i) for i in range(first, end)], np.int64).reshape(-1, 4)


def window(tracer: object = None, by: tuple[int, ...] = (0,), **span: int) -> Window:
    return Window(Source(ROWS, tracer), Span(**({"size": 4, "every": 2} | span), by=by), (0,), AGGS, SHOWN, WORDS)


def joined(*spans: Span) -> WindowJoin:
    return WindowJoin(Source(ROWS), Source(ROWS), *spans, ((0, 0),), None, PAIRS, WORDS)


KINDS: dict[str, Callable[[], StreamOperator]] = {
    "window": window,
    "window of groups": lambda: window(by=()),
    "window by value": lambda: window(on=1),
    "landmark": lambda: window(size=None),  # type: ignore[arg-type]  # everything so far
    "join": lambda: joined(Span(4), Span(3, by=(0,))),
    "join by value": lambda: joined(Span(4, on=1), Span(3, on=1)),
    "latest": lambda: Latest(Source(ROWS), Span(4, by=(0,)), Schema(ROWS.columns[:-1])),
    "b-sort": lambda: BSort(Source(ROWS), 1, 5),
}


def feed(op: StreamOperator, first: int, end: int, tracer: Lineage | Covering | None = None) -> None:
    for start in range(first, end, 5):
        given = rows(start, min(end, start + 5))
        ann = np.ones(len(given), np.int64) if tracer is None else tracer.generate("s", given[:, -1])
        op.apply([Batch(given, ann) for _ in op.inputs])
        op.commit()


def copied(image: Image) -> Image:
    return {name: array.copy() for name, array in image.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_any_word_of_an_image_may_be_wrong(kind: str):
    luck, op, refused = random.Random(kind), KINDS[kind](), 0
    feed(op, 1, 40)
    for _ in range(60):
        image = copied(op.image())
        words = luck.choice([array for array in image.values() if array.size]).reshape(-1)
        at = luck.randrange(len(words))
        words[at] = luck.choice((-1, 0, 7, int(words[at]) ^ 1 << luck.randrange(62), 2**62, -(2**63)))
        again = KINDS[kind]()
        try:
            again.restore(image)
        except (StaleImage, DataError):
            refused += 1
            feed(again, 1, 40)
            assert {n: a.tolist() for n, a in again.image().items()} == {n: a.tolist() for n, a in op.image().items()}
        else:
            try:
                feed(again, 40, 80)
            except whence.EvaluationError as error:
                assert "windows at once" in str(error) or "too far" in str(error)  # noqa: PT017  # some do not fail
    assert refused


@pytest.mark.parametrize(
    ("store", "word", "value"),
    [
        ("groups", st.G_HEAD, 10**6),
        ("groups", st.G_BACK, -5),
        ("panes", st.L_KEPT, 3000),
        ("groups", st.G_BATCH, 10**9),
        ("clocks", st.C_GROUPS, 77),
        ("clocks", st.C_OFFSET, 9),
        ("panes", st.L_NEXT, 2),
        ("panes", st.L_PREV, 900),
        ("panes", st.L_FIELDS, 10**7),
        ("kept", 0, 0),
        ("kept", 1, 123_456),
        ("entries", 3, 5),
        ("nodes", 0, 10**5),
        ("nodes", 5, 1000),
    ],
)
def test_lines_of_windows_that_lead_astray_are_refused(store: str, word: int, value: int):
    op = window()
    feed(op, 1, 30)
    image = copied(op.image())
    group, counted = image["groups/data"][0], image["entries/data"][:, 3]
    head = group[st.G_HEAD]
    line = {"panes": head, "kept": image["panes/data"][head, st.L_KEPT], "nodes": group[op._plan.orders[0, 1]]}
    image[f"{store}/data"][np.flatnonzero(counted)[0] if store == "entries" else line.get(store, 0), word] = value
    again = window()
    with pytest.raises(StaleImage):
        again.restore(image)
    feed(again, 1, 30)
    assert all(np.array_equal(a, again.image()[name]) for name, a in op.image().items())


@pytest.mark.parametrize("by", [(), (0,)])
@pytest.mark.parametrize("kind", [Lineage, Covering])
def test_annotations_of_other_rows_are_refused(kind: type[Lineage] | type[Covering], by: tuple[int, ...]):
    tracer = kind(("s",))
    op = window(tracer, by)
    feed(op, 1, 30, tracer)
    image = copied(op.image())
    name = "ann/handles" if kind is Lineage else "ann/spans"
    image[name] = image[name][:-1]
    with pytest.raises(StaleImage, match="annotations of"):
        window(tracer, by).restore(image)


def test_a_b_sort_holds_back_no_more_than_it_may():
    op = BSort(Source(ROWS), 1, 20)
    feed(op, 1, 18)
    with pytest.raises(StaleImage, match="not there"):
        BSort(Source(ROWS), 1, 3).restore(op.image())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_sets_that_are_not_in_order_are_refused(encoding: str):
    tracer = Lineage(("s",), encoding)
    tids = np.cumsum(np.tile(np.array([1, 2, 1, 5]), 10))
    starts = np.arange(len(tids) - 9)
    image = tracer.image(tracer.over(tracer.generate("s", tids), starts, starts + 9))
    assert Lineage(("s",), encoding).restore(image).tolist()
    start = int(image["sets"][0, ts.START])
    for to, word in ((1, 0), (1, -4), (0, 1 << 50)):
        broken = copied(image)
        broken["items"][start + to] = word
        with pytest.raises(DataError):
            Lineage(("s",), encoding).restore(broken)


def test_a_dictionary_that_is_not_what_was_packed_is_refused_when_it_is_read():
    tracer = Lineage(("s",), "dictionary")
    a = tracer.over(tracer.generate("s", np.arange(1, 100, 3)), np.array([0, 5]), np.array([20, 30]))
    for word, value in ((ts.D_KIND, ts.INTERVALS), (ts.D_WORDS, 21), (ts.D_LAST, 70), (ts.D_COUNT, 3)):
        image = tracer.image(a)
        image["items"][image["sets"][0, ts.START] + word] = value
        again = Lineage(("s",), "dictionary")
        column = again.restore(image)
        with pytest.raises(DataError):
            again.over(np.concatenate((column, column)), np.array([0]), np.array([4]))


def test_names_of_streams_that_cannot_be_read_are_refused():
    for tracer in (Lineage(("s",)), Covering(("s",))):
        image = tracer.image(tracer.generate("s", np.array([1, 2])))
        image["sources"][0] = 0xFF
        with pytest.raises(DataError):
            tracer.restore(image)
    other = Covering(("t",))
    with pytest.raises(DataError):
        Covering(("s",)).restore(other.image(other.generate("t", np.array([1]))))


def test_what_was_dropped_while_a_snapshot_waits_for_it_is_still_whole(monkeypatch: pytest.MonkeyPatch):
    """Its sets are in a pool that others go on with: they must not be forgotten before the copy is made."""
    monkeypatch.setattr(lineages, "_FLOOR", 0)
    db = whence.open()
    db.execute("""
        CREATE STREAM s (x INT);
        CREATE VIEW a WITH (provenance = 'lineage') AS SELECT COUNT(*) AS n FROM slide(s, rows => 5, every => 1);
        CREATE VIEW b WITH (provenance = 'lineage') AS SELECT SUM(x) AS n FROM slide(s, rows => 3, every => 1);
    """)
    for i in range(10):
        db.insert("s", [(i,), (i,)])
    flow = inside.dataflow(db)
    op, tracer = flow.views["a"], flow.views["a"].tracer  # type: ignore[attr-defined]  # a stream view
    tids = tracer.tids(op.kept.ann, "s")[1].tolist()  # type: ignore[attr-defined]
    capture = Capture(flow, ())
    db.execute("DROP VIEW a")
    for i in range(10):
        db.insert("s", [(i,), (i,)])
    found = {}
    while (part := capture.take()) is not None:
        found[part[0]] = part[1]
    capture.end(True)
    again = Lineage(("s",))
    image = found[f"op/{op.fingerprint}"]
    column = again.restore({name[len("ann/") :]: a for name, a in image.items() if name.startswith("ann/")})
    assert again.tids(column, "s")[1].tolist() == tids
    db.close()
