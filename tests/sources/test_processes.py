"""Three brokers in a row, each a process of its own: killed under load, with a proxy that harms frames between them.

Whatever happens, when it is over the last broker has exactly the rows of the publisher, each stream row once.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.serving.processes import PATIENCE, ProcessGroup, ServerProcess, wait_until
from tests.serving.proxy import EVERY_FAULT, FaultyProxy, FrameFaults
from whence.model.errors import WhenceError

pytestmark = pytest.mark.xdist_group("brokers in a row")

SCHEMA = """
    CREATE STREAM trade (number INT, issue TEXT, price INT);
    CREATE TABLE flight (id INT PRIMARY KEY, price INT);
"""
VIEWS = """
    CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n, SUM(number) AS s FROM trade GROUP BY issue;
    CREATE VIEW cheap AS SELECT COUNT(*) AS n, SUM(price) AS price FROM flight WHERE price < 500;
"""


class Chain:
    """A publisher and three brokers; between any two a proxy."""

    def __init__(self, folder: Path, stack: ExitStack, group: ProcessGroup) -> None:
        self.folder, self.token = folder, "whence_" + "s" * 43
        tokens, token = folder / "tokens", folder / "token"
        token.write_text(self.token)
        tokens.write_text(f"all sha256:{hashlib.sha256(self.token.encode()).hexdigest()}\n")
        tokens.chmod(0o600)
        self.servers: list[ServerProcess] = []
        self.proxies: list[FaultyProxy] = []
        self.clients: list[Any] = []
        for place in range(4):
            server = group.add(ServerProcess(folder / f"db{place}", tokens, log=folder / f"log{place}"))
            server.start()
            client = stack.enter_context(whence.connect(server.url, token=self.token, timeout=PATIENCE))
            if place == 0:
                client.execute(SCHEMA)
            else:
                proxy = stack.enter_context(FaultyProxy(self.servers[-1].port, seed=place))
                self.proxies.append(proxy)
                for name in ("trade", "flight"):
                    url = proxy.url.replace("http", "ws") + f"/{name}"
                    client.execute(f"CREATE SOURCE {name} FROM '{url}' WITH (token_file = '{token}')")
            self.servers.append(server)
            self.clients.append(client)
        self.clients[-1].execute(VIEWS)
        self.published = 0

    def publish(self, seconds: float) -> None:
        """Write to the publisher for some time."""
        dice, end, client = random.Random(7), time.monotonic() + seconds, self.clients[0]
        while time.monotonic() < end:
            first = self.published
            rows = [(n, f"i{n % 5}", dice.randrange(1000)) for n in range(first, first + dice.randrange(1, 30))]
            client.insert("trade", rows)
            client.insert("flight", [(dice.randrange(50), dice.randrange(1000)) for _ in range(3)])
            self.published += len(rows)
            time.sleep(0.005)

    def rows(self, place: int, query: str) -> list[Any]:
        return sorted(self.clients[place].query(query).rows)

    def check(self) -> None:
        """Wait until the last broker has what the publisher has."""
        for here, there in (
            ("SELECT * FROM trade", "SELECT * FROM trade"),
            ("SELECT * FROM cheap", "SELECT COUNT(*) AS n, SUM(price) AS price FROM flight WHERE price < 500"),
            (
                "SELECT * FROM high",
                "SELECT issue, MAX(price), COUNT(*), SUM(number) FROM trade GROUP BY issue",
            ),
        ):
            truth = self.rows(0, there)
            wait_until(lambda q=here, t=truth: self.rows(3, q) == t, f"{here}\n{self.describe()}")

    def describe(self) -> str:
        said = []
        for client in self.clients[1:]:
            try:
                said.append(str(client.execute("SHOW SOURCES").rows))
            except WhenceError as error:
                said.append(str(error))
        return "\n".join(said)

    def while_publishing(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something while rows are written."""
        writer = threading.Thread(target=self.publish, args=(seconds,))
        writer.start()
        try:
            act()
        finally:
            writer.join()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """One chain for all tests here: starting four processes takes longer than what is done to them."""
    with ProcessGroup() as group, ExitStack() as stack:
        yield Chain(tmp_path_factory.mktemp("chain"), stack, group)


def test_killed_under_load(chain: Chain) -> None:
    dice = random.Random(3)

    def kill() -> None:
        for place in (2, 1, 0, 3):
            time.sleep(0.3 + dice.random() * 0.3)
            chain.servers[place].kill()
            time.sleep(dice.random() * 0.3)
            chain.servers[place].start()

    before = chain.published
    chain.while_publishing(5.0, kill)
    assert chain.published > before + 200
    chain.check()


def test_frames_that_are_lost_doubled_and_swapped(chain: Chain) -> None:
    def harm() -> None:
        faults = FrameFaults(drop=0.05, double=0.05, swap=0.05, delay=0.05)
        for proxy in chain.proxies:
            proxy.harm(up=faults, down=faults)
        time.sleep(3.0)
        for proxy in chain.proxies:
            proxy.harm(up=EVERY_FAULT, down=EVERY_FAULT)
        time.sleep(2.0)
        for proxy in chain.proxies:
            proxy.heal()

    chain.while_publishing(5.5, harm)
    chain.check()
