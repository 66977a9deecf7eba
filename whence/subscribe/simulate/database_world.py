"""A run over real databases from a seed: the depth `databases`.

Publishers, brokers and clients are those of a stage (`stages`): servers, sessions, writers, curiosity and clients that
ship, over links that lose, repeat, delay and reorder. Views are random SELECTs; what a subscriber is shown is
recomputed by DuckDB over exactly the ticks that are reflected. Sources are asked only for what the views need: keys of
joins, quenched columns and bounds of best-k are amended while messages get lost.

While it runs databases crash (the files are as they were at the last sync), are restored from copies of their folders,
pause and have their clocks set, links are cut, clients stall, come, go and move, and rights are revoked. Then
everything heals, and everyone must hold the final state (L1).
"""

from __future__ import annotations

import random

from whence.subscribe.simulate.link_clients import LinkClient
from whence.subscribe.simulate.network import LinkFaults
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.random_selects import BaseRelation, RandomView, random_view
from whence.subscribe.simulate.served_nodes import GUEST, ServedNode
from whence.subscribe.simulate.stages import VirtualStage, seeded

ACTIVE, SETTLE = 12.0, 360.0
"""Seconds in which there is something new, and after which everyone must hold the final state."""

_STRIKES = ("crash", "crash", "restore", "pause", "cut", "clock", "stall", "go", "move", "move", "deny", "deny")


