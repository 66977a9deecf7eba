"""Faults on a real Spark: workers and drivers that are killed, tasks that are done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests import inside
from tests.oracle import assert_rows
from tests.spark.test_jobs import opened
from whence.runtime import database

ROOT = Path(__file__).parents[2]
LINKS = [(a, (a * 5 + 2) % 23) for a in range(23)]
PROGRAM = """
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW checked AS SELECT touch(src) AS src, COUNT(*) AS n FROM reachable GROUP BY touch(src)
"""


EXCHANGED = PROGRAM.replace("VIEW reachable AS", "VIEW reachable WITH (partition = 'exchange') AS")


def expected(rows: list[tuple[int, int]]) -> dict[str, list[Any]]:
    with database.open() as db:
        db.create_function("touch", lambda x: x, args=["INT"], returns="INT")
        db.execute(PROGRAM)
        db.insert("link", rows)
        return {name: db[name].rows for name in db.views}


def test_worker_killed_while_tasks_exchange_rows(spark: Any, tmp_path: Path) -> None:
    """In a late round, when its peers wait for it. The epoch is done again, and the driver catches up by its log."""
    driver, armed, died = os.getpid(), tmp_path / "armed", tmp_path / "died"

    def touch(x: int) -> int:
        if os.getpid() != driver and armed.exists():
            armed.unlink(missing_ok=True)
            died.write_text(f"{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with opened(spark, tmp_path / "db", partitions=3) as db:
        db.create_function("touch", touch, args=["INT"], returns="INT")
        db.execute(EXCHANGED)
        for write, rows, left in ((db.insert, LINKS, LINKS), (db.delete, LINKS[::2], LINKS[1::2])):
            armed.touch()
            died.unlink(missing_ok=True)
            write("link", rows)
            assert died.exists()
            run = inside.driver(db).progress()
            assert (run["jobs"], run["supersteps"] > 3) == (2, True)
            inside.run_as(db, "inline")
            for name, found in expected(left).items():
                assert_rows(db[name], found, name)
            inside.run_as(db, "job")


def test_a_worker_that_is_killed_in_the_middle_of_a_step(spark: Any, tmp_path: Path) -> None:
    driver, armed, died = os.getpid(), tmp_path / "armed", tmp_path / "died"

    def touch(x: int) -> int:
        if os.getpid() != driver and armed.exists():
            armed.unlink(missing_ok=True)
            died.write_text(f"{os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    db = opened(spark, tmp_path / "db")
    db.create_function("touch", touch, args=["INT"], returns="INT")
    db.execute(PROGRAM)
    armed.touch()
    db.insert("link", LINKS)
    assert died.exists()
    for name, rows in expected(LINKS).items():
        assert_rows(db[name], rows, name)
    armed.touch()
    db.delete("link", LINKS[::2])
    assert not armed.exists()
    for name, rows in expected(LINKS[1::2]).items():
        assert_rows(db[name], rows, name)
    db.snapshot()
    db.insert("link", LINKS[::2])
    for name, rows in expected(LINKS).items():
        assert_rows(db[name], rows, name)
    db.close()


DRIVER = """
    import os, sys, signal
    from pathlib import Path
    from tests.faults import Watched
    from tests.partitioned.kills import run_on
    from tests.partitioned.pairs import busy
    from tests.spark.places import places
    from whence.runtime.spark import session

    class Deadly(Watched):
        def visit(self, point, path):
            if self.visited == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

    spark = session("local[2,4]", app="killed", conf=places(Path(sys.argv[1]) / "spark"))
    ops = [op for op in busy(8, 5, snapshots=2) if op.kind != "sync"]
    run_on(Path(sys.argv[1]) / "db", Deadly(), ops, tell=1, mode="job", spark=spark, partitions=2)
"""


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("at", [190])
def test_a_driver_that_is_killed_between_two_writes(at: int, tmp_path: Path) -> None:
    """Of a few points only: tests/partitioned goes through more of them, without Java."""
    from tests.partitioned.kills import seen_by
    from tests.partitioned.pairs import Side, busy, held

    ops = [op for op in busy(8, 5, snapshots=2) if op.kind != "sync"]
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path), str(at)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-3000:]
    done, states = child.stdout.count(b"."), seen_by(ops)
    for options in ({"partitions": 2}, {}):
        side = Side(tmp_path / "db", now=ops[max(done - 1, 0)].at, **options)
        assert (side.db.epoch, held(side.db)) in states[done : done + 2], f"{done} operations done"
        side.db.close()
