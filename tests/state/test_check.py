"""What `whence.check` finds: damage in any file, by name and offset, and views that are not what they should be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import whence
from tests import inside
from whence.engine.core.image import Image
from whence.runtime.durable.checking import Report
from whence.state import manifest as manifest_
from whence.state.chain import Writer
from whence.state.check import CheckedFile, check_files
from whence.state.disk import Disk
from whence.state.manifest import LOG, MANIFEST, STATE
from whence.state.segment import FILE_HEADER, RECORD_HEADER
from whence.state.store import MAIN, Folder

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT, cost DOUBLE);
CREATE VIEW reachable AS
  SELECT src, dst FROM link UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE VIEW spent AS SELECT src, SUM(cost) + 0 AS cost FROM link GROUP BY src; -- computed, so that its rows are stored
CREATE VIEW dear AS SELECT src FROM spent WHERE cost > 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an image and a few records after it."""
    path = tmp_path / "db"
    db = whence.open(path)
    db.execute(PROGRAM)
    db.insert("link", [(f"n{i}", f"n{i + 1}", i / 7) for i in range(30)])
    db.snapshot()
    db.insert("link", ("n30", "n31", 2.5))
    db.delete("link", [("n3", "n4", 3 / 7)])
    abandon(db)
    return path


def abandon(db: whence.Database) -> None:
    """Let go of a database as a process does that is killed: without a last snapshot."""
    inside.store(db).close()  # type: ignore[attr-defined]  # a durable one


def newest(path: Path, folder: str) -> Path:
    return max((path / folder).iterdir())


def file_of(report: Report, path: Path) -> CheckedFile:
    return next(file for file in report.files if file.path == path)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x55
    path.write_bytes(data)


def rewrite(path: Path, change: Callable[[str, Image], Image]) -> None:
    """Replace the newest image by one of other contents, with checksums that are right."""
    folder = Folder(path, Disk())
    links = folder.chains[-1]
    with folder.chain(links) as chain:
        parts, meta = {part: chain.image(part) for part in chain.parts}, chain.meta
    with Writer(Disk(), path / STATE / "tampered.base", None) as writer:
        for part, image in parts.items():
            writer.add(part, change(part, image))
        size = writer.finish(meta).written
    link = replace(links[-1], kind="base", file="tampered.base", bytes=size)
    manifest_.save(Disk(), path, replace(folder.manifest, chains={MAIN: ((link,),)}))


def of_view(path: Path, view: str) -> str:
    """The part of an image that holds a view's rows."""
    with whence.open(path, read_only=True) as db:
        return f"arranged/{inside.operator(db, view).fingerprint}"


