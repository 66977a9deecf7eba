"""Files of inputs and the records that name them; and folders whose state stands in the images of partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.faults import Failing, Mortal, Unplugged, dies, points
from tests.workload import abandon, open_small
from whence.engine.core.epoch import Epoch, InputSection
from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels.routing import route
from whence.io.rows import encode
from whence.model.codes import Codes
from whence.model.errors import CorruptionError, StorageError
from whence.runtime.database import Database
from whence.runtime.durable.recovery import resolve
from whence.state import manifest as manifest_
from whence.state.chain import Writer
from whence.state.codec import pack_words
from whence.state.disk import Disk
from whence.state.info import look
from whence.state.inputs import adopt, epoch_of, input_name, pack_inputs, read_input, unpack_inputs, write_input
from whence.state.manifest import INPUTS, STATE, Link
from whence.state.store import WORDS, Folder, Store, chain_name

DISK = Disk()
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE TABLE node (name TEXT PRIMARY KEY, n INT);
CREATE TABLE seen (name TEXT) WITH (ttl = '60 s');
CREATE VIEW reachable AS
  SELECT src, dst FROM link UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE VIEW degree AS SELECT src, COUNT(*) AS n FROM link GROUP BY src;
CREATE VIEW known AS SELECT node.name, n FROM node JOIN seen ON node.name = seen.name;
"""
TABLES, VIEWS = ("link", "node", "seen"), ("reachable", "degree", "known")
Rows = Sequence[tuple[Any, ...]]
State = dict[str, Counter[tuple[Any, ...]]]


# Files


@st.composite
def sections(draw: st.DrawFn) -> list[tuple[str, int, Codes, Codes]]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        rows, width = draw(st.integers(0, 5)), draw(st.integers(1, 4))
        cells = rng.integers(-(2**63), 2**63 - 1, (rows, width))
        found.append((draw(st.text(max_size=5)), draw(st.integers(-1, 9)), cells, rng.choice([-1, 1], rows)))
    return found


@given(sections())
@SHARED_FOLDER
def test_sections_come_back_one_by_one(tmp_path: Path, written: list[tuple[str, int, Codes, Codes]]) -> None:
    pieces = write_input(DISK, tmp_path / INPUTS / "file", written)
    assert [(p.file, p.table, p.partition, p.rows, p.width) for p in pieces] == [
        ("file", table, partition, *rows.shape) for table, partition, rows, _ in written
    ]
    for piece, (_, _, rows, signs) in reversed(list(zip(pieces, written, strict=True))):
        back, signs_back = read_input(DISK, tmp_path, piece)
        assert (back == rows).all()
        assert (signs_back == signs).all()
        assert back.shape == rows.shape
        assert back.dtype == signs_back.dtype == np.dtype(np.int64)
        assert back.flags.writeable


def test_rows_in_any_layout(tmp_path: Path) -> None:
    rows = np.arange(12).reshape(2, 6).T[::2]
    (piece,) = write_input(DISK, tmp_path / INPUTS / "file", [("t", 0, rows, np.ones(3, np.int64))])
    assert read_input(DISK, tmp_path, piece)[0].tolist() == rows.tolist()
    for signs in (np.array([1, 1]), np.array([1, 1, 0]), np.array([1, 1, 257])):
        with pytest.raises(ValueError, match=r"table t: every row has a sign, \+1 or -1"):
            write_input(DISK, tmp_path / INPUTS / "file", [("t", 0, rows, signs)])


def written(folder: Path, disk: Disk = DISK) -> list[tuple[InputSection, list[Any]]]:
    """A small file, its pieces and what they hold."""
    one, two = np.array([[1, 2], [3, 4]]), np.array([[5]])
    pieces = write_input(
        disk, folder / INPUTS / "file", [("t", 0, one, np.array([1, -1])), ("u", 3, two, np.array([-1]))]
    )
    return list(zip(pieces, [[one.tolist(), [1, -1]], [two.tolist(), [-1]]], strict=True))


def test_damage_is_told_or_does_no_harm(tmp_path: Path) -> None:
    held = written(tmp_path)
    path = tmp_path / INPUTS / "file"
    good = path.read_bytes()
    for at in range(len(good)):
        for mask in (0x01, 0x80, 0xFF):
            path.write_bytes(good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :])
            told = [as_read(tmp_path, piece, content) for piece, content in held]
            assert any(told), "no byte is without meaning"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        told = [as_read(tmp_path, piece, content) for piece, content in held]
        assert told[-1]
    path.unlink()
    with pytest.raises(StorageError, match="file"):
        read_input(DISK, tmp_path, held[0][0])


