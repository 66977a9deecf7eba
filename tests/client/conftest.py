"""A database that is served, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import whence
from tests.client.relay import Relay
from whence.client.blocking import Client
from whence.runtime.database import Database
from whence.server.app import Server

EVERY_TYPE = """
CREATE TABLE t (id INT PRIMARY KEY, flag BOOLEAN, small INT, large BIGINT, number DOUBLE, price DECIMAL(10, 2),
                huge DECIMAL(38, 4), name TEXT, day DATE, moment TIMESTAMP, span INTERVAL);
CREATE VIEW named AS SELECT name, COUNT(*) AS n, SUM(price) AS total, MAX(day) AS last FROM t GROUP BY name;
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS SELECT src, dst FROM link
  UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE STREAM s (x INT);
CREATE VIEW pairs WITH (provenance = 'lineage') AS SELECT SUM(x) AS total FROM slide(s, rows => 2, every => 1);
"""


@pytest.fixture
def db() -> Iterator[Database]:
    with whence.open() as found:
        found.execute(EVERY_TYPE)
        yield found


@pytest.fixture
def server(db: Database) -> Iterator[Server]:
    with whence.serve(db, port=0) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with whence.connect(server.url, token=server.token) as found:
        yield found


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(int(server.url.rpartition(":")[2])) as found:
        yield found