class DatabaseWorld:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(f"databases {seed}")
        loss = dice.choice([0.0, 0.05, 0.2, 0.3])
        faults = LinkFaults(loss, dice.choice([0.0, 0.2]), dice.choice([0.0, 0.3]), dice.choice([0.005, 0.02]))
        self.stage = VirtualStage(seed, faults=LinkFaults(delay=faults.delay))
        self.time, self.network = self.stage.time, self.stage.network
        self._faults = faults
        self.relations: dict[ServedNode, list[BaseRelation]] = {}
        self.views: dict[ServedNode, list[RandomView]] = {}
        self._ticks = 0

    @property
    def shown(self) -> int:
        """How many values were checked."""
        return self.stage.oracle.checked

    # -- graph -------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        dice, stage = self.dice, self.stage
        for number in range(dice.randint(1, 3)):
            node = stage.node(f"p{number}")
            names = [f"r{number}{letter}" for letter in "ab"[: dice.choice([1, 2])]]
            self.relations[node] = [BaseRelation(name, dice.random() < 0.5) for name in names]
            for relation in self.relations[node]:
                node.execute(relation.definition)
        for _ in range(6):
            self._publish(dice.choice(list(self.relations)))
        for number in range(dice.randint(1, 2)):
            broker = stage.node(f"b{number}")
            broker.execute("CREATE TABLE allowed (who TEXT NOT NULL, name TEXT NOT NULL, what TEXT NOT NULL)")
            self._add_broker(broker)
            for view in self.views[broker]:
                stage.allow(broker, view.name)
            stage.follow(broker, dice.choice(self.views[broker]).name, token=GUEST)

    def _add_broker(self, broker: ServedNode) -> None:
        """Have a broker with views over publishers' relations, and perhaps over views of another broker, or the same
        views as it."""
        dice = self.dice
        others = list(self.views)
        self.views[broker] = []
        if others and dice.random() < 0.5:
            for view in self.views[others[0]]:
                self._add_view(broker, view)
        for number in range(dice.choice([1, 2])):
            everything = [(node, one) for node, some in self.relations.items() for one in some]
            streams = [one.name for _, one in everything if one.is_stream]
            tables = [one.name for _, one in everything if not one.is_stream]
            self._add_view(broker, random_view(dice, f"v_{broker.name}_{number}", streams, tables))
        if others and dice.random() < 0.5 and self.views[others[0]]:
            below = dice.choice(self.views[others[0]])
            if below.name not in {view.name for view in self.views[broker]}:
                self.stage.source(broker, below.name, others[0])
                name = f"c_{broker.name}"
                copy = RandomView(name, "copy", f"SELECT * FROM {below.name}", (below.name,))
                broker.execute(copy.definition)
                self.views[broker].append(copy)

    def _add_view(self, broker: ServedNode, view: RandomView) -> None:
        for name in view.reads:
            known = broker.history.tables.get(name)
            if known is None:
                publisher = next(node for node, some in self.relations.items() if any(r.name == name for r in some))
                self.stage.source(broker, name, publisher, "quench_after = '1 ms', margin = '1'")
        broker.execute(view.definition)
        self.views[broker].append(view)

    # -- what happens ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen, and check what must be true then."""
        with seeded(self.seed):
            self._build()
            self.network.faults = self._faults
            dice, start = self.dice, self.time.now
            for node in self.relations:
                at, rate = start, dice.choice([1.0, 4.0])
                while (at := at + dice.expovariate(rate)) < start + ACTIVE:
                    self.time.at(at, lambda node=node: self._publish(node))  # type: ignore[misc]  # binds the node
            for _ in range(dice.choice([0, 2, 5])):
                self.time.at(start + dice.random() * ACTIVE, self._strike)
            self.time.run(start + ACTIVE)
            self._heal()
            self.time.run(self.time.now + 5.0)
            end = self.time.now + SETTLE
            while (wrong := self._first_wrong()) is not None:
                if self.time.now > end:
                    raise SimulationError("L1", wrong)
                self.time.run(self.time.now + 1.0)

    def _publish(self, node: ServedNode) -> None:
        if not node.is_up or node.loop.is_paused:
            return
        dice = self.dice
        with node.transaction():
            for relation in dice.sample(self.relations[node], dice.randint(1, len(self.relations[node]))):
                if relation.is_stream:
                    self._ticks += dice.choice([0, 1])
                    rows = [(self._ticks, dice.randrange(4), dice.randrange(4)) for _ in range(dice.choice([1, 1, 3]))]
                    node.insert(relation.name, rows)
                else:
                    key = dice.randrange(6)
                    old = [row for row in node[relation.name].rows if row[0] == key]
                    if old and dice.random() < 0.25:
                        node.delete(relation.name, old)
                    else:
                        node.insert(relation.name, (key, dice.randrange(4), dice.randrange(4)))

    def _strike(self) -> None:
        dice, now, stage = self.dice, self.time.now, self.stage
        node = dice.choice(list(stage.nodes.values()))
        client = dice.choice(stage.clients)
        match dice.choice(_STRIKES):
            case "crash" if node.is_up:
                self._count("crashes")
                node.crash()
                self.time.after(dice.choice([0.1, 2.0]), node.restart)
            case "restore" if node.is_up and node in self.relations and node.epoch:
                self.network.seen["backups restored"] += node.restore(max(0, node.epoch - dice.randrange(1, 6)))
            case "pause":
                self._count("pauses")
                stage.pause(node)
                self.time.after(dice.random() * 3, lambda: stage.resume(node))
            case "cut":
                ends = [node.name, dice.choice([*stage.nodes, client.name])]
                for origin, to in (ends, ends[::-1])[: dice.choice([1, 2])]:
                    self.network.cut[origin, to] = now + dice.random() * 4
            case "clock":
                self._count("clock steps")
                node.clock_offset += dice.choice([-600, -2, 2, 600])
            case "stall":
                self._count("stalls")
                if client.link is not None:
                    client.link.stalled_until = now + dice.random() * 6
            case "go":
                self._count("unsubscribed")
                client.close()
                self.time.after(dice.random() * 3, lambda: self._follow_again(client))
            case "move":
                self._move(client)
            case "deny":
                self._deny(dice.choice([one for one in stage.clients if one.token == GUEST]))
            case _:
                pass

    def _move(self, client: LinkClient) -> None:
        """Have a client go on at another broker that has the same view."""
        others = [
            n for n, views in self.views.items() if n is not client.node and client.query in {v.name for v in views}
        ]
        if others and not client.is_closed:
            self._count("views moved")
            client.move(others[0])

    def _follow_again(self, client: LinkClient) -> None:
        client.close()
        self.stage.follow(client.node, client.query, token=client.token)

    def _deny(self, guest: LinkClient) -> None:
        """Have guests read a view no more for a while, and then follow it again."""
        broker, view = guest.node, guest.query
        known = self.stage.denials.get((broker.name, view), [])
        if not broker.is_up or broker.loop.is_paused or (known and known[-1].until is None):
            return
        self._count("rights revoked")
        self.stage.deny(broker, view)
        self.time.after(1.0 + self.dice.random() * 3, lambda: self._allow(broker, view))

    def _allow(self, broker: ServedNode, view: str) -> None:
        if not broker.is_up:
            self.time.after(1.0, lambda: self._allow(broker, view))
            return
        self.stage.allow(broker, view)
        for client in list(self.stage.clients):  # whoever follows again is one more
            if client.token == GUEST and client.query == view and not client.is_closed:
                self._follow_again(client)

    def _count(self, what: str) -> None:
        self.network.seen[what] += 1

    def _heal(self) -> None:
        self.network.heal()
        for node in self.stage.nodes.values():
            node.loop.resume()
            node.restart()

    # -- what must be true then --------------------------------------------------------------------------------------

    def _first_wrong(self) -> str | None:
        """Return what somebody has that is not the final state; None if there is nothing."""
        for node in self.stage.nodes.values():
            if not node.is_up:
                return f"{node.name} is down"
        return self.stage.first_wrong()

    def close(self) -> None:
        """Let go of files."""
        self.stage.close()
