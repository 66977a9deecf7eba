"""A stage in virtual time: publishers and brokers that are real databases, links that lose, clients that are checked.

A scenario names databases (`node`), declares sources between them, executes SQL, writes, lets time pass (`until`), and
looks at what its subscribers (`follow`) were told. Whatever the scenario looks at, every update that any subscriber is
told is checked by the oracle: S2 (it is the view over exactly the ticks that it reflects) and S3 (neither what is
reflected nor bounds go back).

A run is a function of its seed: ids and chance are drawn from it while the stage stands (`seeded`).
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from whence.model.errors import WhenceError
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position
from whence.subscribe.simulate.link_clients import LinkClient
from whence.subscribe.simulate.network import LinkFaults, LinkNetwork, VirtualTime
from whence.subscribe.simulate.node_links import NodeLink
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.served_nodes import GUEST, ServedNode
from whence.subscribe.simulate.stage_oracle import StageOracle
from whence.subscribe.updates import Update

EPOCH_TIME = 1_790_000_000.0
"""What clocks say when a stage begins."""

STEP, LOSSY, PATIENCE = 0.02, 60.0, 700.0
"""Seconds between two looks at a condition, after which links lose nothing any more, and after which it never comes
true. A client that has asked in vain asks again after twice the time, up to 300 s."""


@contextmanager
def seeded(seed: int | str) -> Iterator[None]:
    """Draw what programs draw by chance from a seed."""
    dice, state = random.Random(f"ids {seed}"), random.getstate()
    random.seed(f"chance {seed}")

    def token_hex(nbytes: int | None = None) -> str:
        return dice.randbytes(nbytes or 16).hex()

    def uuid4() -> UUID:
        return UUID(token_hex())

    try:
        with mock.patch("secrets.token_hex", token_hex), mock.patch("uuid.uuid4", uuid4):
            yield
    finally:
        random.setstate(state)


@dataclass
class Denial:
    """The epochs in which guests may not read a view."""

    since: int
    until: int | None = None


class VirtualStage:
    """Databases, links and clients in virtual time."""

    def __init__(self, seed: int | str, names: tuple[str, ...] = (), faults: LinkFaults | None = None) -> None:
        self.dice = random.Random(f"stage {seed}")
        self.time = VirtualTime()
        self.network = LinkNetwork(
            self.time, self.dice, faults or self._faults(), self._deliver, seed=f"links {seed}", by_link=True
        )
        self._folder = tempfile.TemporaryDirectory(prefix="whence-stage-")
        self.nodes: dict[str, ServedNode] = {}
        self.clients: list[LinkClient] = []
        self._looks = 0  # at the clock
        self.denials: dict[tuple[str, str], list[Denial]] = {}  # by node and view
        self.oracle = StageOracle(self.nodes)
        for name in names:
            self.node(name)

    def _faults(self) -> LinkFaults:
        dice = self.dice
        return LinkFaults(dice.choice([0.0, 0.1, 0.3]), dice.choice([0.0, 0.2]), dice.choice([0.0, 0.3]), 0.01)

    # -- who there is ------------------------------------------------------------------------------------------------

    def node(self, name: str) -> ServedNode:
        """Return a new database, which is served."""
        dice = random.Random(self.dice.random())
        made = ServedNode(name, self.network, dice, Path(self._folder.name), self.find, self._clock)
        made.on_views, made.on_sent = self._follow_all, self._sent
        self.nodes[name] = made
        return made

    def _clock(self) -> float:
        """Return the time of day, which is never the same twice: what happens one after the other is told so."""
        self._looks += 1
        return EPOCH_TIME + self.time.now + self._looks * 1e-6

    def _follow_all(self, node: ServedNode, views: list[str]) -> None:
        """Have somebody follow every view, so that all that is told is checked."""
        for name in views:
            self.follow(node, name)

    def __getattr__(self, name: str) -> ServedNode:
        try:
            return self.__dict__["nodes"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def find(self, url: str) -> ServedNode | None:
        """Return the node that a URL leads to."""
        return self.nodes.get(url.removeprefix("ws://").removeprefix("http://").split("/")[0])

    def reach(self, who: str, node: ServedNode) -> ServedNode | None:
        """Return a node if somebody can connect to it now."""
        cut, now = self.network.cut, self.time.now
        is_cut = any(cut.get(ends, 0.0) > now for ends in ((who, node.name), (node.name, who)))
        return None if is_cut or not node.is_up or node.loop.is_paused else node

    def source(self, broker: ServedNode, name: str, publisher: ServedNode, options: str = "") -> None:
        """Have a source at a broker. A definition that gets lost is asked for again."""
        more = f" WITH ({options})" if options else ""
        sql = f"CREATE SOURCE {name} FROM 'ws://{publisher.name}/{name}'{more}"
        for attempt in range(20):
            try:
                broker.execute(sql)
            except WhenceError:
                if name in broker.db._coordinator.program.tables:
                    return
                if attempt == 19:
                    raise
            else:
                return

    def follow(self, broker: ServedNode, query: str, **options: Any) -> LinkClient:
        """Subscribe at a broker."""
        client = LinkClient(self, f"client {len(self.clients)}", broker, query, **options)
        self.clients.append(client)
        return client

    # -- what happens ------------------------------------------------------------------------------------------------

    def _deliver(self, to: str, message: Any) -> None:
        arrive, data, more = message
        arrive(data, more)

    def until(self, condition: Callable[[], Any]) -> None:
        """Let time pass until something is so."""
        start = self.time.now
        while not condition():
            if self.time.now >= start + PATIENCE:
                raise SimulationError("L1", f"it never happened in {PATIENCE:.0f} s; {self.first_wrong()}")
            if self.time.now >= start + LOSSY:
                self.network.heal()
            self.time.run(self.time.now + STEP)

    def settle(self) -> None:
        """Let links heal, and everyone come to hold the final state (L1). Who has heard nothing yet connects anew, as
        over a connection that broke, instead of waiting the minutes that asking in vain has come to."""
        self.network.heal()
        for client in self.clients:
            if client.feed.rows.position is None:
                client.connect_anew()
        self.until(lambda: self.first_wrong() is None)

    def first_wrong(self) -> str | None:
        """Return what somebody has that is not the final state; None if there is nothing."""
        for client in self.clients:
            if client.is_closed:
                continue
            if client.failure is not None:
                if client.token == GUEST:
                    return f"{client.name} may not read {client.query}"
                raise client.failure
            if client.feed.rows.position is None:
                return f"{client.name} has heard nothing of {client.query}"
            expected = self.oracle.rows_of(client.node, client.query)
            if expected is not None and Counter(map(tuple, client.rows)) != expected:
                return f"{client.name} has {client.rows} of {client.query}, and {dict(expected)} is true"
        return None

    def updates(self, client: LinkClient) -> list[Update]:
        """Return the updates that have come since."""
        if client.failure is not None:
            raise client.failure
        found, client.updates = client.updates, []
        return found

    def shown(self, client: LinkClient, update: Update) -> None:
        """Check what a client is shown."""
        self.oracle.check(client, update)

    def pause(self, node: ServedNode) -> None:
        """Have a database say nothing."""
        node.loop.pause()

    def resume(self, node: ServedNode) -> None:
        """Have it go on."""
        node.loop.resume()

    def _sent(self, link: NodeLink, data: bytes) -> None:
        """Check what a server sends: nothing of an epoch that is not synced (S5)."""
        message, coordinator = ms.decode_down(data, "msgpack"), link.node.db._coordinator
        if isinstance(message, ms.State | ms.UpdateMessage | ms.Silence | ms.Amended):
            at = Position.parse(message.at)
            if at.history == coordinator.lineage.history and at.epoch > coordinator.durable_epoch:
                synced = coordinator.durable_epoch
                raise SimulationError("S5", f"{link.node.name} tells {link.peer} epoch {at.epoch}, {synced} is synced")
            has_rows = isinstance(message, ms.State) or (isinstance(message, ms.UpdateMessage) and any(message.parts))
            client = next((one for one in self.clients if one.name == link.peer), None)
            if has_rows and client is not None and client.token == GUEST and self._is_denied(client, at.epoch):
                raise SimulationError("S6", f"{link.node.name} tells {client.name} {client.query} at {at.epoch}")

    def _is_denied(self, client: LinkClient, epoch: int) -> bool:
        denied = self.denials.get((client.node.name, client.query), [])
        return any(one.since <= epoch and (one.until is None or epoch < one.until) for one in denied)

    def deny(self, node: ServedNode, view: str) -> None:
        """Take the right to read a view from guests, in an epoch."""
        node.db.delete("allowed", [("guest", view, "read")])
        self.denials.setdefault((node.name, view), []).append(Denial(node.db.epoch))

    def allow(self, node: ServedNode, view: str) -> None:
        """Give guests the right to read a view, perhaps again."""
        node.db.insert("allowed", [("guest", view, "read")])
        for one in self.denials.get((node.name, view), []):
            one.until = node.db.epoch if one.until is None else one.until

    def close(self) -> None:
        """Let go of everything."""
        for client in self.clients:
            client.close()
        for node in reversed(list(self.nodes.values())):
            node.close()
        self.oracle.close()
        self._folder.cleanup()