def test_a_database_that_is_well(path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = whence.check(path, progress=lambda *step: told.append(step))
    assert report.ok
    assert report.problems == ()
    assert (report.epoch, report.torn, report.strays, report.writer) == (3, None, (), None)
    assert {file.kind for file in report.files} == {"manifest", "segment", "base"}
    assert {file.path for file in report.files} == {path / MANIFEST, *Folder(path, Disk()).files()}
    assert file_of(report, newest(path, LOG)).records == 2
    with whence.open(path, read_only=True) as db:
        rows = {name: len(db[name]) for name in db.views}
    assert {view.name: view.rows for view in report.views if view.ok} == rows
    assert report.tables == {"link": 30}
    assert all(0 <= done <= total for _, done, total in told)
    assert told[-1][0].startswith("comparing")


def test_a_folder_without_a_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(whence.StorageError, match="there is no database here"):
        whence.check(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("part", ["header", "payload"])
def test_damage_in_the_log_names_file_and_offset(path: Path, part: str) -> None:
    segment = newest(path, LOG)
    flip(segment, FILE_HEADER + (20 if part == "header" else RECORD_HEADER + 5))
    report = whence.check(path)
    assert not report.ok
    (problem,) = report.problems
    assert problem.startswith(f"{segment}, offset {FILE_HEADER}: ")
    damaged = file_of(report, segment).problem
    assert damaged is not None
    assert damaged.offset == FILE_HEADER
    assert report.views == ()


def test_damage_in_an_image_is_found_or_changes_nothing(path: Path) -> None:
    """Now and then LZ4 makes the same of other bytes."""
    image, found = newest(path, STATE), 0
    data, before = image.read_bytes(), contents(path)
    for offset in range(0, len(data), max(1, len(data) // 80)):
        flip(image, offset)
        problems = check_files(path, Disk()).problems
        if problems:
            assert [problem.path for problem in problems] == [image]
            assert problems[0].offset is not None
            found += 1
        else:
            assert contents(path) == before
        image.write_bytes(data)
    assert found > 60


def contents(path: Path) -> dict[tuple[str, str], bytes]:
    folder = Folder(path, Disk())
    with folder.chain(folder.chains[-1]) as chain:
        return {(part, name): array.tobytes() for part in chain.parts for name, array in chain.image(part).items()}


def test_a_broken_chain_is_read_up_to_the_break(path: Path) -> None:
    with whence.open(path) as db:
        db.insert("link", [(f"x{i}", "y", i / 7) for i in range(20_000)])
        db.snapshot()
        for i in range(4):
            db.insert("link", (f"z{i}", "y", 1.0))
            db.snapshot()
    links = Folder(path, Disk()).chains[-1]
    assert [link.kind for link in links[:3]] == ["base", "patch", "patch"]
    flip(path / STATE / links[1].file, 40)
    found = {file.path.name: file for file in check_files(path, Disk()).files}
    assert found[links[0].file].problem is None
    assert found[links[1].file].problem is not None
    assert "not read, since it continues" in str(found[links[2].file].problem)


def test_a_missing_file_is_named(path: Path) -> None:
    image = newest(path, STATE)
    image.unlink()
    report = whence.check(path)
    assert not report.ok
    assert str(image) in report.problems[0]
    assert [file.path for file in report.files if file.problem is not None] == [image]


def test_a_damaged_manifest_is_a_problem(path: Path) -> None:
    flip(path / MANIFEST, 30)
    report = whence.check(path)
    assert report.problems[0].startswith(f"{path / MANIFEST}, offset 0: ")


def test_a_gap_between_epochs_is_found(path: Path) -> None:
    with whence.open(path, retain="all") as db:
        db.insert("link", ("a", "b", 1.0))
        db.snapshot()
        db.insert("link", ("b", "c", 1.0))
        db.snapshot()
        db.insert("link", ("c", "d", 1.0))
    folder = Folder(path, Disk())
    segments = folder.manifest.segments
    assert whence.check(path).ok
    for gone, chains, says in (
        (-3, folder.manifest.chains, "after the image of epoch 5, but the log is at 4"),
        (-2, folder.manifest.chains, "after the image of epoch 6, but the log is at 5"),
        (-3, {}, "epoch 6 comes after epoch 4"),
    ):
        kept = tuple(n for n in segments if n != segments[gone])
        manifest_.save(Disk(), path, replace(folder.manifest, segments=kept, chains=chains))
        (problem,) = check_files(path, Disk()).problems
        assert says in str(problem)
        assert problem.path.name == f"{segments[gone + 1]:08d}.log"


def test_damage_in_the_past_is_found_though_the_present_opens(path: Path) -> None:
    with whence.open(path, retain="all") as db:
        db.insert("link", ("a", "b", 1.0))
    oldest = min((path / LOG).iterdir())
    flip(oldest, FILE_HEADER + RECORD_HEADER + 1)
    report = whence.check(path)
    assert [file.path for file in report.files if file.problem is not None] == [oldest]
    assert all(view.ok for view in report.views)
    assert report.epoch == 4
    assert not report.ok


def test_a_torn_tail_is_told_and_is_no_problem(path: Path) -> None:
    segment = newest(path, LOG)
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"\1" * 20)
    report = whence.check(path)
    assert report.ok
    assert report.torn is not None
    assert (report.torn.path, report.torn.offset, report.torn.bytes) == (segment, size, 20)


def test_strays_are_named(path: Path) -> None:
    for name in ("notes.txt", f"{LOG}/00000099.log", f"{STATE}/main-7.base.new"):
        (path / name).write_bytes(b"")
    report = whence.check(path)
    assert report.ok
    assert report.strays == (path / "notes.txt", path / LOG / "00000099.log", path / STATE / "main-7.base.new")


def test_a_view_that_was_tampered_with_is_found(path: Path) -> None:
    part = of_view(path, "spent")

    def change(key: str, image: Image) -> Image:
        if key != part:
            return image
        rows = image["rows"].copy()
        rows[7, 1] += 1 << 40  # a sum of DOUBLE, by more than rounding explains
        return image | {"rows": rows}

    rewrite(path, change)
    assert check_files(path, Disk()).problems == []
    report = whence.check(path)
    assert not report.ok
    view = {view.name: view for view in report.views}["spent"]
    assert (view.extra, view.missing) == (1, 1)
    (extra,), (missing,) = view.extra_rows, view.missing_rows
    assert extra[0] == missing[0] == "n7"
    assert missing == ("n7", 1.0)
    assert report.problems == (str(view), *(str(v) for v in report.views if v.name == "dear" and not v.ok))
    assert "1 rows too many" in report.problems[0]


def test_a_view_that_lost_a_row_is_found_and_codes_that_mean_nothing_are_shown(path: Path) -> None:
    part = of_view(path, "dear")

    def change(key: str, image: Image) -> Image:
        rows = image["rows"].copy() if key == part else None
        if rows is not None:
            rows[0, 0] = 10**9
        return image if rows is None else image | {"rows": rows}

    rewrite(path, change)
    view = {view.name: view for view in whence.check(path).views}["dear"]
    assert view.extra_rows == ((10**9,),)
    assert view.missing == 1
    assert view.missing_rows[0][0].startswith("n")


def test_what_is_kept_under_a_view_is_compared_too(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with whence.open(path) as db:
        db.execute("""
            CREATE TABLE a (k INT, x INT);
            CREATE TABLE b (k INT, y INT);
            CREATE VIEW both AS
              SELECT s.k, s.n, b.y FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) AS s JOIN b ON s.k = b.k;
        """)
        db.insert("a", [(1, 1), (1, 2), (2, 1)])
        db.insert("b", [(1, 5)])
        flow = inside.dataflow(db)
        (inner,) = [op for op in flow.order if op.arranged is not None and op is not flow.views["both"]]
        part = f"arranged/{inner.fingerprint}"

    def change(key: str, image: Image) -> Image:
        if key != part:
            return image
        rows = image["rows"].copy()
        rows[rows[:, 0] == 2, 1] = 77  # joined with nothing, so the view does not show it
        return image | {"rows": rows}

    rewrite(path, change)
    (view,) = whence.check(path).views
    assert (view.extra, view.missing, view.inside) == (0, 0, 1)
    assert not view.ok


def test_sums_that_differ_by_rounding_are_forgiven(path: Path) -> None:
    part = of_view(path, "spent")

    def change(key: str, image: Image) -> Image:
        if key != part:
            return image
        rows = image["rows"].copy()
        rows[:, 1] += np.where(rows[:, 1] > 0, 1, 0)  # one unit in the last place
        return image | {"rows": rows}

    rewrite(path, change)
    report = whence.check(path)
    assert report.ok, report.problems


def test_functions_are_given_by_setup(tmp_path: Path) -> None:
    def setup(db: whence.Database) -> None:
        db.create_function("twice", lambda x: 2 * x, args=["INT"], returns="BIGINT")

    path = tmp_path / "db"
    with whence.open(path, setup=setup) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW t AS SELECT twice(x) AS y FROM a")
        db.insert("a", [(1,), (2,)])
    assert whence.check(path, setup=setup).ok
    without = whence.check(path)
    assert not without.ok
    assert "twice" in without.problems[0]

    def other(db: whence.Database) -> None:
        db.create_function("twice", lambda x: 3 * x, args=["INT"], returns="BIGINT")

    assert [view.extra for view in whence.check(path, setup=other).views] == [2]


WRITER = """
import sys, whence
db = whence.open(sys.argv[1], durability="none")
db.execute("CREATE TABLE IF NOT EXISTS busy (x INT); CREATE VIEW IF NOT EXISTS n AS SELECT COUNT(*) AS n FROM busy")
print("ready", flush=True)
for i in range(10**9):
    db.insert("busy", [(i,)])
    if i % 40 == 0:
        db.snapshot()
"""


def test_beside_a_writer(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for _ in range(5):
            report = whence.check(path)
            assert report.ok, report.problems
            assert report.writer is not None
            assert str(writer.pid) in report.writer
    finally:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    assert whence.check(path).ok
