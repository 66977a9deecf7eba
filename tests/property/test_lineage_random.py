"""Random networks over random streams in random cuts: lineage is what it is defined to be, and replay finds the same.

- The rows that come out, and the set of inputs of each, are those of an interpreter that follows rows one by one.
- Recomputing the network from just those inputs gives the row.
- Covering intervals are the hulls of the sets; replaying them gives the sets, whatever is asked for at once.
- Views over provenance() of covering intervals, which replay as results come, have the rows of those over lineage after
  every epoch, undone ones included.
- A view that keeps nothing is replayed from the beginning, and every encoding says the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests.depth import examples
from tests.streams.networks import (
    STREAMS,
    Base,
    Both,
    ByRows,
    ByValue,
    Filter,
    Item,
    Joined,
    Map,
    Net,
    Sorted,
    recomputed,
    run,
)
from whence.engine.streams.replay import checkpoints, covering_join

Arrivals = list[tuple[str, tuple[int, int, int]]]


@st.composite
def networks(draw: st.DrawFn, depth: int = 4) -> Net:
    """A network of some depth; parts of it are views of their own."""
    kind = draw(st.sampled_from(["base", "filter", "map", "both", "sort", "rows", "rows", "value", "value", "join"]))
    if not depth or kind == "base":
        return Base((), draw(st.sampled_from(STREAMS)))
    one = draw(networks(depth - 1))
    one.named = draw(st.booleans()) and not isinstance(one, Base)
    size = draw(st.integers(1, 4))
    by = draw(st.integers(0, 3)) == 0
    endless = draw(st.integers(0, 7)) == 0
    match kind:
        case "filter":
            return Filter((one,), draw(st.integers(2, 4)))
        case "map":
            return Map((one,))
        case "sort":
            return Sorted((one,), draw(st.integers(0, 3)))
        case "rows":
            return ByRows((one,), None if endless else size, draw(st.integers(1, 3)), by)
        case "value":
            return ByValue((one,), None if endless else size, draw(st.integers(1, 4)), by, draw(st.integers(0, 3)))
    other = draw(networks(depth - 1))
    if kind == "both":
        return Both((one, other))
    return Joined((one, other), (size, draw(st.integers(1, 4))), draw(st.booleans()))


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    """Rows of both streams; t mostly rises."""
    count = draw(st.integers(5, 60))
    found, t = [], 0
    for _ in range(count):
        t += draw(st.integers(-2, 3))
        row = t, draw(st.integers(0, 2)), draw(st.integers(0, 20))
        found.append((draw(st.sampled_from(STREAMS)), row))
    return found


def made(net: Net, options: dict[str, str]) -> whence.Database:
    """A database of a network whose last views, of the same query, have options."""
    db = whence.open()
    for stream in STREAMS:
        db.execute(f"CREATE STREAM {stream} (t INT, k INT, v INT) WITH (retain = 'all')")
    for number, part in enumerate(net.parts()):
        if part.named:
            part.name = f"part{number}"
            db.execute(f"CREATE VIEW {part.name} AS {part.sql()}")
    for name, option in options.items():
        db.execute(f"CREATE VIEW {name} {option} AS {net.sql()}")
    return db


def play(db: whence.Database, given: Arrivals, cuts: list[int]) -> None:
    at = 0
    for end in [*sorted(c % (len(given) + 1) for c in cuts), len(given)]:
        with db.transaction():
            for stream, row in given[at:end]:
                db.insert(stream, [row])
        at = max(at, end)


def lineage_of(db: whence.Database, view: str, items: list[Item]) -> list[Item]:
    """The rows of a view, in order, each with the tids behind it."""
    found: list[set[tuple[str, int]]] = [set() for _ in db[view].rows]
    for source in {s for _, tids in items for s, _ in tids}:
        for tid, other in db.query(f"SELECT tid, {source}_tid FROM provenance({view}, {source})"):
            found[tid - 1].add((source, other))
    return [(row, frozenset(tids)) for row, tids in zip(db[view].rows, found, strict=True)]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after every few rows."""
    monkeypatch.setattr(checkpoints, "LEAST", 5)
    monkeypatch.setattr(checkpoints, "TIMES", 0)
    monkeypatch.setattr(covering_join, "RESET", covering_join.RESET)  # which a test varies


OPTIONS = {
    "eager": "WITH (provenance = 'lineage')",
    "cover": "WITH (provenance = 'covering')",
    "bare": "",
}


