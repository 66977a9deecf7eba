"""A database that is served in virtual time, and is a broker if it has sources: everything but sockets and threads is
what ships.

Delivery, sessions, rights and the tables of what is reflected are those of `server` and `runtime/sources`; the writer,
the curiosity and the sync run by a `VirtualHost`. A crash leaves the files as they were at the last sync.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import whence
from whence.runtime.sources.connection import ServerAddress
from whence.runtime.sources.host import hosted_by
from whence.server.access.network_policy import NetworkPolicy
from whence.server.access.rights import Rights
from whence.server.access.tokens import Tokens
from whence.server.delivery.admissions import Admissions
from whence.server.delivery.delivery import Delivery
from whence.server.limits import Limits
from whence.server.sockets.gateway import SWEEP, Gateway
from whence.server.verbs.calls import Service
from whence.server.writing.write_queue import WriteQueue
from whence.subscribe.simulate.network import LinkNetwork
from whence.subscribe.simulate.node_histories import NodeHistory
from whence.subscribe.simulate.node_links import BrokerLink, NodeLink, Receive
from whence.subscribe.simulate.virtual_host import VirtualHost, VirtualLoop, make_loop

LIMITS = Limits(messages_per_second=10**9, idle_seconds=1e9, ring_bytes=4_000)
"""Those of a server; the recent changes that it keeps are few, so that states are told, too."""


GUEST = "whence_" + "g" * 43
TOKENS = {"everyone": "whence_" + "e" * 43, "guest": GUEST}
"""Who there is: one who may do everything, and one who may do what `allowed` says."""


class VirtualGateway(Gateway):
    """The connections of a server in virtual time."""

    def __init__(self, service: Service, loop: VirtualLoop) -> None:
        super().__init__(service, NetworkPolicy.of("localhost"))
        service.coordinator.hub.linger = 1e9  # by a real clock
        service.coordinator.hub.ring_bytes = LIMITS.ring_bytes
        admissions = Admissions(service.coordinator, service.rights, service.limits)
        self._delivery = Delivery(service.coordinator, admissions, loop, self.metrics, budget=1e9)
        self._delivery.start()
        self._sweeping = loop.call_later(SWEEP, self._sweep)

    def stop(self) -> None:
        """Tell nothing more."""
        self._stopping = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.delivery.close()


class ServedNode:
    """One database: publisher, broker or both."""

    def __init__(
        self,
        name: str,
        network: LinkNetwork,
        dice: random.Random,
        folder: Path,
        find: Callable[[str], ServedNode | None],
        clock: Callable[[], float],
    ) -> None:
        """`find` gives the node that a URL leads to; `clock` seconds since 1970."""
        self.name, self.network, self.time, self._dice = name, network, network.time, dice
        self._folder, self._find, self._now = folder / name, find, clock
        self.history = NodeHistory(name)
        self.links: dict[NodeLink, None] = {}
        self.clock_offset = 0.0
        self.is_up = False
        self.restores = 0
        self.on_sent: Callable[[NodeLink, bytes], None] = lambda link, data: None
        self.on_views: Callable[[ServedNode, list[str]], None] = lambda node, names: None
        self._opened = 0
        self._synced: dict[int, Path] = {}  # copies of the files, by the epoch that they were synced at
        self._hosts: list[VirtualHost] = []
        self.open()

    # -- the database ------------------------------------------------------------------------------------------------

    def open(self, epoch: int | None = None) -> None:
        """Open what the disk has, or had as of an epoch, and serve it."""
        self._opened += 1
        self.loop = make_loop(self.time)
        folder = self._folder / f"open-{self._opened}"
        copies = [at for at in self._synced if epoch is None or at <= epoch]
        if copies:
            shutil.copytree(self._synced[max(copies)], folder)
        else:
            folder.mkdir(parents=True)
        with self._hosted():
            self.db = whence.open(folder, durability="none", clock=self._clock, silence=None)
        self._synced = {at: copy for at, copy in self._synced.items() if at <= self.db.epoch}
        self.history.begin(self.db._coordinator)
        self.db._coordinator.on_durable(self._copy)
        self._serve()
        self.is_up = True

    def _serve(self) -> None:
        db = self.db
        tokens = self._folder / "tokens"
        lines = (f"{who} sha256:{hashlib.sha256(token.encode()).hexdigest()}\n" for who, token in TOKENS.items())
        tokens.write_text("".join(lines), encoding="utf-8")
        tokens.chmod(0o600)
        self._queue = WriteQueue(db)
        self._service = Service(db, Tokens(tokens), Rights(db, "everyone"), LIMITS, self._queue)
        self.gateway = VirtualGateway(self._service, self.loop)

    def _clock(self) -> float:
        return self._now() + self.clock_offset

    def _copy(self, epoch: int) -> None:
        """Keep the files as they are when they have been synced: what a crash leaves."""
        self.history.note_marks(self.db._coordinator)
        if not self.keeps_copies or epoch in self._synced:
            return
        copy = self._folder / f"synced-{self._opened}-{epoch}"
        shutil.copytree(str(self.db.path), copy)
        self._synced[epoch] = copy
        for old in sorted(self._synced)[:-8]:
            shutil.rmtree(self._synced.pop(old), ignore_errors=True)

    keeps_copies = True

    @contextmanager
    def _hosted(self) -> Iterator[None]:
        with hosted_by(self._make_host):
            yield

    def _make_host(self) -> VirtualHost:
        host = VirtualHost(self.time, random.Random(self._dice.random()), self._connect, self._stepped, self.loop)
        self._hosts.append(host)
        return host

    def _connect(self, loop: VirtualLoop, address: ServerAddress, ended: Callable[[Any], None]) -> BrokerLink:
        return BrokerLink(self._reach(address.url), self, address, ended)

    def _reach(self, url: str) -> ServedNode | None:
        found = self._find(url)
        cut = self.network.cut
        if found is None or not found.is_up or found.loop.is_paused:
            return None
        if any(cut.get(ends, 0.0) > self.time.now for ends in ((self.name, found.name), (found.name, self.name))):
            return None
        return found

    def _stepped(self, worker: str) -> None:
        if self.is_up and worker == "writer":
            self.history.note_marks(self.db._coordinator)

    # -- connections -------------------------------------------------------------------------------------------------

    def connect(self, peer: str, token: str | None, receive: Receive, lost: Callable[[str], None]) -> NodeLink | None:
        """Connect to this node; None if it does not answer."""
        if not self.is_up or self.loop.is_paused:
            return None
        link = NodeLink(self, peer, token or TOKENS["everyone"], receive, lost)
        if link.greeting is None:
            return None
        self.links[link] = None
        return link

    def note_sent(self, link: NodeLink, data: bytes) -> None:
        """Note that a message is sent to a client."""
        self.on_sent(link, data)

    # -- faults ------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose everything that is not synced."""
        self._stop("the server crashed")

    def restart(self) -> None:
        """Come back with what was synced."""
        if not self.is_up:
            self.open()

    def restore(self, epoch: int) -> bool:
        """Come back with the files of an earlier time, which somebody has copied; return whether there are some."""
        if not any(at <= epoch for at in self._synced):
            return False
        self._stop("the server is restored from a copy")
        self.restores += 1
        self.open(epoch)
        return True

    def _stop(self, why: str) -> None:
        self.is_up = False
        self.loop.is_over = True
        self.gateway.stop()
        for link in list(self.links):
            link.lose(why)
        self._queue.close()
        self._service.close()
        for host in self._hosts:
            host.close()
        self._hosts.clear()
        self.history.end(self.db._coordinator)
        self.db.close()

    def close(self) -> None:
        """Let go of files."""
        if self.is_up:
            self._stop("the end")

    # -- as a database is used ---------------------------------------------------------------------------------------

    def execute(self, sql: str) -> Any:
        """Run statements, and follow the tables that they make."""
        before = set(self.history.views)
        with self._hosted():
            found = self.db.execute(sql)
        self.history.begin(self.db._coordinator)
        self.on_views(self, sorted(self.history.views.keys() - before))
        return found

    def __getattr__(self, name: str) -> Any:
        if name == "db":
            raise AttributeError(name)
        return getattr(self.db, name)

    def __getitem__(self, name: str) -> Any:
        return self.db[name]
