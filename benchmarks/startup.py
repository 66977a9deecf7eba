"""How long commands take that only answer: help, the version, a usage error, and one short query.

Each is a new process. The peers are Python with nothing to do, and Python that imports DuckDB and answers the same
query. Rounds alternate between all of them. Bytecode is written on the first, uncounted round, to a folder of its own:
installed packages have theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from rich.console import Console

from benchmarks.report import WHENCE, Check, Figure

WANTED = 0.5
"""Seconds until `whence --help` has answered."""

PYTHON, DUCKDB = "Python, nothing to do", "DuckDB in Python, SELECT 1"
_COMMANDS = {
    "whence --help": (["--help"], 0),
    "whence --version": (["--version"], 0),
    "whence run --help": (["run", "--help"], 0),
    "whence run (usage error)": (["run"], 2),
    "whence sql -c 'SELECT 1'": (["sql", "-c", "SELECT 1 AS one"], 0),
}
_PEERS = {PYTHON: "pass", DUCKDB: "import duckdb; print(duckdb.sql('SELECT 1 AS one'))"}


def measure(rounds: int, console: Console) -> tuple[list[Figure], list[Check]]:
    """Start each command and each peer `rounds` times."""
    figures = {name: Figure(name, "ms") for name in _COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for turn in range(rounds + 1):
            console.print(f"start-up, round {turn} of {rounds}" if turn else "start-up, uncounted round", style="dim")
            peers = {peer: _timed(["-c", code], 0, environment) for peer, code in _PEERS.items()}
            for name, (arguments, code) in _COMMANDS.items():
                took = {WHENCE: _timed(["-m", "whence.cli", *arguments], code, environment), **peers}
                for peer, milliseconds in took.items() if turn else ():
                    figures[name].samples.setdefault(peer, []).append(milliseconds)
    answers = [name for name in _COMMANDS if " sql " not in name]
    checks = [Check(f"{name}: ms", figures[name].of(WHENCE), WANTED * 1000, at_least=False) for name in answers]
    return list(figures.values()), checks


def _timed(arguments: list[str], code: int, environment: dict[str, str]) -> float:
    """Return the milliseconds that a process takes; its exit code must be `code`."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    took = (time.perf_counter() - begin) * 1000
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return took