@settings(max_examples=examples(40))
@given(networks(), arrivals(), st.lists(st.integers(0, 60), max_size=8))
def test_lineage_is_what_it_is_defined_to_be(net: Net, given_: Arrivals, cuts: list[int]) -> None:
    db = made(net, OPTIONS)
    play(db, given_, cuts)
    items = run(net, given_)
    assert db["eager"].rows == [row for row, _ in items]
    assert lineage_of(db, "eager", items) == items
    assert db["cover"].rows == db["bare"].rows == db["eager"].rows
    if is_plain(net):
        for row, tids in items:
            assert row in recomputed(net, given_, tids)


def is_plain(net: Net) -> bool:
    """Whether inputs that were not used leave no trace: windows pass over no rows, those by value are the last, and an
    input comes to them one way."""
    windows = any(isinstance(part, (ByRows, ByValue)) for part in net.parts())
    streams = [part.stream for part in net.parts() if isinstance(part, Base)]
    if windows and len(set(streams)) < len(streams):
        return False
    for part in net.parts():
        if isinstance(part, ByRows) and part.size is not None and part.every > part.size:
            return False
        if isinstance(part, ByValue) and part is not net:
            return False
        if isinstance(part, Joined) and part is not net and any(isinstance(p, (ByRows, ByValue)) for p in net.parts()):
            return False
    return True


@settings(max_examples=examples(40))
@given(networks(), arrivals(), st.lists(st.integers(0, 60), max_size=8), st.randoms(use_true_random=False))
def test_replay_finds_the_same(net: Net, given_: Arrivals, cuts: list[int], luck: Any) -> None:
    db = made(net, OPTIONS)
    play(db, given_, cuts)
    items = run(net, given_)
    assert lineage_of(db, "cover", items) == items
    some = sorted(luck.sample(range(len(items)), min(3, len(items))))
    for place in some:
        expected = {s: sorted(t for source, t in items[place][1] if source == s) for s in STREAMS}
        wanted = {s: tids for s, tids in expected.items() if tids}
        for view in ("cover", "bare"):
            assert db.why(view, tid=place + 1).tids == wanted
    listed = ", ".join(str(place + 1) for place in some) or "0"
    for source in STREAMS:
        if any(s == source for part in net.parts() if isinstance(part, Base) for s in [part.stream]):
            asked = f"SELECT tid, {source}_tid FROM provenance(%s, {source}) WHERE tid IN ({listed}) ORDER BY ALL"
            assert db.query(asked % "cover").rows == db.query(asked % "eager").rows


@settings(max_examples=examples(20))
@given(networks(), arrivals(), st.lists(st.integers(0, 60), max_size=8), st.integers(1, 3), st.sampled_from([0, 3]))
def test_continuous_replay_is_eager_after_every_epoch(
    net: Net, given_: Arrivals, cuts: list[int], some: int, reset: int
) -> None:
    covering_join.RESET = reset
    db = made(net, {name: OPTIONS[name] for name in ("eager", "cover")})
    streams = sorted({part.stream for part in net.parts() if isinstance(part, Base)})
    views = [f"{view}_{stream}" for view in ("eager", "cover") for stream in streams]
    for name in views:
        asked = f"provenance({name.replace('_', ', ')}) AS p"
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM {asked}")
        db.execute(f"CREATE VIEW {name}_some AS SELECT * FROM {asked} WHERE tid % 3 = {some - 1}")
    at = 0
    for end in [*sorted(c % (len(given_) + 1) for c in cuts), len(given_)]:
        rows = given_[at:end]
        inserted = {stream: [row for s, row in rows if s == stream] for stream in {s for s, _ in rows}}
        db.what_if(insert=inserted)  # runs an epoch, and undoes it
        with db.transaction():
            for stream, row in rows:
                db.insert(stream, [row])
        at = max(at, end)
        for stream in streams:
            for suffix in ("", "_some"):
                assert db[f"cover_{stream}{suffix}"].rows == db[f"eager_{stream}{suffix}"].rows
            assert db[f"cover_{stream}"].rows == db.provenance("cover", stream).rows


@settings(max_examples=examples(15))
@given(networks(), arrivals(), st.lists(st.integers(0, 60), max_size=4))
def test_every_encoding_says_the_same(net: Net, given_: Arrivals, cuts: list[int]) -> None:
    encodings = ("ids", "intervals", "deltas", "dictionary", "adaptive")
    db = made(net, {f"e_{e}": f"WITH (provenance = 'lineage', encoding = '{e}')" for e in encodings})
    play(db, given_, cuts)
    items = run(net, given_)
    for encoding in encodings:
        assert lineage_of(db, f"e_{encoding}", items) == items
