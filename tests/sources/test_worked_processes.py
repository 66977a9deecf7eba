"""The worked numbers of paper 004 over real processes: two publishers and two brokers, each `whence serve`."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.serving.processes import PATIENCE, ProcessGroup, ServerProcess, wait_until
from tests.sources.worked_numbers import OVER_PROCESSES

SECRET = "whence_" + "w" * 43
pytestmark = pytest.mark.xdist_group("worked numbers over processes")


class ProcessStage:
    """Four servers, and a client of each."""

    def __init__(self, folder: Path, stack: ExitStack, group: ProcessGroup) -> None:
        self.token, tokens = folder / "token", folder / "tokens"
        self.token.write_text(SECRET)
        tokens.write_text(f"all sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}\n")
        tokens.chmod(0o600)
        names = ("one", "two", "near", "far")
        servers = [group.add(ServerProcess(folder / name, tokens, log=folder / f"{name}.log")) for name in names]
        starting = [threading.Thread(target=server.start) for server in servers]
        for each in starting:
            each.start()
        for each in starting:
            each.join()
        self._servers: dict[Any, ServerProcess] = {}
        for name, server in zip(names, servers, strict=True):
            client = stack.enter_context(whence.connect(server.url, token=SECRET, timeout=PATIENCE))
            self._servers[client] = server
            setattr(self, name, client)

    def source(self, broker: Any, name: str, publisher: Any, options: str = "") -> None:
        url = self._servers[publisher].url.replace("http", "ws", 1) + f"/{name}"
        more = f", {options}" if options else ""
        broker.execute(f"CREATE SOURCE {name} FROM '{url}' WITH (token_file = '{self.token}'{more})")

    def until(self, condition: Callable[[], Any]) -> None:
        wait_until(condition, "a worked number")

    def follow(self, broker: Any, query: str, **options: Any) -> Any:
        return broker.subscribe(query, **options)

    def updates(self, subscription: Any) -> list[Any]:
        found = []
        while (update := subscription.next(timeout=0.02)) is not None:
            found.append(update)
        return found

    def pause(self, publisher: Any) -> None:
        self._servers[publisher].signal(signal.SIGSTOP)

    def resume(self, publisher: Any) -> None:
        self._servers[publisher].signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ProcessGroup() as group, ExitStack() as stack:
        yield ProcessStage(tmp_path_factory.mktemp("worked"), stack, group)


@pytest.mark.parametrize("name", list(OVER_PROCESSES))
def test_worked_number_over_processes(stage: Any, name: str) -> None:
    OVER_PROCESSES[name](stage)
