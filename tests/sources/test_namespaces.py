"""Three machines in a row, each a network namespace: cables that are unplugged, with and without a crash meanwhile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.serving.namespaces import Namespaces, why_not
from tests.serving.processes import PATIENCE, ProcessGroup, ServerProcess, wait_until

REASON = why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.xdist_group("network namespaces"),
]
VIEW = "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue"


class Machines:
    """A publisher, a broker behind it, and a broker behind that, whose clients are asked."""

    def __init__(self, folder: Path, net: Namespaces, stack: ExitStack, group: ProcessGroup) -> None:
        self.net, secret = net, "whence_" + "n" * 43
        token, tokens = folder / "token", folder / "tokens"
        token.write_text(secret)
        tokens.write_text(f"all sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n")
        tokens.chmod(0o600)
        self.servers = [
            group.add(ServerProcess(folder / f"db{place}", tokens, log=folder / f"log{place}", host="0.0.0.0"))
            for place in range(3)
        ]
        for place, server in enumerate(self.servers):
            server.prefix = net.prefix(place)
        with ThreadPoolExecutor() as pool:
            list(pool.map(ServerProcess.start, self.servers))
        self.clients: list[Any] = []
        for place, server in enumerate(self.servers):
            url = f"http://{net.address(place)}:{server.port}"
            client = stack.enter_context(whence.connect(url, token=secret, timeout=PATIENCE))
            if place == 0:
                client.execute("CREATE STREAM trade (issue TEXT, price INT)")
            else:
                upstream = f"ws://{net.upstream_address(place - 1)}:{self.servers[place - 1].port}/trade"
                client.execute(f"CREATE SOURCE trade FROM '{upstream}' WITH (token_file = '{token}')")
            self.clients.append(client)
        self.clients[-1].execute(VIEW)
        self.count = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            self.clients[0].insert("trade", ("A", self.count))

    @property
    def shown(self) -> list[Any]:
        rows: list[Any] = self.clients[-1]["high"].rows
        return rows

    def until_whole(self) -> None:
        wait_until(lambda: self.shown == [("A", self.count, self.count)], f"all {self.count} rows at the last broker")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Namespaces(3) as net, ProcessGroup() as group, ExitStack() as stack:
        yield Machines(tmp_path_factory.mktemp("machines"), net, stack, group)


@pytest.mark.parametrize("cable", [0, 1])
def test_unplugged_cable_is_waited_for_and_nothing_is_lost(machines: Machines, cable: int) -> None:
    machines.publish(20)
    machines.until_whole()
    machines.net.cut(cable)
    machines.publish(30)
    time.sleep(1.0)
    assert machines.shown == [("A", machines.count - 30, machines.count - 30)]  # less, and nothing else
    machines.net.heal(cable)
    machines.publish(5)
    machines.until_whole()


def test_broker_that_is_killed_while_it_is_cut_off(machines: Machines) -> None:
    machines.publish(20)
    machines.until_whole()
    machines.net.cut(0)
    machines.publish(20)
    machines.servers[1].kill()
    machines.servers[1].start()
    machines.net.heal(0)
    machines.publish(5)
    machines.until_whole()