def as_read(folder: Path, piece: InputSection, content: list[Any]) -> bool:
    """Whether reading a piece says that it is damaged; if not, it is as it was."""
    try:
        rows, signs = read_input(DISK, folder, piece)
    except CorruptionError:
        return True
    assert [rows.tolist(), signs.tolist()] == content
    return False


def test_a_piece_of_another_place_is_not_taken(tmp_path: Path) -> None:
    piece = written(tmp_path)[0][0]
    wrong: list[dict[str, Any]] = [{"table": "u"}, {"partition": 1}, {"offset": 16}, {"rows": 1}, {"rows": 1 << 60}]
    for change in wrong:
        with pytest.raises(CorruptionError):
            read_input(DISK, tmp_path, replace(piece, **change))


@pytest.mark.parametrize("kind", [Mortal, Unplugged])
def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path, kind: type[Mortal]) -> None:
    for at in range(1, points(lambda disk: written(tmp_path / "count", disk)) + 1):
        folder, disk = tmp_path / str(at), kind(at, tear=0.5)
        assert dies(partial(written, folder), disk)
        if isinstance(disk, Unplugged):
            disk.lose_power(random.Random(at))
        if (folder / INPUTS / "file").exists():
            for piece, content in written(tmp_path / "count"):
                assert not as_read(folder, piece, content)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / INPUTS).mkdir()
    for at in range(1, points(lambda disk: written(tmp_path, disk))):
        (tmp_path / INPUTS / "file").unlink(missing_ok=True)
        disk = Failing(at)
        with pytest.raises(StorageError, match="the disk is full"):
            written(tmp_path, disk)


# Records


def packed(epoch: Epoch, words: Sequence[Any] = ()) -> bytes:
    return b"".join(pack_inputs(epoch, words, 7))


EPOCH_5 = Epoch(
    5,
    6,
    {"t": Batch(np.array([[1, 2]]), np.array([1]), True)},
    {"u": np.array([[3]])},
    (InputSection("e000000000005-x", "größe", -1, 8, 3, 2),),
    {"s": 12},
    "somewhere",
    {"größe": "hold"},
)


def test_an_epoch_with_inputs_comes_back() -> None:
    back, first, words = unpack_inputs(5, 6, memoryview(packed(EPOCH_5, ["a", "ß"])))
    assert (back.number, back.time, inputs_of(back), first, words) == (5, 6, inputs_of(EPOCH_5), 7, ["a", "ß"])
    assert back.deltas["t"].rows.tolist() == [[1, 2]]
    assert back.refreshed["u"].tolist() == [[3]]
    only_positions = Epoch(5, 6, {}, source_positions={"s": 1})
    assert unpack_inputs(5, 6, memoryview(packed(only_positions)))[0] == only_positions


def inputs_of(epoch: Epoch) -> tuple[object, ...]:
    return epoch.sections, epoch.source_positions, epoch.layout, epoch.early


