"""Processes of these tests: a server of a folder, followers and publishers. Each may be killed, paused and restarted.

Whatever happens, `ProcessGroup` ends all of them: a test leaves no process behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds until a process must have done what is asked of it; a loaded machine is slow."""


class ChildProcess:
    """A process that can be started again. What it logs is appended to a file."""

    prefix: Sequence[str] = ()  # what begins its command, such as one that enters a namespace

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.arguments, self._log = list(arguments), log
        self._process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        """Start it, with more arguments."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, *self.arguments, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it is alive."""
        if self.is_alive:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL, with whatever it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return its exit code, when it has ended."""
        return self.process.wait(seconds)

    def log(self) -> str:
        """Return the end of what it has logged."""
        return self._log.read_text()[-4000:] if self._log.exists() else ""

    @property
    def memory(self) -> int:
        """Bytes that are resident."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class ServerProcess(ChildProcess):
    """`whence serve` of a folder, always at the same port."""

    def __init__(
        self, folder: Path, token_file: Path, *, log: Path, limits: Sequence[str] = (), host: str = "127.0.0.1"
    ) -> None:
        self.port = free_port()
        options = [part for limit in limits for part in ("--limit", limit)]
        if host != "127.0.0.1":
            options += ["--allow-host", "*"]
        listen = f"{host}:{self.port}"
        arguments = ["-m", "whence.cli", "serve", str(folder), "--listen", listen, "--token-file", str(token_file)]
        super().__init__([*arguments, *options], log)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        """Start it, and return when it listens."""
        super().start(*more)
        self._read_until(re.compile("serving .* at "))

    def _read_until(self, wanted: re.Pattern[str]) -> None:
        lines: queue.Queue[str] = queue.Queue()
        output = self.process.stdout
        assert output is not None

        def read() -> None:
            for line in output:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        line = lines.get(timeout=PATIENCE)
        assert wanted.match(line), f"the server did not start: {line}{self.log()}"


class ProcessGroup:
    """Processes that end with a `with` statement."""

    def __init__(self) -> None:
        self._all: list[ChildProcess] = []

    def add(self, process: Any) -> Any:
        self._all.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._all:
            process.kill()


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def module(name: str, **given: Any) -> list[str]:
    """Return the arguments that run a module of this folder."""
    return ["-m", f"tests.serving.{name}", json.dumps(given)]


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds:g} s: {what}")
