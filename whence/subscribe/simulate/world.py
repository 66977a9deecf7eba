"""A whole run of a simulation from a seed: graph, workload, faults, healing, and what must be true then.

The graph is 1 to 4 publishers, 0 to 4 brokers and 1 to 5 subscribers, with transforms drawn at random and placed at
random; some views stand at two brokers, and some publishers have a second URL. While it runs links lose, repeat, delay
and reorder, one way or both, nodes crash, pause, are restored from backups and have their clocks set, and subscribers
stall, come, go and move. Then either everything heals, or only the faults of links stay as they are, and of some runs
the publishers go on, too (F1).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.clients import SimulatedClient
from whence.subscribe.simulate.completions import leaves_of
from whence.subscribe.simulate.network import LinkFaults, LinkNetwork, VirtualTime
from whence.subscribe.simulate.node_parts import SourceSpec, ViewSpec
from whence.subscribe.simulate.nodes import SimulatedNode, SimulatedReplica
from whence.subscribe.simulate.oracle import Cut, Oracle, SimulationError, Vector
from whence.subscribe.simulate.plans import PLANS, Row, Transform, ViewTree

ACTIVE = 14.0
"""Seconds in which there is something new, and faults of nodes."""

SETTLE, SETTLE_UNHEALED = 25.0, 70.0
"""Seconds after which everyone must hold the final state, with links that have healed and with links that never do."""

_STRIKES = ("crash", "crash", "pause", "cut", "clock", "restore", "stall", "go", "move", "move", "pin", "deny")

GRACE, MOST_GRACES = 12.0, 20
"""Seconds more that a subscriber is given over links that never heal, and how often. With 4 of 10 messages lost each
way, what is asked for every 4 s is still missing after 70 s once in 2,500 times, and with all this once in 10**15. A
subscriber to every change is given them once more for each: none may be put together with others, and each waits until
the one before has arrived."""

SLOW = 0.3
"""Epochs per second of publishers that go on for ever."""

QUIET = 4.0
"""Seconds after that in which only heartbeats may be sent."""


@dataclass(frozen=True)
class Parts:
    """The classes that a run is made of; a planted bug has one of its own."""

    node: type[SimulatedNode] = SimulatedNode
    client: type[SimulatedClient] = SimulatedClient


class World:
    """One run."""

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self.seed, self.parts = seed, parts or Parts()
        self.dice = random.Random(seed)
        self.time, self.oracle = VirtualTime(), Oracle()
        self.shown = 0
        self.last_rows = 0.0
        dice = self.dice
        self.heals = dice.random() < 0.7
        loss = dice.choice([0.0, 0.0, 0.05, 0.2, 0.4])
        self.faults = LinkFaults(
            loss, dice.choice([0.0, 0.1, 0.3]), dice.choice([0.0, 0.1, 0.4]), dice.choice([0.005, 0.02, 0.1])
        )
        self.never_stops = not self.heals and random.Random(f"never stops {seed}").random() < 0.5
        self.network = LinkNetwork(self.time, random.Random(dice.random()), self.faults, self._deliver)
        self.nodes: dict[str, SimulatedNode] = {}
        self.clients: dict[str, SimulatedClient] = {}
        self.publishers: list[SimulatedNode] = []
        self.brokers: list[SimulatedNode] = []
        self._build()

    @property
    def now(self) -> float:
        """The virtual time, in seconds."""
        return self.time.now

    def send(self, origin: str, to: str, message: Any) -> None:
        """Send a message over a link. What a node sends to a client is for its eyes (S6)."""
        if to in self.clients and to in self.nodes[origin].denied:
            raise SimulationError("S6", f"{origin} tells {to} what it may not read")
        self.network.send(origin, to, message)

    @property
    def seen(self) -> Counter[str]:
        """The faults that happened, by name."""
        return self.network.seen

    def _deliver(self, to: str, message: Any) -> None:
        (self.nodes[to] if to in self.nodes else self.clients[to]).receive(message)

    # -- graph -------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        dice, make = self.dice, self.parts.node
        urls: dict[str, tuple[str, ...]] = {}
        for i in range(dice.randint(1, 4)):
            kind = dice.choice(["stream", "stream", "table"])
            node = make(self, f"p{i}", i, ViewTree(f"base{i}", publisher=i, kind=kind))  # type: ignore[arg-type]
            self.publishers.append(node)
            self.nodes[node.name] = node
            urls[node.name] = (node.name,)
        for i in range(dice.randint(0, 4)):
            node = make(self, f"b{i}", -1, None)
            self.brokers.append(node)
            self.nodes[node.name] = node
        for node in list(self.publishers):
            if self.brokers and dice.random() < 0.25:
                urls[node.name] = (node.name, f"r{node.number}")
        for i, broker in enumerate(self.brokers):
            for _ in range(dice.randint(1, 2)):
                self._add_view(broker, self.brokers[:i], urls)
        for node in self.publishers:
            if len(urls[node.name]) > 1:
                self.nodes[f"r{node.number}"] = SimulatedReplica(self, f"r{node.number}", node)
        for node in list(self.nodes.values()):
            node.start()
        followed = [(n, v) for n in (*self.brokers, *self.publishers) for v in self._followable(n)]
        brokered = [(n, v) for n, v in followed if n in self.brokers] or followed
        for i in range(dice.randint(1, 5)):
            node, tree = dice.choice(brokered if dice.random() < 0.9 else followed)
            self.clients[f"c{i}"] = self.parts.client(self, f"c{i}", node.name, tree)

    def _followable(self, node: SimulatedNode) -> list[ViewTree]:
        own = [] if node.base is None else [node.base]
        return [*(view.tree for view in node.views.values()), *own]

    def _add_view(self, broker: SimulatedNode, before: list[SimulatedNode], urls: dict[str, tuple[str, ...]]) -> None:
        """Put a transform on a broker: a new one, or one that an earlier broker has, too."""
        dice = self.dice
        known = [(node, view) for node in before for view in node.views.values()]
        if known and dice.random() < 0.3:  # the same view at two brokers
            of, view = dice.choice(known)
            if view.name not in broker.views:
                specs = {name: spec for name, spec in of.sources.items() if name in view.inputs}
                broker.sources |= specs
                broker.views[view.name] = view
            return
        plans = [plan for plan in PLANS if self._inputs_of(plan, before) is not None]
        plan = dice.choice(plans)
        inputs = self._inputs_of(plan, before)
        assert inputs is not None
        name = f"v{sum(len(node.views) for node in self.brokers)}.{plan.name}"
        tree = ViewTree(name, plan, tuple(tree for _, tree in inputs))
        sources = []
        for i, (node, below) in enumerate(inputs):
            curiosity = plan.curiosity if i == 0 else "everything"
            if curiosity == "listed" and below.kind == "stream":
                node.needs_past = True
            spec = SourceSpec(f"{name}.{i}", urls.get(node.name, (node.name,)), below.name, below, curiosity)
            broker.sources[spec.name] = spec
            sources.append(spec.name)
        broker.views[name] = ViewSpec(name, tree, tuple(sources))

    def _inputs_of(self, plan: Transform, before: list[SimulatedNode]) -> list[tuple[SimulatedNode, ViewTree]] | None:
        """Choose what a transform reads; None if there is nothing of the right kind."""
        found: list[tuple[SimulatedNode, ViewTree]] = []
        for kind in plan.kinds:
            if kind == "view":
                fits = [(node, view.tree) for node in before for view in node.views.values()]
            else:
                fits = [(n, n.base) for n in self.publishers if n.base is not None and n.base.kind == kind]
                fits = [one for one in fits if one not in found] or fits
            if not fits:
                return None
            found.append(self.dice.choice(fits))
        return found

    # -- what happens ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen, and check what must be true then."""
        dice = self.dice
        for node in self.publishers:
            at, rate = 0.0, dice.choice([0.5, 1.5, 4.0])
            while (at := at + dice.expovariate(rate)) < ACTIVE:
                self.time.at(at, lambda node=node: self._publish(node))  # type: ignore[misc]  # binds the node
        for client in self.clients.values():
            self.time.at(dice.random() * 4, client.begin)
            self._watch(client)
        for _ in range(dice.choice([0, 2, 6, 12])):
            self.time.at(dice.random() * ACTIVE, self._strike)
        self.time.at(ACTIVE + 0.1, self._heal)
        if self.never_stops:
            for node in self.publishers:
                self._publish_on(node, random.Random(f"{self.seed} {node.name}"))
        settled = ACTIVE + (SETTLE if self.heals else SETTLE_UNHEALED)
        self.time.run(settled)
        for client in self.clients.values():
            if not self.heals:
                self._wait_for(client)
            self._check(client)
        if self.heals:
            self.time.run(settled + QUIET)
            if self.last_rows > settled:
                raise SimulationError("L2", f"rows are sent {settled - ACTIVE:.0f} s after everything has healed")

    def _wait_for(self, client: SimulatedClient) -> None:
        """Let a subscriber reach the end, however unlucky it is, within a time that is bounded all the same."""
        view, log = client.tree.name, self.nodes[client.node].log
        changes = sum(view in record.deltas for record in log) if client.every_change else 0
        for _ in range(MOST_GRACES + changes):
            try:
                self._check(client)
            except SimulationError:
                self.time.run(self.now + GRACE)
            else:
                return

    def _publish_on(self, node: SimulatedNode, dice: random.Random) -> None:
        """Have a publisher that never stops (F1)."""

        def again() -> None:
            self._publish(node)
            self.time.after(dice.expovariate(SLOW), again)

        self.time.at(ACTIVE + dice.random(), again)

    def close(self) -> None:
        """Let go of files."""
        for node in self.nodes.values():
            node.close()

    def _watch(self, client: SimulatedClient) -> None:
        client.watch()
        self.time.after(1.0, lambda: self._watch(client))

    def _publish(self, node: SimulatedNode) -> None:
        if not node.is_up or node.paused_until > self.now:
            return
        dice = self.dice
        assert node.base is not None

        def make(time: int, epoch: int) -> dict[Row, int]:
            if node.base is None or node.base.kind == "stream":
                count = dice.choice([0, 1, 1, 1, 2])
                return {(time, node.number, epoch, n, dice.randrange(4), dice.randrange(4)): 1 for n in range(count)}
            return self._change_table(node)

        node.publish(make)

    def _change_table(self, node: SimulatedNode) -> dict[Row, int]:
        """Change a row: book the last seat, offer seats, change a price, remove and add."""
        assert node.base is not None
        dice, delta = self.dice, dict[Row, int]()
        rows = {row[0]: row for row in node.contents[node.base.name]}
        for key in dice.sample(range(4), dice.choice([1, 1, 2])):
            old = rows.get(key)
            if old is None:
                delta[key, dice.choice([0, 1, 3]), dice.randrange(4)] = 1
                continue
            what = dice.random()
            if what < 0.15:
                delta[old] = -1
                continue
            new = (key, dice.choice([0, 0, 1, 2]), old[2]) if what < 0.5 else (key, old[1], dice.randrange(4))
            if new != old:
                delta[old], delta[new] = -1, 1
        return delta

    def _strike(self) -> None:
        """Let something go wrong, or a subscriber do something."""
        dice = self.dice
        node = dice.choice(list(self.nodes.values()))
        client = dice.choice(list(self.clients.values()))
        match dice.choice(_STRIKES):
            case "crash" if node.is_up:
                self.seen["epochs not synced"] += len(node.log) - node.synced
                self.seen["crashes"] += 1
                node.crash()
                self._restart(node, dice.choice([0.1, 0.5, 3.0]))
            case "restore" if self.publishers:
                node = dice.choice(self.publishers)
                if node.is_up:
                    self.seen["backups restored"] += 1
                    node.restore(max(0, node.synced - dice.randrange(1, 8)), dice.random() < 0.5)
                    self._restart(node, 0.3)
            case "pause":
                self.seen["pauses"] += 1
                node.paused_until = self.now + dice.random() * 3
            case "cut":
                ends = dice.choice(self._links())
                ways = [ends, ends[::-1]]
                dice.shuffle(ways)
                for origin, to in ways[: dice.choice([1, 1, 2])]:
                    self.network.cut[origin, to] = self.now + dice.random() * 5
            case "clock":
                if node.is_up and dice.random() < 0.6:  # it wakes up with another clock
                    self.seen["crashes"] += 1
                    node.crash()
                    self._restart(node, dice.choice([0.1, 0.5]))
                self.seen["clock steps"] += 1
                node.clock_offset = dice.choice([-600, -10, -2, 2, 600]) * 1_000_000
            case "stall":
                self.seen["stalls"] += 1
                client.stalled_until = self.now + dice.random() * 6
            case "go":
                self.seen["unsubscribed"] += 1
                client.leave()
                self.time.after(dice.random() * 3, client.come)
            case "move":
                for one in self.clients.values():
                    self.time.after(dice.random() * 2, lambda one=one: self._move(one))  # type: ignore[misc]
            case "pin":
                broker = dice.choice(self.brokers or self.publishers)
                if broker.is_up:
                    broker.pin(frozenset(dice.sample(range(4), dice.randrange(3))))
            case "deny":
                self.seen["rights revoked"] += 1
                node.denied.add(client.name)
                self.time.after(dice.random() * 3, lambda: node.denied.discard(client.name))
            case _:
                pass

    def _links(self) -> list[tuple[str, str]]:
        """Return who is connected with whom."""
        brokers = [(n.name, url) for n in self.brokers for spec in n.sources.values() for url in spec.urls]
        return brokers + [(client.name, client.node) for client in self.clients.values()]

    def _restart(self, node: SimulatedNode, after: float) -> None:
        incarnation = node.incarnation

        def again() -> None:
            if node.incarnation == incarnation:
                node.start()

        self.time.after(after, again)

    def _move(self, client: SimulatedClient) -> None:
        others = [n.name for n in self.brokers if client.tree.name in n.views and n.name != client.node]
        if others and client.is_here:
            self.seen["views moved"] += 1
            client.move(self.dice.choice(others))

    def _heal(self) -> None:
        if self.heals:
            self.network.heal()
        self.network.cut.clear()
        for node in self.nodes.values():
            node.paused_until = 0.0
            node.denied.clear()
        self._published = {node.number: len(node.log) for node in self.publishers}

    # -- what must be true then --------------------------------------------------------------------------------------

    def _check(self, client: SimulatedClient) -> None:
        if self.never_stops:
            self._check_passed(client)
        else:
            self._check_end(client)

    def _check_passed(self, client: SimulatedClient) -> None:
        """Check F1 where publishers never stop: every tick of some time ago is reached or passed. That what is shown
        then is true is S2."""
        for path, tree in leaves_of(client.tree):
            node, cut = self.publishers[tree.publisher], client.vector.get(path)
            last = next((r.epoch for r in reversed(node.log[: self._published[node.number]]) if r.deltas), 0)
            is_ours = isinstance(cut, Cut) and cut.history == node.lineage.history
            if last and not (isinstance(cut, Cut) and is_ours and cut.ranges.horizon >= last):
                raise SimulationError("F1", f"{client.name} has {cut} of {tree.name}, and {last} was long ago")

    def _check_end(self, client: SimulatedClient) -> None:
        """Check L1, or F1 where links never heal: a client has everything, and what can be final is."""
        law = "L1" if self.heals else "F1"
        if client.position is None and not self._has_anything(client):
            return
        full: dict[str, Cut | frozenset[int] | None] = {}
        self._final_vector(client.tree, client.vector, "", full, f"{law}: {client.name}")
        for path, cut in client.vector.items():
            if path not in full:
                full[path] = cut
        expected = self.oracle.evaluate(client.tree, full)
        if expected != client.content:
            raise SimulationError(law, f"{client.name} has {dict(client.content)}, and {dict(expected)} is true")

    def _has_anything(self, client: SimulatedClient) -> bool:
        return any(node.log for node in self.publishers)

    def _final_vector(
        self, tree: ViewTree, vector: Vector, path: str, full: dict[str, Cut | frozenset[int] | None], who: str
    ) -> None:
        if tree.publisher < 0:
            for i, child in enumerate(tree.inputs):
                self._final_vector(child, vector, f"{path}/{i}", full, who)
            return
        node = self.publishers[tree.publisher]
        rows = [record.epoch for record in node.log if record.deltas.get(tree.name)]
        last = rows[-1] if rows else 0
        cut = vector.get(path)
        if not last and (not isinstance(cut, Cut) or not cut.history):
            full[path] = Cut(tree.publisher, "", "", RangeSet(), RangeSet(), 0)
            return
        is_ours = isinstance(cut, Cut) and cut.history == node.lineage.history and self.oracle.is_past(cut)
        if not isinstance(cut, Cut) or not is_ours or cut.ranges.horizon < last:
            raise SimulationError(who[:2], f"{who[4:]} has {cut} of {tree.name}, whose last change is {last}")
        if tree.kind == "stream":
            before = [record.time for record in node.log if record.epoch <= last]
            if before and cut.time < before[-1]:
                raise SimulationError(who[:2], f"{who[4:]} knows {tree.name} up to {cut.time}, not {before[-1]}")
        full[path] = cut._replace(ranges=RangeSet([(0, max(last, cut.ranges.horizon))]), era=node.lineage.era.id)
