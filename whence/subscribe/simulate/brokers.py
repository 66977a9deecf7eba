"""A broker that is a database, with the writer that ships: links, crashes and backups, in virtual time.

One database has a source from each of some publishers, streams and tables, and a view over each. Messages are those of
the wire, over links that lose, repeat, delay and reorder; `Broker`, `SourceFeed`, `SourceWriter`, `FeedEpoch` and the
tables of what is reflected are those of `runtime/sources`, run by a `VirtualHost`. A crash leaves the files as they
were at the last sync.

The law: after every step of the writer, and after every recovery, the rows of a source are those of its publisher's
history at exactly the ticks that are reflected (S2, S4), and a view is that of those rows. When links have healed all
ticks are reflected (L1).
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import whence
from whence.runtime.sources.broker import Broker
from whence.runtime.sources.connection import ServerAddress
from whence.runtime.sources.host import hosted_by
from whence.subscribe.simulate.network import LinkFaults, LinkNetwork, VirtualTime
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.virtual_host import VirtualHost, VirtualLoop
from whence.subscribe.simulate.wire_publishers import SCHEMA, LinkConnection, WirePublisher

ACTIVE, SETTLE = 12.0, 40.0
"""Seconds in which there is something new, and after which everything must be here once links have healed."""

_COLUMNS = ", ".join(f"{column.name} BIGINT NOT NULL" for column in SCHEMA.columns)


class BrokerWorld:
    """One run: publishers, and one broker that follows them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(f"broker {seed}")
        self.time, self.shown, self.recovered = VirtualTime(), 0, 0
        faults = LinkFaults(dice.choice([0.0, 0.05, 0.3]), dice.choice([0.0, 0.2]), dice.choice([0.0, 0.3]), 0.02)
        self.network = LinkNetwork(self.time, random.Random(dice.random()), faults, self._deliver)
        self.publishers = {
            f"p{i}": WirePublisher(f"p{i}", i % 2 == dice.randrange(2), self.network, random.Random(dice.random()))
            for i in range(dice.randint(1, 3))
        }
        self._folder = tempfile.TemporaryDirectory(prefix="whence-simulated-")
        self._opened = 0
        self._synced: Path | None = None
        self._db: whence.Database | None = None
        self._host: VirtualHost | None = None

    # -- the database ------------------------------------------------------------------------------------------------

    @property
    def db(self) -> whence.Database:
        """The broker's database, while it is up."""
        assert self._db is not None
        return self._db

    @property
    def broker(self) -> Broker:
        """What feeds its sources."""
        found = self.db._coordinator.broker
        assert found is not None
        return found

    def _open(self) -> None:
        self._opened += 1
        self._is_ready = False
        folder = Path(self._folder.name) / f"open-{self._opened}"
        if self._synced is not None:
            shutil.copytree(self._synced, folder)
        with hosted_by(self._make_host):
            self._db = whence.open(folder, durability="none", clock=lambda: 1e3 + self.time.now, silence=None)
            if self._synced is None:
                for name, publisher in self.publishers.items():
                    kind, key = ("STREAM", "") if publisher.is_stream else ("TABLE", ", PRIMARY KEY (id)")
                    self.db.execute(
                        f"CREATE SOURCE {name} FROM 'ws://{name}/{name}' WITH (ask = 'all') AS {kind} ({_COLUMNS}{key})"
                    )
                    self.db.execute(f"CREATE VIEW of_{name} AS SELECT v, COUNT(*) AS n FROM {name} GROUP BY v")
        self._is_ready = True
        self._check("recovery")

    def _make_host(self) -> VirtualHost:
        self._host = VirtualHost(self.time, random.Random(self.dice.random()), self._connect, self._after_step)
        return self._host

    def _connect(self, loop: VirtualLoop, address: ServerAddress, ended: Callable[[Any], None]) -> LinkConnection:
        name = address.url.rsplit("/", 1)[-1]
        publisher = self.publishers[name]
        return LinkConnection(loop, address, ended, f"broker {self._opened}", publisher, self.network)

    def _after_step(self, worker: str) -> None:
        if not self._is_ready:
            return
        if worker == "sync":
            self.db.sync()
            self._synced = Path(self._folder.name) / f"synced-{self._opened}-{self.db.epoch}"
            shutil.copytree(str(self.db.path), self._synced, dirs_exist_ok=True)
        elif worker == "writer":
            self._check("the writer")

    def _crash(self) -> None:
        assert self._host is not None
        self.network.seen["crashes"] += 1
        self._host.close()
        self.db.close()
        self._db = None
        self.recovered += 1
        self.time.after(self.dice.choice([0.1, 2.0]), self._open)

    def close(self) -> None:
        """Let go of files."""
        if self._db is not None:
            if self._host is not None:
                self._host.close()
            self._db.close()
        self._folder.cleanup()

    # -- what happens ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen, and check what must be true then."""
        dice = self.dice
        self._open()
        for publisher in self.publishers.values():
            at, rate = 0.0, dice.choice([1.0, 4.0])
            while (at := at + dice.expovariate(rate)) < ACTIVE:
                self.time.at(at, publisher.publish)
            self._beat(publisher)
        for _ in range(dice.choice([0, 2, 5])):
            self.time.at(dice.random() * ACTIVE, self._strike)
        self.time.at(ACTIVE, self.network.heal)
        self.time.run(ACTIVE + SETTLE)
        self._check("the end")
        for name, publisher in self.publishers.items():
            record = self.broker.records[name]
            is_ours = record.lineage is not None and record.lineage.era == publisher.lineage.era
            if publisher.log and (not is_ours or record.reflected.horizon < len(publisher.log)):
                raise SimulationError("L1", f"{name} is reflected up to {record.reflected} of {len(publisher.log)}")

    def _beat(self, publisher: WirePublisher) -> None:
        publisher.pump(beat=True)
        self.time.after(1.0, lambda: self._beat(publisher))

    def _strike(self) -> None:
        dice, now = self.dice, self.time.now
        publisher = dice.choice(list(self.publishers.values()))
        match dice.choice(["crash", "crash", "restore", "cut"]):
            case "crash" if self._db is not None and self._is_ready:
                self._crash()
            case "restore":
                self.network.seen["backups restored"] += 1
                publisher.restore(max(0, len(publisher.log) - dice.randrange(1, 6)), dice.random() < 0.5)
            case "cut":
                ends = [f"broker {self._opened}", publisher.name]
                dice.shuffle(ends)
                self.network.cut[ends[0], ends[1]] = now + dice.random() * 4

    def _deliver(self, to: str, message: Any) -> None:
        connection, data = message
        if to in self.publishers:
            connection.arrive_up(data)
        elif to == f"broker {self._opened}" and self._db is not None:
            connection.arrive_down(data)

    # -- what must be true -------------------------------------------------------------------------------------------

    def _check(self, when: str) -> None:
        """Check that sources have the rows of what they reflect, and views those of their sources."""
        for name, publisher in self.publishers.items():
            record = self.broker.records[name]
            if not publisher.is_stream and not len(record.reflected):
                continue  # a table that starts over has its rows until others take their place
            rows = Counter(map(tuple, self.db[name].rows))
            expected = Counter[tuple[int, ...]]()
            if record.lineage is not None and len(record.reflected):
                expected = publisher.rows_at(record.lineage, record.reflected.minus(record.lost))
            self.shown += 1
            if rows != expected:
                more, less = dict(rows - expected), dict(expected - rows)
                twice = any(count > 1 for count in rows.values())
                what = f"after {when} {name} has {more} too many and {less} missing, at {record.reflected}"
                raise SimulationError("S4" if twice else "S2", what)
            groups = Counter(row[2] for row in rows.elements())
            if dict(self.db[f"of_{name}"].rows) != groups:
                raise SimulationError("S2", f"after {when} the view of {name} is not that of its rows")
