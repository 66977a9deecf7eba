"""Three promises about Whence alone: cost follows the change, state stays small, nobody waits for a compiler.

| measurement | what is done | promise |
|---|---|---|
| state growth | the same single-link updates, alone and beside nine unrelated networks | at most 1.5 times the time |
| memory | the bytes of all state, indexes counted, behind a `reachable` view of a million rows | at most 300 a row |
| startup | a fresh process: import, CREATE VIEW, its first batch and answer | at most 2 s, nothing compiled |

Memory is what the database reports; the growth of the process is measured beside it, so that a report that forgets
something shows. Startup is measured in processes of their own, after one that fills the kernel cache if set-up has not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.peers.common import RECURSIONS, Change, Rows
from benchmarks.report import Check
from benchmarks.transit_stub import Network, Update, network, updates

GROWTH_FACTOR = 10
GROWTH_PASSES = 4
STARTUP_RUNS = 3


def run(growth: bool, memory: bool, startup: bool, quick: bool = False) -> list[Check]:
    """The measurements asked for, as promises."""
    checks: list[Check] = []
    if growth:
        for program in ("reachable", "cheapest"):
            checks.append(state_growth(program, nodes=100 if quick else 400, count=10 if quick else 40))
    if memory:
        checks += memory_per_row(nodes=300 if quick else 1000)
    if startup:
        checks += startup_time()
    return checks


def state_growth(program: str, nodes: int, count: int) -> Check:
    """How many times longer the same updates take with ten times the state, nine tenths of it unrelated."""
    net = network(nodes)
    stream = updates(net, count)
    alone, beside = (_stream_time(program, links, stream) for links in (copies(net, 1), copies(net, GROWTH_FACTOR)))
    return Check(f"{program}: times longer with ten times the unrelated state", beside / alone, 1.5, at_least=False)


def copies(net: Network, count: int) -> Rows:
    """The links of a network and of further, unconnected networks with the same shape."""
    links = np.array(net.links)
    shift = np.array([net.nodes, net.nodes, 0])
    return np.concatenate([links + i * shift for i in range(count)])


def _stream_time(program: str, links: Rows, stream: Sequence[Update]) -> float:
    """Seconds of a stream, each update at the best of a few passes: bridges and others differ too much for a median."""
    from benchmarks.peers.whence_peer import WhencePeer

    peer = WhencePeer(program, 0)
    try:
        peer.load({"link": links})
        passes = [
            [peer.update([Change("link", update.sign, np.array([update.link]))]) for update in stream]
            for _ in range(GROWTH_PASSES)
        ]
        return float(sum(map(min, zip(*passes, strict=True))))
    finally:
        peer.close()


MEMORY_SCRIPT = """
import json, resource, sys
import numpy as np
from benchmarks.peers.whence_peer import WhencePeer
from benchmarks.transit_stub import network

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

links = np.array(network({nodes}).links)
warm = WhencePeer("reachable", 0)
warm.load({{"link": links[:10]}})
before = resident()
peer = WhencePeer("reachable", 0)
peer.load({{"link": links}})
print(json.dumps([len(peer.rows()), peer.state_bytes(), resident() - before]))
"""


def memory_per_row(nodes: int) -> list[Check]:
    """Bytes a row of a closure of nodes * nodes rows: as reported, and by the growth of a process for it alone."""
    rows, reported, grown = json.loads(_python(MEMORY_SCRIPT.format(nodes=nodes)))
    return [
        Check(f"bytes per row of state, reported, {rows:,} rows", reported / rows, 300, at_least=False),
        Check(f"bytes per row by growth of the process, {rows:,} rows", grown / rows, 300, at_least=False),
    ]


STARTUP_SCRIPT = """
import json, time
started = time.perf_counter()
import whence
from numba.core import event

class Compilations(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(str(event.data["dispatcher"].py_func.__name__))
    def on_end(self, event):
        pass

event.register("numba:compile", Compilations())
imported = time.perf_counter()
db = whence.open()
db.execute({script!r})
db.insert("link", [(1, 2, 3), (2, 3, 4), (3, 1, 5)])
rows = len(db[{view!r}].to_arrow())
assert rows == 9, rows
print(json.dumps([imported - started, time.perf_counter() - started, Compilations.names]))
"""


def startup_time() -> list[Check]:
    """Seconds from import to the first answer in a fresh process, median; and how many kernels it compiled."""
    from benchmarks.peers.common import LINK_TABLE

    imports, times, compiled = [], [], 0
    for program in ("reachable", "cheapest"):
        script = STARTUP_SCRIPT.format(script=LINK_TABLE + RECURSIONS[program].sql, view=program)
        for _ in range(STARTUP_RUNS):
            imported, total, names = json.loads(_python(script))
            imports.append(imported)
            times.append(total)
            compiled += len(names)
    return [
        Check(
            f"seconds from import ({statistics.median(imports):.2f}) to the first answer, median",
            statistics.median(times),
            2.0,
            at_least=False,
        ),
        Check("kernels compiled in those processes", compiled, 0, at_least=False),
    ]


def _python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]
