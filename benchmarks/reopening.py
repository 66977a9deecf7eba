"""Opening a database again, what it takes on disk, and what its snapshots cost those who write meanwhile.

A million events of ten thousand accounts, loaded in batches of 10,000, and three views: `by_region` joins and
aggregates all events, `largest` is their first hundred by amount, and `reachable` is the closure of a transit-stub
network of a thousand accounts, a million rows. Each opening is a process of its own. Before it is timed the process has
made and reopened a tiny database of the same kind, so that the compiled kernels are loaded; what that takes, once a
process whatever it opens, is a line of its own. The files are in the system's cache, as they were just written.

| way | what its time includes |
|---|---|
| clean end | `whence.open` of everything: tables, indexes, views, ready for the next commit |
| kill -9 | the same, and replaying the log of 300 single rows and three batches |
| made anew | `whence.open` of a database of the same tables without views, and CREATE VIEW of the three |
| CREATE VIEW alone | of that, the second half |

Every one of them must hold the same rows, in tables and views.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import ledger
from benchmarks.report import Check, Figure
from benchmarks.transit_stub import network

VIEWS = """
CREATE VIEW by_region AS
  SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM event JOIN account ON account = name GROUP BY region;
CREATE VIEW largest AS SELECT id, account, amount FROM event ORDER BY amount DESC, id LIMIT 100;
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
BATCH = 10_000
TAIL_BATCHES = 3
CLEAN, KILLED, ANEW, CREATE = "clean end", "kill -9", "made anew", "CREATE VIEW alone"
KERNELS = "kernels loaded, before any of these"


def run(
    folder: Path, *, rows: int, accounts: int, nodes: int, opens: int, tail: int, pauses: int
) -> tuple[list[Figure], list[Check]]:
    """All figures, and the promise about reopening."""
    size = {"rows": rows, "accounts": accounts, "nodes": nodes}
    bare = _child("load", path=folder / "bare", views=False, **size)
    full = _child("load", path=folder / "full", views=True, **size)
    lite = _child("load_sqlite", path=folder / "lite", **size)
    ledger.agree({"Whence": {"event": full["digests"]["event"]}, "SQLite": lite["digests"]})
    shutil.copytree(folder / "full", folder / "killed")
    killed = _killed("write_tail", path=folder / "killed", first=rows, accounts=accounts, tail=tail)
    seconds = Figure(f"{rows:,} events, three views", "seconds to open")
    for _ in range(opens):
        shutil.copytree(folder / "bare", folder / "anew")
        ways = {
            CLEAN: _child("reopen", path=folder / "full", views=False),
            KILLED: _child("reopen", path=folder / "killed", views=False),
            ANEW: _child("reopen", path=folder / "anew", views=True),
        }
        shutil.rmtree(folder / "anew")
        ledger.agree({"written": full["digests"], **{way: ways[way]["digests"] for way in (CLEAN, ANEW)}})
        ledger.agree({"before kill -9": killed["digests"], KILLED: ways[KILLED]["digests"]})
        for way, found in ways.items():
            seconds.samples.setdefault(way, []).append(found["opening"] + found["creating"])
        seconds.samples.setdefault(CREATE, []).append(ways[ANEW]["creating"])
        seconds.samples.setdefault(KERNELS, []).append(ways[CLEAN]["kernels"])
    base = bare["rows"]
    on_disk = Figure("on disk", "bytes per row")
    on_disk.samples = {
        "Whence, log of single rows": [killed["single_bytes"] / tail],
        "Whence, log of batches": [bare["log_bytes"] / bare["logged"]],
        "Whence, no views": [_bytes(folder / "bare") / base],
        "Whence, three views": [_bytes(folder / "full") / base],
        "SQLite": [_bytes(folder / "lite") / base],
    }
    written = Figure("written meanwhile", "bytes per row")
    written.samples = {
        "Whence, no views": [bare["written"] / base],
        "Whence, three views": [full["written"] / base],
        "SQLite": [lite["written"] / base],
    }
    stall = Figure("one commit", "ms")
    stall.samples = {way: [s] for way, s in _child("stall", path=folder / "full", first=rows, count=pauses).items()}
    checks = [
        Check("reopening: times faster than tables opened and views made anew", seconds.times(ANEW, CLEAN), 5.0),
        Check("the same, CREATE VIEW alone", seconds.times(CREATE, CLEAN), 5.0),
        Check("reopening after kill -9: times faster than made anew", seconds.times(ANEW, KILLED), 5.0),
    ]
    return [seconds, on_disk, written, stall], checks


# What the processes do. Each prints one line of JSON.


