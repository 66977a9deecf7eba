"""Subscribers of a simulation: what they have, and whether it is true.

A client keeps the law of `client/feeds.py`: a message that does not begin where it is is never merged; an older one is
passed over, and after a gap it subscribes again from where it is. Every value it takes in is checked by the oracle.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from whence.subscribe.positions import Position
from whence.subscribe.simulate.completions import CompletionCheck
from whence.subscribe.simulate.node_parts import seen_at
from whence.subscribe.simulate.oracle import Cut, SimulationError, Vector
from whence.subscribe.simulate.plans import Bag, ViewTree

if TYPE_CHECKING:
    from whence.subscribe.simulate.world import World

PATIENCE = 3.5
"""Seconds without a message after which a client subscribes again."""

MOST_UNREAD = 2
"""Messages that may wait for a client that is stalled: one, and one of a node that has been restarted."""

BOUNDS_SHARE = 0.1
"""The share of values whose bounds are checked against every completion, besides those that have gaps."""


class SimulatedClient:
    """One subscriber of one view, at the node it is connected with."""

    check_class: type[CompletionCheck] = CompletionCheck

    def __init__(self, world: World, name: str, node: str, tree: ViewTree) -> None:
        self.world, self.name, self.node, self.tree = world, name, node, tree
        self.dice = random.Random(world.dice.random())
        self.every_change = self.dice.random() < 0.25
        self.bounds = self.check_class(world.oracle, f"{world.seed} {name}")
        self.number = 0
        self.is_here = True
        self.stalled_until = 0.0
        self._based = 0  # the subscription that what there is was told in
        self._unread = set[int]()  # messages of it that wait
        self._reset()

    def _reset(self) -> None:
        self.position: Position | None = None
        self.content: Bag = Counter()
        self.vector: Vector = {}
        self.finals: dict[int, tuple[tuple[int, ...], Vector]] = {}
        self.heard = self.world.now

    def begin(self) -> None:
        """Subscribe for the first time, unless a move has done so."""
        if not self.number:
            self.follow()

    def follow(self, moved: bool = False) -> None:
        """Subscribe, from what there is; after a move, from what was seen elsewhere."""
        self.number += 1
        self._unread.clear()
        self.heard = self.world.now
        seen = seen_at(self.vector) if moved else None
        if moved:
            self.position = None
        message = ("follow", self.name, self.number, self.tree.name, self.position, seen, self.every_change)
        self.world.send(self.name, self.node, message)

    def leave(self) -> None:
        """Unsubscribe."""
        self.is_here = False
        self.world.send(self.name, self.node, ("leave", self.name))

    def come(self) -> None:
        """Subscribe anew."""
        self.is_here = True
        self._reset()
        self.follow()

    def move(self, node: str) -> None:
        """Go on at another node that has the same view."""
        self.world.send(self.name, self.node, ("leave", self.name))
        self.node = node
        self.follow(moved=bool(self.vector))

    def watch(self) -> None:
        """Subscribe again if nothing is heard."""
        if self.is_here and self.world.now >= max(self.stalled_until, self.heard + PATIENCE):
            self.follow(moved=self.position is None and bool(self.vector))

    def receive(self, message: tuple[Any, ...]) -> None:
        """Take in a message."""
        if not self.is_here or message[1][0] != self.number:
            return
        if self.stalled_until > self.world.now:
            self._unread.add(message[1][1])
            if len(self._unread) > MOST_UNREAD:
                raise SimulationError("R", f"{len(self._unread)} messages wait for {self.name}, which is stalled")
            self.world.time.at(self.stalled_until, lambda: self.receive(message))
            return
        self._unread.discard(message[1][1])
        self.heard = self.world.now
        self.world.send(self.name, self.node, ("ack", self.name, message[1]))
        match message:
            case ("state", _, _, at, bag, vector, reason):
                self._take_state(at, bag, vector, reason)
            case ("update", _, resumed, since, at, bag, vector):
                if resumed or self._based == self.number:
                    self._take_update(since, at, bag, vector)
                else:  # the state that it goes on from is lost
                    self.follow(moved=self.position is None and bool(self.vector))

    def _take_state(self, at: Position, bag: Bag, vector: Vector, reason: str) -> None:
        mine = self.position
        if mine is not None and mine[:2] == at[:2] and at.epoch < mine.epoch:
            return
        self.content = Counter({row: count for row, count in bag.items() if count})
        if reason == "restarted":
            self.vector, self.finals = {}, {}
        self._reach(at, vector)

    def _take_update(self, since: Position, at: Position, bag: Bag, vector: Vector) -> None:
        mine = self.position
        if mine is None or since.history != mine.history or since.epoch != mine.epoch:
            if mine is not None and since.history == mine.history and at.epoch <= mine.epoch:
                return
            self.follow(moved=mine is None and bool(self.vector))
            return
        for row, count in bag.items():
            left = self.content[row] + count
            if left:
                self.content[row] = left
            else:
                del self.content[row]
        self._reach(at, vector)

    def _reach(self, at: Position, vector: Vector) -> None:
        oracle = self.world.oracle
        oracle.check_onward(self.vector, vector, self.name)
        self.position, self.vector, self._based = at, vector, self.number
        oracle.check_value(self.tree, vector, self.content, self.name)
        self.world.shown += 1
        if self.tree.plan is not None and self._is_worth_it(vector):
            self.bounds.check(self.tree, vector, self.content, self.name)
        if self.tree.plan is not None and self.tree.plan.name.startswith("windows"):
            self._check_finals(vector)

    def _is_worth_it(self, vector: Vector) -> bool:
        """Whether to check what a value can still become: of all that have gaps, and of some others."""
        ahead = any(isinstance(cut, Cut) and len(cut.ranges) > 1 for cut in vector.values())
        return ahead or self.world.shown % round(1 / BOUNDS_SHARE) == 0

    def _check_finals(self, vector: Vector) -> None:
        """Check S1: what was shown as final is as it was."""
        now = {row[0]: row for row in self.content}
        for bucket, (row, then) in list(self.finals.items()):
            if now.get(bucket) != row:
                if self._is_another_past(then, vector):
                    del self.finals[bucket]
                    continue
                raise SimulationError("S1", f"{self.name} was shown {row} as final, and now {now.get(bucket)}")
        for bucket, row in now.items():
            if row[3]:
                self.finals.setdefault(bucket, (row, vector))

    def _is_another_past(self, then: Vector, now: Vector) -> bool:
        """Whether a publisher has another past since, or rows of it are lost that were not."""
        oracle = self.world.oracle
        for path, old in then.items():
            new = now.get(path)
            if (
                isinstance(old, Cut)
                and old.history
                and (not isinstance(new, Cut) or new.lost != old.lost or new.history != old.history)
            ):
                return True
            if isinstance(old, Cut) and old.history and not oracle.is_past(old):
                return True
        return False
