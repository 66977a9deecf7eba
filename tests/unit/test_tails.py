"""Tails: each record of a source once and in order, with the position to go on from."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.io import tails
from whence.io.records import Records, Target
from whence.io.tails import ALL, FolderTail, GrowingFile, InputTail, Lines, Tail, open_file
from whence.model.errors import DataError
from whence.model.types import INTEGER, TEXT, Column, Schema

SCHEMA = Schema((Column("a", TEXT), Column("b", INTEGER)))


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SETTLE", 0.0)


def drain(tail: Tail, count: int = 100) -> list[Records]:
    """Take what is there now."""
    found = []
    while tail.look(count):
        found += [part for part in tail.take(count) if len(part)]
    return found


def texts(parts: list[Records]) -> list[str]:
    return [part.text(at) for part in parts for at in range(len(part))]


def growing(path: Path, stored: dict[str, int] | None = None, notes: list[str] | None = None) -> GrowingFile:
    return GrowingFile(path, "jsonl", "k", stored or {}, (notes if notes is not None else []).append)


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\ntw")
    tail = growing(path)
    assert texts(drain(tail)) == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert texts(drain(tail)) == ["two", "three"]
    assert not tail.ended


def test_positions_say_where_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\n\ntwo\nthree\n")
    tail = growing(path)
    tail.look(3)
    (first,) = tail.take(3)
    assert (texts([first]), list(first.lines)) == (["one", "two"], [1, 3])
    (rest,) = drain(growing(path, dict(first.positions)))
    assert (texts([rest]), list(rest.lines)) == (["three"], [4])
    assert drain(growing(path, dict(rest.positions))) == []


def test_a_file_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    notes: list[str] = []
    tail = growing(tmp_path / "a.jsonl", notes=notes)
    assert drain(tail) == drain(tail) == []
    (tmp_path / "a.jsonl").write_text("one\n")
    assert texts(drain(tail)) == ["one"]
    assert [note.rpartition("/")[2] for note in notes] == ["a.jsonl: is not there yet: waiting for it"]


@pytest.mark.parametrize("new", ["other\n", "another that is much longer than before\nand more\n"])
def test_a_truncated_file_is_read_from_its_start(tmp_path: Path, new: str) -> None:
    path, notes = tmp_path / "a.jsonl", list[str]()
    path.write_text("first\nsecond\n")
    tail = growing(path, notes=notes)
    drain(tail)
    path.write_text(new)  # the same file, shorter or longer
    assert texts(drain(tail) + drain(tail)) == new.split("\n")[:-1]
    assert "was truncated or replaced" in notes[0]


def test_a_renamed_file_is_read_to_its_end_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\n")
    tail = growing(path)
    got = texts(drain(tail))
    with path.open("a") as writer:
        path.rename(tmp_path / "a.jsonl.1")
        path.write_text("four\n")
        writer.write("two\nthree")
    for _ in range(5):
        got += texts(drain(tail))
    assert got == ["one", "two", "three", "four"]


def test_a_file_renamed_between_two_runs_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\ntwo\n")
    tail = growing(path)
    tail.look(1)
    (first,) = tail.take(1)
    path.rename(tmp_path / "a.jsonl.1")
    path.write_text("three\n")
    notes: list[str] = []
    tail, got = growing(path, dict(first.positions), notes), list[str]()
    for _ in range(5):
        got += texts(drain(tail))
    assert (got, notes) == (["two", "three"], [])
    (tmp_path / "a.jsonl.1").unlink()
    assert texts(drain(growing(path, dict(first.positions), notes))) == ["three"]
    assert "is another file than was read before" in notes[0]


def put(folder: Path, name: str, text: str, age: float) -> None:
    (folder / name).write_text(text)
    os.utime(folder / name, (time.time() - age, time.time() - age))


def test_a_folder_gives_each_file_once_oldest_first(tmp_path: Path) -> None:
    put(tmp_path, "b.jsonl", "2\n", 20)
    put(tmp_path, "a.csv", "a,b\nx,3\n", 10)
    put(tmp_path, "c.jsonl", "1", 30)
    put(tmp_path, "empty.csv", "a,b\n", 25)
    for name in (".hidden.jsonl", "_made.jsonl", "x.jsonl.tmp", "y.jsonl.part", "z.jsonl~"):
        put(tmp_path, name, "no\n", 40)
    tail = FolderTail(tmp_path, "*", "k", {}, follow=True)
    parts = drain(tail)
    assert [(Path(part.file).name, texts([part])) for part in parts] == [
        ("c.jsonl", ["1"]), ("b.jsonl", ["2"]), ("a.csv", ["x,3"])
    ]  # fmt: skip
    stored = {name: at for part in parts for name, at in part.positions.items() if "#" not in name}
    assert stored == {f"k/{name}": ALL for name in ("a.csv", "b.jsonl", "c.jsonl", "empty.csv")}
    put(tmp_path, "d.jsonl", "4\n", 0)
    assert texts(drain(tail)) == texts(drain(FolderTail(tmp_path, "*", "k", stored))) == ["4"]


def test_a_file_of_a_folder_is_taken_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SETTLE", 3600.0)
    tail = FolderTail(tmp_path, "*.jsonl", "k", {})
    put(tmp_path, "new.jsonl", "1\n", 0)
    put(tmp_path, "old.jsonl", "2\n", 7200)
    assert texts(drain(tail)) == ["2"]
    assert not tail.ended  # the other is being written
    monkeypatch.setattr(tails, "SETTLE", 0.0)
    assert texts(drain(tail)) == ["1"]
    drain(tail)
    assert tail.ended


def test_a_large_file_of_a_folder_goes_on_where_it_was_left(tmp_path: Path) -> None:
    put(tmp_path, "1.csv", "a,b\n" + "".join(f"x,{n}\n" for n in range(10)), 2)
    pa.parquet.write_table(pa.table({"a": ["y"] * 10, "b": range(10)}), tmp_path / "2.parquet")
    stored: dict[str, int] = {}
    got: list[tuple[str, int]] = []
    for _ in range(10):  # every time as after a restart
        tail = FolderTail(tmp_path, "*", "k", dict(stored))
        if not tail.look(3):
            break
        for part in tail.take(3):
            rows = part.updates(0, len(part), Target(SCHEMA, False))
            assert isinstance(rows, pa.Table)
            got += [tuple(row.values()) for row in rows.to_pylist()]
            stored |= part.positions
    assert got == [("x", n) for n in range(10)] + [("y", n) for n in range(10)]
    assert (stored["k/1.csv"], stored["k/2.parquet"]) == (ALL, ALL)


def test_several_files_make_one_epoch(tmp_path: Path) -> None:
    for n in range(5):
        put(tmp_path, f"{n}.jsonl", f"{n}\n", 10 - n)
    tail = FolderTail(tmp_path, "*", "k", {}, files=2)
    taken = []
    while tail.look(100):
        taken.append(texts(tail.take(100)))
    assert taken == [["0", "1"], ["2", "3"], ["4"]]


def test_standard_input_ends(tmp_path: Path) -> None:
    tail, got = InputTail(io.BytesIO(b"a,b\nx,1\n\ny,2"), "csv"), list[str]()
    while not tail.ended:
        got += texts(drain(tail))
    assert got == ["x,1", "y,2"]


def test_what_cannot_be_followed_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a Parquet file does not grow: put each into a folder"):
        GrowingFile(tmp_path / "a.parquet", "parquet", "k", {}, print)
    with pytest.raises(DataError, match="no such folder"):
        FolderTail(tmp_path / "nowhere", "*", "k", {})
    with pytest.raises(DataError, match="Parquet cannot be read from a stream"):
        InputTail(io.BytesIO(b""), "parquet")
    with pytest.raises(DataError, match="no such file"):
        open_file(tmp_path / "none.csv", "csv")


def test_a_quote_that_is_not_closed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_LONGEST", 10)
    with pytest.raises(DataError, match=r"f, line 2: a line has more than 10 bytes: is a quote missing\?"):
        Lines("f", "csv").feed(b'a,b\n"x,1\ny,2\nz,3\n')


CELL = st.text(alphabet='ab",\n\r;', max_size=4)


@settings(max_examples=150)
@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_csv_is_split_at_the_ends_of_records_however_it_arrives(rows: list[tuple[str, str]], cuts: list[int]) -> None:
    import csv

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    data = out.getvalue().encode()
    lines, last = Lines("f", "csv"), 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        lines.feed(data[last:cut])
        last = cut
    found = [next(csv.reader(io.StringIO(text.decode(), newline=""))) for _, text in lines.records]
    assert found == [list(row) for row in rows]
    assert [line for line, _ in lines.records] == [
        1 + sum(cell.count("\n") for row in rows[:n] for cell in row) + n + 1 for n in range(len(rows))
    ]
