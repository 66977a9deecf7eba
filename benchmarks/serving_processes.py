"""Processes of `serving`: servers, clients that measure, and what the kernel knows about both.

Every server is a process of its own that listens on a loopback port, and so is every client that measures: none shares
an interpreter, its lock or its garbage collector with another. All times are of the clock that the processes of a
machine share (`now`). Whatever ends a run, each server and client that it started is ended with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
PATIENCE = 600.0  # seconds that a client may take for its part
_CONTEXT = multiprocessing.get_context("forkserver")  # children begin with what clients import, and nothing else
_CONTEXT.set_forkserver_preload(["benchmarks.serving_roles", "benchmarks.serving_sockets", "nats", "psycopg"])
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
_BYTES_RECEIVED = 128  # offset in the kernel's struct tcp_info


class FailedError(Exception):
    """A server or a client of a run did not do its part."""


def now() -> float:
    """Return seconds of the monotonic clock, which is the same in all processes."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Does a server accept connections on a port?"""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class Link:
    """A client's end of the pipe to its parent: it says when it is ready, and is told to go on or to stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def ready(self, value: Any = None) -> None:
        """Tell the parent that a stage is reached."""
        self._pipe.send(("ready", value))

    def wait(self) -> Any:
        """Wait for the parent's next word."""
        return self._pipe.recv()

    def asked(self) -> bool:
        """Is there a word of the parent to be read?"""
        return self._pipe.poll()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._pipe.fileno()


class Child(Generic[T]):
    """A function that runs in a process of its own; its first argument is its `Link`."""

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        self._name = function.__name__
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Return the process's number."""
        return int(self._process.pid or 0)

    def wait_ready(self, timeout: float = PATIENCE) -> Any:
        """Wait until the function says that it is ready; return what it says."""
        return self._receive("ready", timeout)

    def tell(self, word: Any = None) -> None:
        """Send the function a word."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(word)

    def ask(self, word: Any, timeout: float = PATIENCE) -> Any:
        """Send the function a word and wait for its answer."""
        self.tell(word)
        return self.wait_ready(timeout)

    def result(self, timeout: float = PATIENCE) -> T:
        """Wait for what the function returns."""
        value: T = self._receive("result", timeout)
        self._process.join(10.0)
        return value

    def _receive(self, wanted: str, timeout: float) -> Any:
        until = now() + timeout
        while True:
            try:
                kind, value = self._pipe.recv() if self._pipe.poll(max(0.0, until - now())) else ("late", None)
            except (EOFError, ConnectionResetError):
                raise FailedError(f"{self._name}: its process has died") from None
            if kind == wanted:
                return value
            if kind == "error":
                raise FailedError(f"{self._name}: {value}")
            if kind == "late":
                raise FailedError(f"{self._name}: not done within {timeout:.0f} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._pipe.close()


def _run(pipe: Connection, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    os.setsid()  # it is scheduled as a server is, and not with whatever else the same shell runs
    gc.freeze()  # else a collection would write to, and so copy, every page that is shared with the fork server
    try:
        pipe.send(("result", function(Link(pipe), *arguments)))
    except BaseException:
        with contextlib.suppress(OSError):
            pipe.send(("error", traceback.format_exc()))


class ServerProcess:
    """A server's process: started, killed and started again with the same folder and port."""

    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, user: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="serving-", dir=folder))
        self.user = user
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command that starts the server."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start the server without waiting for it."""
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                **as_user(self.user),
            )

    def start(self, timeout: float = 60.0) -> float:
        """Start the server; return the time at which it listens."""
        self.begin()
        return self.wait_listening(timeout)

    def wait_listening(self, timeout: float = 60.0) -> float:
        """Wait until the server accepts connections; return the time."""
        until = now() + timeout
        while not listens(self.port):
            if self._process is None or self._process.poll() is not None or now() > until:
                raise FailedError(f"{self.command()[0]} does not listen: {self.log()[-2_000:]}")
            time.sleep(0.001)
        return now()

    def log(self) -> str:
        """Return what the server has written to its log."""
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """Kill the server and its children, as kill -9 does."""
        self._end(signal.SIGKILL)

    def pids(self) -> list[int]:
        """Return the processes of the server."""
        return [] if self._process is None else family(self._process.pid)

    def stop(self) -> None:
        """Stop the server as its manual says, and kill what is left after ten seconds."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10.0)
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)  # its own session: children of the server are in the group
            self._process.wait()

    def close(self) -> None:
        """Stop the server and delete its folder."""
        import shutil

        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent has died, however that was."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def as_user(user: str | None) -> dict[str, Any]:
    """Return the arguments of `subprocess.run` that make a user of a command; none if we are that user or no root."""
    return {} if user is None or os.geteuid() else {"user": user, "group": user, "extra_groups": []}


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def memory_of(pids: Sequence[int]) -> int:
    """Return the bytes of memory that processes have made, without files that they map; what they share counts once."""
    whole = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    whole += 1024 * int(line.split()[1])
    return whole


def cpu_of(pids: Sequence[int]) -> float:
    """Return the CPU seconds that processes have used so far."""
    whole = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            whole += int(fields[11]) + int(fields[12])
    return whole / os.sysconf("SC_CLK_TCK")


def bytes_received(port: int) -> int:
    """Return the bytes that open connections of this process to a port have received, as the kernel counts them."""
    whole = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not os.readlink(entry).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.family == socket.AF_INET and one.getpeername()[1] == port:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    whole += struct.unpack_from("Q", info, _BYTES_RECEIVED)[0]
    return whole
