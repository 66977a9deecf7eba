"""`Database.follow`: files, folders and streams become epochs, and each record is in exactly once."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.faults import Mortal, dies, points
from whence.io import tails
from whence.state.disk import Disk

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SETTLE", 0.0)


@pytest.fixture(params=[None, 3])
def db(request: pytest.FixtureRequest) -> Any:
    with whence.open(partitions=request.param) as db:
        db.execute(PROGRAM)
        yield db


def line(row: str) -> str:
    """Write a row such as '+ab' as a line."""
    return json.dumps({"op": row[0], "src": row[1], "dst": row[2]}) + "\n"


def put(path: Path, *rows: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.writelines(map(line, rows))
    return path


def take(db: whence.Database, place: Any, **options: Any) -> list[whence.FollowedEpoch]:
    return list(db.follow({"link": place}, wait=False, **options))


def test_a_file_goes_on_where_it_was_left(db: whence.Database, tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", "+ab", "+bc")
    assert [(e.rows, e.files) for e in take(db, path)] == [(2, (str(path),))]
    assert len(db["reachable"]) == 3
    put(path, "-ab", "+bd", "+be")
    assert [e.rows for e in take(db, path, batch=2)] == [2, 1]
    assert sorted(db["reachable"].rows) == [("b", "c"), ("b", "d"), ("b", "e")]
    assert take(db, path) == []
    assert [e.rows for e in take(db, path, resume=False)] == [5]


def test_files_of_a_folder_of_several_formats(db: whence.Database, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder / "1.jsonl", "+ab")
    (folder / "2.csv").write_text('dst,src\nc,b\n"x\ny",b\n')
    assert [e.rows for e in take(db, folder, files_per_epoch=2)] == [3]
    assert sorted(db["link"].rows) == [("a", "b"), ("b", "c"), ("b", "x\ny")]
    (folder / "3.csv").write_text("src,dst,what\na,b,D\nb,q,I\n")
    assert [e.rows for e in take(db, folder / "3*", op="what")] == [2]
    assert sorted(db["link"].rows) == [("b", "c"), ("b", "q"), ("b", "x\ny")]


def test_deletions_by_some_columns_and_of_rows_that_are_not_there(db: whence.Database, tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", "+ab", "+ac", "+bc", "-xy")
    with path.open("a") as file:
        file.write('{"-": {"src": "a"}}\n')
    notes: list[str] = []
    take(db, path, note=notes.append)
    assert db["link"].rows == [("b", "c")]
    assert notes == [f"{path}, line 4: no such row to delete"]


@pytest.mark.parametrize("on_error", ["skip", "reject"])
def test_records_that_do_not_fit(db: whence.Database, tmp_path: Path, on_error: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{line("+ab")}nonsense\n{{"src": 1, "dst": "c"}}\n{line("+bc")}{line("-zz")}')
    notes: list[str] = []
    (epoch,) = take(db, path, on_error=on_error, note=notes.append)
    assert (epoch.rows, epoch.rejected) == (5, 2)
    assert sorted(db["link"].rows) == [("a", "b"), ("b", "c")]
    assert len(notes) == 3  # each once, however often the batch was tried
    if on_error == "reject":
        assert sorted((row[3], row[5]) for row in db["rejects"].rows) == [
            (2, "nonsense"),
            (3, '{"src": 1, "dst": "c"}'),
        ]


def test_an_error_names_the_line_and_changes_nothing(db: whence.Database, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('src,dst\na,"b\nb"\nc\nd,e,f\n')
    with pytest.raises(whence.DataError, match=r"a.csv, line 4: Expected 2 columns, got 1"):
        take(db, path)
    assert (db["link"].rows, db.epoch) == ([], 0)
    path.write_text("src,to\na,b\n")
    with pytest.raises(whence.DataError, match=r"a.csv: no column to"):
        take(db, path)
    with pytest.raises(whence.DataError, match="no such folder"):
        db.follow({"link": tmp_path / "none" / "*.csv"})
    with pytest.raises(whence.CatalogError, match='there is no table "lin"'):
        db.follow({"lin": path})
    with pytest.raises(whence.DataError, match="the column src is one of the table's"):
        db.follow({"link": path}, op="src")
    with db.transaction(), pytest.raises(whence.WhenceError, match="follow cannot stand inside a transaction"):
        db.follow({"link": path})


def test_a_stream_is_read_to_its_end(db: whence.Database) -> None:
    data = "".join(map(line, ["+ab", "+bc"])).encode()
    assert sum(e.rows for e in db.follow({"link": io.BytesIO(data)})) == 2
    assert len(db["reachable"]) == 3


def test_slow_lines_are_not_held_back_and_an_event_ends_it(db: whence.Database, tmp_path: Path) -> None:
    path, stop = put(tmp_path / "a.jsonl", "+ab"), threading.Event()
    folder = tmp_path / "in"
    put(folder / "1.jsonl", "+xy")
    got = []
    for epoch in db.follow({"link": [path, folder]}, batch=1000, delay=0.01, poll=0.01, stop=stop):
        got.append(Path(epoch.files[0]).name)
        if len(got) == 2:
            put(path, "+bc")  # far from a full batch
        if len(got) == 3:
            put(folder / "2.jsonl", "+yz")
        if len(got) == 4:
            stop.set()
    assert sorted(got[:2]) == ["1.jsonl", "a.jsonl"]
    assert got[2:] == ["a.jsonl", "2.jsonl"]
    assert len(db["reachable"]) == 6


def test_what_was_read_from_a_stream_is_taken_when_it_stops(db: whence.Database) -> None:
    read, write = os.pipe()
    stop = threading.Event()
    with os.fdopen(read, "rb") as stream, os.fdopen(write, "w") as sender:
        following = db.follow({"link": stream}, batch=1, poll=0.01, stop=stop)
        sender.write("".join(map(line, ["+ab", "+bc"])))
        sender.flush()
        next(following)
        stop.set()
        assert [e.rows for e in following] == [1]
    assert len(db["link"]) == 2


@pytest.mark.parametrize("partitions", [None, 2])
def test_each_record_is_in_once_wherever_the_process_dies(tmp_path: Path, partitions: int | None) -> None:
    """At write points all over a run: what a new process takes in makes it whole, with no record twice."""
    path, folder = put(tmp_path / "a.jsonl", "+ab", "+bc", "+cd"), tmp_path / "in"
    put(folder / "1.jsonl", "+ef", "+fg", "+gh")
    (folder / "2.csv").write_text("src,dst\nh,i\ni,j\n")
    wanted = sorted([("a", "b"), ("b", "c"), ("c", "d"), ("e", "f"), ("f", "g"), ("g", "h"), ("h", "i"), ("i", "j")])
    count, place = 0, tmp_path

    def start() -> None:
        nonlocal count, place
        count, place = count + 1, tmp_path / f"db{count}"
        with whence.open(place, partitions=partitions) as db:
            db.execute(PROGRAM)

    def run(disk: Disk) -> None:
        with whence.open(place, disk=disk, partitions=partitions) as db:
            for n, _ in enumerate(db.follow({"link": [path, folder]}, wait=False, batch=2)):
                if n == 2:
                    db.snapshot()

    start()
    for at in range(1, points(run) + 1, 5 if partitions is None else 13):
        start()
        dies(run, Mortal(at))
        with whence.open(place, partitions=partitions) as db:
            list(db.follow({"link": [path, folder]}, wait=False, batch=2))
            assert sorted(db["link"].rows) == wanted, at
            assert len(db["reachable"]) == 6 + 15
