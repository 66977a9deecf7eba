"""A workload of real processes, and the faults that befall it, all by a seed.

A server process, publishers and followers, which reach the server through a proxy; faults one after another, each at
its time; then everything heals, publishers stop, and every follower must end with the rows of the last epoch.
`checks.py` says what must be true of what they wrote down.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whence
from tests.serving.processes import ChildProcess, ProcessGroup, ServerProcess, module, wait_until
from tests.serving.proxy import BOTH, EVERY_FAULT, NO_FAULTS, FaultyProxy
from tests.serving.world import FOLLOWED, SETUP, SHIFTY, first_links
from whence.server.access.tokens import make_token

LIMITS = ("hello_seconds=2", "idle_seconds=2", "pong_seconds=2")
SMALL = ("ring_bytes=4000", "send_bytes=4096")
"""Limits by which a client that is away or slow is soon too far behind, and is told what is lost."""

PING, PATIENCE = 1.0, 1.5
"""Seconds after which clients ping, and after which they ask again."""

FAULTS = (
    "kill server",
    "stop server",
    "kill follower",
    "kill follower",
    "kill publisher",
    "pause server",
    "pause follower",
    "pause publisher",
    "harm frames",
    "harm frames",
    "harm frames",
    "stall",
    "cut",
    "half open",
    "replace view",
    "drop view",
)


def declare(db: whence.Database) -> None:
    """Make a database what `world.py` says."""
    db.execute(SETUP)
    db.insert("link", first_links())


@dataclass(frozen=True)
class Plan:
    """How large a run is."""

    seed: int
    publishers: int = 2
    followers: int = 3
    faults: int = 8
    pause: float = 0.5  # seconds between two faults, on average
    longest_stop: float = 0.8  # seconds that a process is stopped; above 2 its connections are given up

    @property
    def has_replica(self) -> bool:
        """Whether there is one more follower, of another server that only reads the folder."""
        return self.seed % 2 == 1

    @property
    def limits(self) -> tuple[str, ...]:
        return (*LIMITS, *SMALL) if self.seed % 2 else LIMITS

    @property
    def durability(self) -> str:
        return ("commit", "none", "interval")[self.seed % 3]


class FaultyRun:
    """One run, with a server of its own process."""

    faults = FAULTS

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.database = plan, folder, folder / "db"
        self.dice = random.Random(plan.seed)
        self.happened: list[str] = []
        self._shape = 0
        self._more = ("--durability", plan.durability)
        self._token = make_token(folder / "tokens", "tester")
        self.last: whence.Position

    @property
    def publisher_files(self) -> list[Path]:
        return [self.folder / f"publisher{who}.jsonl" for who in range(1, self.plan.publishers + 1)]

    @property
    def follower_files(self) -> list[Path]:
        count = self.plan.followers + self.plan.has_replica
        return [self.folder / f"follower{number}.jsonl" for number in range(count)]

    def run(self) -> None:
        """Let it all happen; return when every process has ended as it should."""
        with ProcessGroup() as group, self._serving(group) as self.url:
            port = int(self.url.rpartition(":")[2])
            with FaultyProxy(port, self.plan.seed) as self.proxy, self._replicating(group) as replica:
                self._start_clients(group, replica)
                for _ in range(self.plan.faults):
                    time.sleep(self.dice.uniform(0.2, 1.8) * self.plan.pause)
                    self._befall(self.dice.choice(self.faults))
                time.sleep(self.plan.pause)
                self._heal()
                self._finish()

    @contextmanager
    def _serving(self, group: ProcessGroup) -> Iterator[str]:
        """Serve the database; give the server's address."""
        with whence.open(self.database, retain="all") as db:
            declare(db)
        tokens, log, plan = self.folder / "tokens", self.folder / "server.log", self.plan
        self.server = group.add(ServerProcess(self.database, tokens, log=log, limits=plan.limits))
        self.server.start(*self._more)
        yield self.server.url
        self.server.signal(signal.SIGTERM)
        assert self.server.wait() == 0, f"the server did not stop as it should: {self.server.log()}"

    @contextmanager
    def _replicating(self, group: ProcessGroup) -> Iterator[str | None]:
        """Serve the folder a second time, if the plan says so, by a process that only reads it; give its address."""
        if not self.plan.has_replica:
            yield None
            return
        tokens, log = self.folder / "tokens", self.folder / "replica.log"
        replica = group.add(ServerProcess(self.database, tokens, log=log, limits=self.plan.limits))
        replica.start("--read-only")
        yield replica.url
        replica.signal(signal.SIGTERM)
        assert replica.wait() == 0, f"the server that reads did not stop as it should: {replica.log()}"

    def _start_clients(self, group: ProcessGroup, replica: str | None) -> None:
        common = {"url": self.proxy.url, "token": self._token, "patience": PATIENCE, "ping": PING}
        self.publishers: list[ChildProcess] = []
        for who, path in enumerate(self.publisher_files, 1):
            arguments = module("publisher", **common, out=str(path), who=who, seed=self.plan.seed)
            self.publishers.append(group.add(ChildProcess(arguments, self.folder / "publishers.log")))
        names = list(FOLLOWED)
        self.dice.shuffle(names)
        self.followers: list[tuple[ChildProcess, ChildProcess]] = []  # which begins, and which goes on
        for number, path in enumerate(self.follower_files):
            given = {**common, "out": str(path), "names": names[number :: self.plan.followers]}
            if number == self.plan.followers:
                given |= {"url": replica, "names": [name for name in names if FOLLOWED[name].is_of_relations]}
            log = self.folder / "followers.log"
            both = [ChildProcess(module("follower", **given, resume=resume), log) for resume in (False, True)]
            self.followers.append((group.add(both[0]), group.add(both[1])))
        self.following = [first for first, _ in self.followers]
        for process in (*self.publishers, *self.following):
            process.start()
        files = (*self.publisher_files, *self.follower_files)
        wait_until(lambda: all(path.exists() for path in files), "clients begin")

    # -- faults --------------------------------------------------------------------------------------------------------

    def _befall(self, fault: str) -> None:
        acts: dict[str, Callable[[], Any]] = {
            "kill server": self._kill_server,
            "stop server": self._stop_server,
            "kill follower": self._kill_follower,
            "kill publisher": self._kill_publisher,
            "pause server": lambda: self._pause(self.server),
            "pause follower": lambda: self._pause(self.dice.choice(self.following)),
            "pause publisher": lambda: self._pause(self.dice.choice(self.publishers)),
            "harm frames": self._harm_frames,
            "stall": self._stall,
            "cut": self.proxy.cut,
            "half open": lambda: self.proxy.half_open(self.dice.choice(("server", "client"))),
            "replace view": self._replace_view,
            "drop view": self._drop_view,
        }
        self.happened.append(fault)
        acts[fault]()

    def _kill_server(self) -> None:
        self.server.kill()
        time.sleep(self.dice.choice((0, 0.2)))
        self.server.start(*self._more)

    def _stop_server(self) -> None:
        self.server.signal(signal.SIGTERM)
        assert self.server.wait() == 0, f"the server did not stop as it should: {self.server.log()}"
        self.server.start(*self._more)

    def _kill_follower(self) -> None:
        at = self.dice.randrange(len(self.following))
        self.following[at].kill()
        self.following[at] = self.followers[at][self.dice.randrange(2)]
        self.following[at].start()

    def _kill_publisher(self) -> None:
        process = self.dice.choice(self.publishers)
        process.kill()
        process.start()

    def _pause(self, process: ChildProcess) -> None:
        process.signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.1, self.plan.longest_stop))
        process.signal(signal.SIGCONT)

    def _harm_frames(self) -> None:
        ways = self.dice.choice((("up",), ("down",), BOTH))
        up, down = (EVERY_FAULT if way in ways else NO_FAULTS for way in BOTH)
        self.proxy.harm(up, down)
        time.sleep(self.dice.uniform(0.3, 1.0))
        self.proxy.harm()

    def _stall(self) -> None:
        ways = self.dice.choice((("up",), ("down",), BOTH))
        self.proxy.stall(*ways)
        time.sleep(self.dice.uniform(0.2, 0.8))
        self.proxy.flow(*ways)

    def _replace_view(self) -> None:
        self._shape = (self._shape + 1) % len(SHIFTY)
        self._execute(f"CREATE OR REPLACE VIEW shifty AS {SHIFTY[self._shape]}")

    def _drop_view(self) -> None:
        self._execute("DROP VIEW shifty")
        time.sleep(0.1)
        self._execute(f"CREATE VIEW shifty AS {SHIFTY[self._shape]}")

    def _execute(self, sql: str) -> None:
        with whence.connect(self.url, token=self._token) as owner:
            owner.execute(sql)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.proxy.heal()
        for process in (*self.publishers, *self.following):
            process.signal(signal.SIGCONT)

    def _finish(self) -> None:
        for process in self.publishers:
            process.say("stop")
        for process in self.publishers:
            assert process.wait() == 0, f"a publisher failed: {process.log()}"
        with whence.connect(self.url, token=self._token) as owner:
            owner.insert("move", (0, 0))
            assert owner.position is not None
            self.last = owner.position
        for process in self.following:
            process.say(f"finish {self.last}")
        for process in self.following:
            assert process.wait() == 0, f"a follower failed: {process.log()}"