def load(path: str, views: bool, rows: int, accounts: int, nodes: int) -> dict[str, Any]:
    """Make a database and end it."""
    import whence

    before, tables = _written(), _tables(accounts, nodes)
    db = whence.open(path)
    db.execute(ledger.TABLES.format(key=ledger.KEY))
    for table, data in tables.items():
        db.insert(table, data)
    empty, logged, log_bytes = _bytes(Path(path) / "log"), 0, 0
    for first in range(0, rows, BATCH):
        db.insert("event", ledger.events(first, min(BATCH, rows - first), accounts))
        if first < 10 * BATCH:  # until a snapshot lets go of it
            logged, log_bytes = min(rows, first + BATCH), _bytes(Path(path) / "log") - empty
    if views:
        db.execute(VIEWS)
    found = {"digests": _digests(db), "rows": rows + sum(map(len, tables.values()))}
    db.close()
    return found | {"written": _written() - before, "log_bytes": log_bytes, "logged": logged}


def load_sqlite(path: str, rows: int, accounts: int, nodes: int) -> dict[str, Any]:
    """The same rows in SQLite, without views."""
    before = _written()
    Path(path).mkdir()
    lite = ledger.SqliteLedger(Path(path), _tables(accounts, nodes), views=False)
    for first in range(0, rows, BATCH):
        lite.batch(lite.prepare(ledger.events(first, min(BATCH, rows - first), accounts)))
    digests = lite.digests()
    lite.close()
    return {"digests": digests, "written": _written() - before}


def write_tail(path: str, first: int, accounts: int, tail: int) -> dict[str, Any]:
    """Go on writing behind the image, to be killed."""
    import whence

    db = whence.open(path)
    before = _bytes(Path(path) / "log")
    for row in ledger.tuples(ledger.events(first, tail, accounts)):
        db.insert("event", row)
    single_bytes = _bytes(Path(path) / "log") - before
    for batch in range(TAIL_BATCHES):
        db.insert("event", ledger.events(first + tail + batch * BATCH, BATCH, accounts))
    return {"digests": _digests(db), "single_bytes": single_bytes}


def reopen(path: str, views: bool) -> dict[str, Any]:
    """Open a database, make the views in it if asked, and look at what it holds."""
    import whence

    kernels = _load_kernels()
    start = time.perf_counter()
    db = whence.open(path)
    opened = time.perf_counter()
    if views:
        db.execute(VIEWS)
    created = time.perf_counter()
    assert db.recovery is not None
    assert db.recovery.primed == 0, db.recovery
    digests = _digests(db)
    return {"opening": opened - start, "creating": created - opened, "kernels": kernels, "digests": digests}


def _load_kernels() -> float:
    """Seconds for doing with a tiny database all that is to be timed."""
    import whence

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with whence.open(Path(folder) / "tiny") as db:
                if not db.tables:
                    db.execute(ledger.TABLES.format(key=ledger.KEY) + VIEWS)
                for table, data in _tables(100, 100).items():
                    db.insert(table, data)
                db.insert("event", ledger.events(db.epoch * 100, 100, 100))
    return time.perf_counter() - start


def stall(path: str, first: int, count: int) -> dict[str, Any]:
    """Milliseconds of single-row commits, before a snapshot and beside one."""
    import whence

    db = whence.open(path)
    rows = iter(ledger.tuples(ledger.events(first, 100 * count, 100)))
    _timed(db, next(rows))
    alone = [_timed(db, next(rows)) for _ in range(count)]
    snapshot = threading.Thread(target=db.snapshot)
    snapshot.start()
    beside = [_timed(db, next(rows))]
    while snapshot.is_alive():
        beside.append(_timed(db, next(rows)))
    return {
        "median, alone": statistics.median(alone),
        "largest, alone": max(alone),
        "median, beside a snapshot": statistics.median(beside),
        "largest, beside a snapshot": max(beside),
    }


def _timed(db: Any, row: ledger.Row) -> float:
    start = time.perf_counter()
    db.insert("event", row)
    return 1e3 * (time.perf_counter() - start)


def _tables(accounts: int, nodes: int) -> dict[str, pa.Table]:
    every, links = ledger.names(max(accounts, nodes)), network(nodes).links
    ends = {"src": [every[link.src] for link in links], "dst": [every[link.dst] for link in links]}
    return ledger.base(accounts) | {"link": pa.table(ends)}


def _digests(db: Any) -> dict[str, str]:
    return {name: ledger.digest(db[name].to_arrow()) for name in (*db.tables, *db.views)}


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _written() -> int:
    """Bytes that this process has caused to be written to the disk."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def act(what: str, arguments: str) -> None:
    """Do one of the above in this process, which ends without ending the database."""
    print(json.dumps(globals()[what](**json.loads(arguments))), flush=True)
    if what == "write_tail":
        time.sleep(600)
    os._exit(0)


def _command(what: str, arguments: dict[str, Any]) -> list[str]:
    told = json.dumps({name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()})
    return [sys.executable, "-c", f"from benchmarks import reopening; reopening.act({what!r}, {told!r})"]


def _child(what: str, **arguments: Any) -> dict[str, Any]:
    done = subprocess.run(_command(what, arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _killed(what: str, **arguments: Any) -> dict[str, Any]:
    """The same, with a process that is killed when it has said its line."""
    with subprocess.Popen(_command(what, arguments), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    found: dict[str, Any] = json.loads(line)
    return found