def test_bytes_that_nobody_packed() -> None:
    payload = packed(EPOCH_5)
    for end in range(len(payload)):
        with pytest.raises(ValueError, match=r"."):
            unpack_inputs(5, 6, memoryview(payload[:end]))
    for text in (b"[]", b"{}", b'{"pieces":[[1]],"marks":{}}', b'{"pieces":[],"marks":[]}', b"nonsense", b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            unpack_inputs(5, 6, memoryview(len(text).to_bytes(4, "little") + text))


def test_a_record_names_files_of_its_own_epoch(tmp_path: Path) -> None:
    sections = (InputSection("e000000000004-x", "t", 0, 8, 1, 1),)
    with pytest.raises(StorageError, match="e000000000004-x cannot hold rows of epoch 5"):
        packed(Epoch(5, 6, {}, sections=sections))
    with pytest.raises(ValueError, match="exact changes and others"):
        packed(Epoch(4, 6, {"t": Batch.empty(1)}, sections=sections))
    assert [epoch_of(name) for name in ("e000000000004-x", "x", "e4-x", input_name(1 << 50, ""))] == [
        4,
        None,
        None,
        1 << 50,
    ]


def test_files_are_named_when_their_epoch_is_known(tmp_path: Path) -> None:
    held = written(tmp_path)
    found = adopt(DISK, tmp_path, [piece for piece, _ in held], 9)
    assert {piece.file for piece in found} == {"e000000000009-file"} == set(DISK.names(tmp_path / INPUTS))
    for piece, (_, content) in zip(found, held, strict=True):
        rows, signs = read_input(DISK, tmp_path, piece)
        assert [rows.tolist(), signs.tolist()] == content
    assert adopt(DISK, tmp_path, found, 9) == found


# Recovery


class Hands:
    """A clock that is turned by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def ingest(db: Database, changes: Mapping[str, Rows], marks: Mapping[str, int], partitions: int = 1) -> None:
    """One epoch of rows as a source gave them, whose last element is their sign, as the Spark runtime writes it."""
    runtime: Any = inside.coordinator(db)
    store: Store = runtime.storage.store
    parts = []
    with runtime.paused():
        for table, rows in changes.items():
            schema = runtime.program.tables[table].schema
            cells = encode([row[:-1] for row in rows], schema, runtime.dictionary, table)
            signs = np.array([row[-1] for row in rows], np.int64)
            targets = route(cells, np.zeros(1, np.int64), partitions)
            parts += [(table, p, cells[targets == p], signs[targets == p]) for p in range(partitions)]
        path = store.path / INPUTS / f"{len(marks)}-{random.getrandbits(40):x}"
        number = runtime.epoch + 1
        sections = adopt(store.disk, store.path, write_input(store.disk, path, parts), number)
        epoch = Epoch(number, runtime.clock.now(), {}, sections=sections, source_positions=marks)
        with store.appending():
            ticket = store.write_epoch(epoch, runtime.dictionary)
            runtime.replay(resolve(runtime, epoch, store.folder))
    store.sync(ticket)


def state_of(db: Database) -> State:
    return {name: Counter(db[name].rows) for name in (*TABLES, *VIEWS)}


BATCHES: list[dict[str, Rows]] = [
    {"link": [("a", "b", 1), ("b", "c", 1), ("a", "b", 1)], "node": [("a", 1, 1), ("b", 2, 1), ("a", 3, 1)]},
    {"link": [("a", "b", -1), ("x", "y", -1), ("c", "d", 1)], "seen": [("a", 1), ("b", 1)]},
    {"node": [("b", 0, -1), ("q", 0, -1), ("c", 4, 1)], "seen": [("b", -1), ("c", 1), ("a", 1)]},
    {"link": [("b", "c", -1)]},
]


def started(path: Path, clock: Hands, **options: Any) -> Database:
    db = whence.open(path, clock=clock, **options)
    db.execute(PROGRAM)
    return db


def run(db: Database, clock: Hands, partitions: int = 1) -> list[State]:
    """All batches, and other epochs between them; the states after each epoch."""
    states = [state_of(db)]
    for number, batch in enumerate(BATCHES):
        clock.now += 25
        ingest(db, batch, {"s": number, f"t{number % 2}": number}, partitions)
        states.append(state_of(db))
        db.insert("link", ("z", str(number)))
        states.append(state_of(db))
    return states


@pytest.mark.parametrize("partitions", [1, 3])
def test_records_with_inputs_are_replayed(tmp_path: Path, partitions: int) -> None:
    clock = Hands()
    db = started(tmp_path / "db", clock)
    states = run(db, clock, partitions)
    assert states[-1]["node"] == Counter([("a", 3), ("c", 4)])
    assert states[-1]["seen"] == Counter([("c",), ("a",)])
    abandon(db)
    with whence.open(tmp_path / "db", read_only=True) as reader:
        assert state_of(reader) == states[-1]
        assert [state_of(reader.at(epoch)) for epoch in range(len(states))] == states
    with whence.open(tmp_path / "db", clock=clock) as again:
        assert state_of(again) == states[-1]
        assert again.epoch == len(states) - 1
        assert inside.source_positions(again) == {"s": 3, "t0": 2, "t1": 3}
        clock.now += 30  # what was not seen again since is due
        assert state_of(again)["seen"] == Counter([("a",), ("c",)])
        clock.now += 60
        assert state_of(again)["seen"] == Counter()


def test_what_is_due_leaves_with_the_epoch_that_has_inputs(tmp_path: Path) -> None:
    clock = Hands()
    db = started(tmp_path / "db", clock)
    ingest(db, {"seen": [("a", 1)]}, {})
    clock.now += 61
    ingest(db, {"link": [("a", "b", 1)]}, {})
    relation = inside.table(db, "seen").relation
    assert len(relation) == 0
    abandon(db)
    with whence.open(tmp_path / "db", read_only=True) as reader:
        assert [len(reader.at(epoch)["seen"].rows) for epoch in range(3)] == [0, 1, 0]


def test_a_follower_reads_them(tmp_path: Path) -> None:
    clock = Hands()
    with started(tmp_path / "db", clock) as db, whence.open(tmp_path / "db", read_only=True) as reader:
        for number, batch in enumerate(BATCHES):
            ingest(db, batch, {"s": number})
            assert state_of(reader) == state_of(db)
            assert inside.source_positions(reader) == {"s": number}
            if number == 1:
                db.snapshot()


def test_inputs_are_let_go_of_with_the_log(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    db = started(path, clock)
    states = run(db, clock)
    assert [epoch_of(name) for name in DISK.names(path / INPUTS)] == [1, 3, 5, 7]
    (path / INPUTS / "being-written").touch()
    assert db.snapshot()
    assert DISK.names(path / INPUTS) == ["being-written"]
    clock.now += 1
    ingest(db, BATCHES[0], {})
    last = state_of(db)
    abandon(db)
    for stray in ("e000000000099-x", "e000000000009-y.new"):
        (path / INPUTS / stray).touch()
    with whence.open(path, clock=clock) as again:
        assert state_of(again) == last
        assert [epoch_of(name) for name in DISK.names(path / INPUTS)] == [9]
    assert len(states) == 9
    assert DISK.names(path / INPUTS) == []


def test_inputs_of_a_past_that_is_kept(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    with started(path, clock, retain="all") as db:
        states = run(db, clock)
        db.snapshot()
    assert len(DISK.names(path / INPUTS)) == 4
    with whence.open(path, read_only=True) as reader:
        assert [state_of(reader.at(epoch)) for epoch in range(len(states))] == states


def crashing(path: Path) -> Callable[[Disk], None]:
    """Two epochs with inputs and a snapshot between them, on some disk."""

    def go(disk: Disk) -> None:
        db = open_small(path, disk, Hands())
        try:
            db.execute(PROGRAM)
            for number in (0, 1):
                ingest(db, BATCHES[number], {"s": number})
                if number == 0:
                    db.snapshot()
        finally:
            abandon(db)

    return go


@pytest.mark.parametrize("kind", [Mortal, Unplugged])
def test_a_crash_leaves_all_of_an_epoch_or_nothing(tmp_path: Path, kind: type[Mortal]) -> None:
    known: list[tuple[State, dict[str, int]]] = []
    with started(tmp_path / "known", Hands()) as db:
        known.append((state_of(db), {}))
        for number in (0, 1):
            ingest(db, BATCHES[number], {"s": number})
            known.append((state_of(db), {"s": number}))
    total = points(crashing(tmp_path / "count"))
    for at in range(1, total + 1, 5):
        path, disk = tmp_path / str(at), kind(at, tear=0.6)
        dies(crashing(path), disk)
        if isinstance(disk, Unplugged):
            disk.lose_power(random.Random(at))
        with whence.open(path, clock=Hands()) as db:
            if not inside.coordinator(db).program.views or len(inside.coordinator(db).reader.views()) < len(VIEWS):
                continue  # died while it was being declared
            state, marks = known[db.epoch]
            assert state_of(db) == state
            assert inside.source_positions(db) == marks
            named = {epoch_of(name) for name in DISK.names(path / INPUTS)}
            assert all(epoch is not None and epoch <= db.epoch for epoch in named)


def test_inputs_that_are_damaged_or_gone_are_told_of(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    db = started(path, clock)
    run(db, clock)
    abandon(db)
    assert whence.check(path).ok
    kinds = Counter(file.kind for file in whence.check(path).files)
    assert kinds == {"manifest": 1, "segment": 1, "input": 4}
    victim = path / INPUTS / DISK.names(path / INPUTS)[1]
    good = victim.read_bytes()
    victim.write_bytes(good[:-1] + bytes([good[-1] ^ 2]))
    report = whence.check(path)
    assert [file.path for file in report.files if file.problem is not None] == [victim]
    with pytest.raises(CorruptionError, match=victim.name):
        whence.open(path, read_only=True)
    with pytest.raises(StorageError, match="no copy was made"):
        whence.backup(path, tmp_path / "copy")
    victim.unlink()
    assert not whence.check(path).ok
    victim.write_bytes(good)
    (path / INPUTS / "other").touch()
    report = whence.check(path)
    assert report.ok
    assert report.strays == (path / INPUTS / "other",)


def test_a_copy_has_the_inputs_that_its_log_names(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    db = started(path, clock)
    states = run(db, clock)
    (path / INPUTS / "e000000000099-x").touch()
    made = db.backup(tmp_path / "copy")
    abandon(db)
    assert made.epoch == len(states) - 1
    assert DISK.names(tmp_path / "copy" / INPUTS) == DISK.names(path / INPUTS)[:-1]
    assert made.bytes == sum(file.stat().st_size for file in (tmp_path / "copy").rglob("*") if file.is_file())
    with whence.open(tmp_path / "copy", clock=clock) as copy:
        assert state_of(copy) == states[-1]
    found = look(path, DISK)
    assert (found.epoch, found.inputs, found.partitions) == (8, 5, 0)


# Partitions


def partitioned(path: Path, clock: Hands, count: int = 2, **options: Any) -> State:
    """A folder as `count` partitions write it: `node` is copied to all, the other tables are shared out by a hash."""
    db = started(path, clock, **options)
    db.insert("link", [(f"n{i}", f"n{(i * 7) % 20}") for i in range(20)] * 2)
    db.insert("node", [(f"n{i}", i) for i in range(10)])
    for i in range(6):
        clock.now += 5
        db.insert("seen", [(f"n{i}",)])
    take_snapshot(db, count)
    state = state_of(db)
    abandon(db)
    return state


def take_snapshot(db: Database, count: int) -> None:
    """A snapshot such as partitions write it, each of which has its share of the tables."""
    runtime: Any = inside.coordinator(db)
    store, epoch, time, words = runtime.storage.store, runtime.epoch, runtime.time, runtime.dictionary
    store.write_words(words, epoch, time)
    store.rotate()
    writer, before = store.begin_image(epoch)
    first = before.meta["words"] if before is not None else 0
    for key in before.parts if before is not None else ():
        writer.keep_unchanged(key)
    if len(words) > first:
        writer.add(f"{WORDS}{first}", pack_words(words.since(first)))
    tables = {name: {"kind": "hash", "cols": [0]} for name in TABLES} | {"node": {"kind": "all", "cols": []}}
    meta = {"epoch": epoch, "time": time, "statements": runtime.catalog.statements(), "words": len(words)}
    meta |= {"partitions": {"count": count, "tables": tables}, "marks": {"s": 4}}
    chains = {chain_name(p): write_share(store, runtime, p, count, tables) for p in range(count)}
    store.publish(writer, meta, epoch, time, chains)


def write_share(store: Store, runtime: Any, partition: int, count: int, tables: dict[str, Any]) -> tuple[Link, ...]:
    """A partition of its own, with the rows that are its, and the image of its tables."""
    with whence.open(clock=Hands()) as share:
        share.execute(PROGRAM)
        flow: Any = inside.dataflow(share)
        for name in TABLES:
            source, target = runtime.catalog.flow.tables[name].relation, flow.tables[name].relation
            ids = source.ids()
            if tables[name]["kind"] == "hash":
                ids = ids[route(source.rows[ids], np.zeros(1, np.int64), count) == partition]
            gone = Batch(source.rows[ids[:1]] - 10**6, np.ones(len(ids[:1]), np.int64))  # leaves a free id behind
            target.apply(gone)
            target.apply(Batch(source.rows[ids], source.ann[ids]))
            target.apply(Batch(gone.rows, -gone.ann))
            target.acc[target.lookup(source.rows[ids])] = source.acc[ids]
            target.commit()
        path, links = store.partition_image(partition, runtime.epoch)
        before = None
        if links:
            with store.folder.chain(links) as chain:
                before = chain.directory
        with Writer(DISK, path, before) as writer:
            for name in TABLES:
                writer.add(f"table/{name}", flow.tables[name].image())
            writer.add("op/unknown", {"x": np.arange(3)})
            size = writer.finish({"epoch": runtime.epoch}).written
        return (*links, Link("patch" if links else "base", path.name, runtime.epoch, size))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_folder_of_partitions_is_opened_as_one(tmp_path: Path, count: int) -> None:
    clock, path = Hands(), tmp_path / "db"
    state = partitioned(path, clock, count)
    assert state["link"].total() == 40
    assert set(Folder(path, DISK).manifest.chains) == {"main", *(chain_name(p) for p in range(count))}
    with whence.open(path, read_only=True, clock=clock) as reader:
        assert state_of(reader) == state
        assert inside.source_positions(reader) == {"s": 4}
    report = whence.check(path)
    assert report.ok
    assert report.tables == {"link": 40, "node": 10, "seen": 6}
    assert Counter(file.kind for file in report.files)["base"] == count + 1
    assert look(path, DISK).partitions == count
    assert whence.backup(path, tmp_path / "copy").epoch == 8
    with whence.open(tmp_path / "copy", clock=clock) as copy:
        assert state_of(copy) == state
        clock.now += 40  # the first two were seen 25 and 20 seconds ago
        assert state_of(copy)["seen"] == Counter([(f"n{i}",) for i in range(2, 6)])


def test_an_embedded_writer_makes_one_image_of_it(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    partitioned(path, clock)
    with whence.open(path, clock=clock) as db:
        ingest(db, BATCHES[0], {"s": 5})
        db.delete("link", [("n1", "n7")])
        state = state_of(db)
    assert set(Folder(path, DISK).manifest.chains) == {"main"}
    assert all(name.startswith("main-") for name in DISK.names(path / STATE))
    assert DISK.names(path / INPUTS) == []
    with whence.open(path, clock=clock) as db:
        assert db.recovery is not None
        assert db.recovery.primed == 0
        assert state_of(db) == state
    assert whence.check(path).ok


def test_snapshots_of_partitions_follow_each_other(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    db = started(path, clock, retain="all")
    states, counts = [state_of(db)], (2, 2, 3, 0, 2, 2)
    for number, count in enumerate(counts):
        ingest(db, BATCHES[number % 4], {"s": number})
        states.append(state_of(db))
        if count:
            take_snapshot(db, count)
        else:  # by one process, and others go on after it
            db.snapshot()
    folder = inside.folder(db)
    assert folder is not None
    assert [(start.epoch, start.partitions) for start in folder.starts()] == list(enumerate((0, *counts)))
    kinds = [[[link.kind for link in links] for links in folder.manifest.chains[f"p000{p}"]] for p in range(3)]
    assert kinds == [[["base", "patch", "patch"], ["base", "patch"]]] * 2 + [[["base"]]]
    abandon(db)
    assert whence.check(path).ok
    with whence.open(path, read_only=True, clock=clock) as reader:
        for epoch, state in enumerate(states):
            then = reader.at(epoch)
            assert state_of(then) == state
            assert then.recovery is not None
            assert epoch == 0 or then.recovery.replayed == 0
    with whence.open(path, clock=clock, retain=0) as db:
        ingest(db, BATCHES[0], {})
        last = state_of(db)
    assert set(Folder(path, DISK).manifest.chains) == {"main"}
    assert all(name.startswith("main-") for name in DISK.names(path / STATE))
    with whence.open(path, clock=clock) as db:
        assert state_of(db) == last


def test_only_the_newest_snapshot_stays(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    db = started(path, clock)
    for number, count in enumerate((3, 2)):
        ingest(db, BATCHES[number], {})
        take_snapshot(db, count)
    folder = inside.folder(db)
    assert folder is not None
    assert {name: len(chains) for name, chains in folder.manifest.chains.items()} == {"main": 1, "p0000": 1, "p0001": 1}
    named = {file.name for file in folder.files() if file.parent.name == STATE}
    assert set(DISK.names(path / STATE)) == named
    abandon(db)


def test_a_start_without_its_partitions_is_none(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    partitioned(path, clock)
    folder = Folder(path, DISK)
    chains = {name: of for name, of in folder.manifest.chains.items() if name != "p0001"}
    manifest_.save(DISK, path, replace(folder.manifest, chains=chains))
    with pytest.raises(StorageError, match="its partitions are not in the manifest"):
        whence.open(path, read_only=True)
    assert not whence.check(path).ok


def test_damage_in_a_partition_is_told_of(tmp_path: Path) -> None:
    clock, path = Hands(), tmp_path / "db"
    partitioned(path, clock)
    victim = next(path / STATE / name for name in DISK.names(path / STATE) if name.startswith("p0001"))
    data = bytearray(victim.read_bytes())
    data[20] ^= 0x10
    victim.write_bytes(data)
    report = whence.check(path)
    assert [file.path for file in report.files if file.problem is not None] == [victim]
    with pytest.raises(CorruptionError, match="p0001"):
        whence.open(path)
