"""Adaptive plans of one database: reads running joins now and then, and switches their orders when that pays.

The law: a switch changes no answer, and is durable. It happens between two epochs, under both locks: partitions take up
a plan with other orders, a record of it is written, and only then is it committed; an error undoes it. Reopening,
`at`, readers and dry runs run the plan that the log has. What is decided lies in `whence/adapt/`; here it is asked and
carried out.

After a look the next one waits until epochs have taken over a hundred times its processor time, and longer while
nothing moves. So adapting costs one percent at most, whatever a look takes.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.adapt.adaptive_join import AdaptiveJoin, JoinAdvice
from whence.adapt.history import PlanHistory, PlanSwitch, from_record, plan_from
from whence.adapt.policy import AdaptMode, SwitchPolicy, check_mode
from whence.adapt.report import lines, report_join
from whence.adapt.statistics import JoinReading
from whence.adapt.switch import PendingSwitch
from whence.engine.core.epoch import Epoch
from whence.engine.core.machine_costs import machine_costs
from whence.engine.core.operator import Operator
from whence.engine.relational.join import Join
from whence.model.errors import WhenceError
from whence.plan.algebra.join_paths import JoinOrders
from whence.plan.optimizer.paths import MOST_INPUTS
from whence.runtime.partition_plan import PartitionPlan

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_FIRST = 3  # looks that do not wait
_FEW_ROWS = 4096  # of indexes that are built at once
_LONGEST = 16  # times longer, if nothing moves
_TAKEN_OVER = "taken over as it was planned"
_MULTIPLIED = "an epoch changed the size of an input fourfold or more"


class WatchedJoin(NamedTuple):
    """A join that adapts, the views that contain it, and whether it is switched or only advised of; `decides` says
    whose setting that is."""

    join: Join  # in partitions one without rows
    views: tuple[str, ...]
    mode: AdaptMode
    decides: str


class Adaptation:
    """Adapts the plans of one coordinator. `consider` is called with the writer's lock held."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.mode: AdaptMode = "off"  # of operators that views share, and of views that say nothing
        self.policy, self.clock = SwitchPolicy.of_work(machine_costs()), time.monotonic
        self.history = PlanHistory()
        self.seconds = 0.0  # of processor time that was spent here
        self.looks = self.switches = 0
        self.error: WhenceError | None = None
        self._due = 0.0  # when to look again, in processor seconds of epochs
        self._patience, self._moves = 1, 0
        self._plan: PartitionPlan | None = None  # that `_watched` is of
        self._watched: dict[str, WatchedJoin] = {}
        self._pending: dict[str, PendingSwitch] = {}  # switches that wait for indexes
        self._seen = 0.0  # processor seconds of epochs when it was last called
        self._joins: dict[str, AdaptiveJoin] = {}

    # -- settings ----------------------------------------------------------------------------------------------------

    def set_mode(self, mode: str) -> None:
        """Let this be the default of the database, durably."""
        coordinator, found = self._coordinator, check_mode(mode)
        with coordinator.writer:
            if found == self.mode:
                return
            coordinator.check_open()
            coordinator.storage.ready_to_write()
            with coordinator.state:
                coordinator.storage.write_plans(_record(found, {}, []))
                self.mode, self._plan = found, None
            written = coordinator.storage.last
        coordinator.storage.wait_durable(written)

    def watched(self) -> dict[str, WatchedJoin]:
        """Return the joins whose orders can be decided, by fingerprint."""
        catalog = self._coordinator.catalog
        if catalog.plan is not self._plan:
            self._watched = self._find_joins()
            self._joins = {name: each for name, each in self._joins.items() if name in self._watched}
            for name in [n for n, p in self._pending.items() if not self._is_join(n, p.join)]:
                self._pending.pop(name).stop()
            self._plan = catalog.plan
        return self._watched

    def _is_join(self, name: str, join: Join) -> bool:
        found = self._watched.get(name)
        return found is not None and found.join is join and found.mode == "on"

    def _find_joins(self) -> dict[str, WatchedJoin]:
        catalog = self._coordinator.catalog
        tops = {id(catalog.backend.operator(name)) for name in catalog.planned.views}
        views: dict[str, dict[str, None]] = {}
        joins: dict[str, Join] = {}
        for name, view in catalog.planned.views.items():
            for join in _own_joins(catalog.backend.operator(name), tops):
                joins[join.fingerprint] = join
                views.setdefault(join.fingerprint, {})[view.owner or name] = None
        return {name: self._watch(join, tuple(views[name])) for name, join in joins.items()}

    def _watch(self, join: Join, views: tuple[str, ...]) -> WatchedJoin:
        if len(views) == 1:
            view = self._coordinator.program.views.get(views[0])
            option = view.option("adapt") if view is not None else None
            if option is not None:
                return WatchedJoin(join, views, check_mode(option), f"view {views[0]}")
        return WatchedJoin(join, views, self.mode, "database")

    # -- looking -----------------------------------------------------------------------------------------------------

    def consider(self) -> None:
        """Look at the joins after an epoch, if it is time to. What fails here does not fail the epoch."""
        if not any(each.mode != "off" for each in self.watched().values()):
            return
        epoch, self._seen = self._coordinator.processor_seconds - self._seen, self._coordinator.processor_seconds
        is_due = self._coordinator.processor_seconds >= self._due
        if not is_due and not self._pending:
            return
        began = time.thread_time(), time.perf_counter()
        try:
            if self._pending:
                self._build(epoch)
            if is_due:
                self._look()
        except WhenceError as error:
            self.error = error
            log.warning("plans were not adapted: %s", error)
        finally:
            self.seconds += time.thread_time() - began[0]
            if is_due:
                self._set_due(time.perf_counter() - began[1])  # by the clock that epochs are measured by

    def _set_due(self, took: float) -> None:
        """Set when to look again: when epochs have taken over a hundred times as long as this look, and up to sixteen
        times later than that if nothing moves. The first looks come at once: the first of all loads what it needs."""
        moved = sum(join.moves for join in self._joins.values())
        self._patience = 1 if moved != self._moves else min(2 * self._patience, _LONGEST)
        self._moves = moved
        wait = took / self.policy.share if self.looks > _FIRST else 0.0
        self._due = self._coordinator.processor_seconds + wait * self._patience

    def _build(self, epoch: float) -> None:
        """Build indexes of switches that wait for them, for half as long as the last epoch took; switch to what is
        whole."""
        rows, ready = int(epoch / 2 / self.policy.build_seconds), list[PlanSwitch]()
        with self._coordinator.state:
            for name, pending in list(self._pending.items()):
                if pending.advance(rows):
                    del self._pending[name]
                    advice = pending.advice
                    ready.append(self._entry(name, pending.join.plan, advice.plan, advice.reason, advice.gain))
        if ready:
            self.switch(ready)

    def _look(self) -> None:
        coordinator, now = self._coordinator, self.clock()
        self.looks += 1
        wanted = {name: each for name, each in self.watched().items() if each.mode != "off"}
        with coordinator.state:
            readings = coordinator.catalog.backend.read_joins(tuple(wanted))
        found: list[PlanSwitch] = []
        for name, reading in readings.items():
            if all(reading.rows):
                switch = self.decide(name, wanted[name].mode, reading, now)
                if switch is not None:
                    found.append(switch)
        for switch in found:
            if not switch.taken:
                self.history.add(switch)
        taken = [switch for switch in found if switch.taken]
        if taken:
            self.switch(taken)

    def decide(self, name: str, mode: AdaptMode, reading: JoinReading, now: float) -> PlanSwitch | None:
        """Return what is to become of a join's plan, if anything."""
        join = self._joins.get(name)
        if join is None:
            join = self._joins[name] = AdaptiveJoin(self.watched()[name].join.shape, self.policy, now)
        advice = join.take(reading, now)
        known = self._coordinator.catalog.orders.get(name)
        if mode == "on" and self._waits_for_indexes(name, advice):
            return None
        if advice is not None:
            if mode == "on":
                join.switched = now
            return self._entry(name, reading.plan, advice.plan, advice.reason, advice.gain, mode == "on")
        if mode == "on" and known is None:
            return self._entry(name, (), reading.plan, _TAKEN_OVER)
        return None

    def _waits_for_indexes(self, name: str, advice: JoinAdvice | None) -> bool:
        """Return whether a switch has to wait until its indexes are built; begin to, or stop what is not wanted."""
        pending = self._pending.get(name)
        if pending is not None and (advice is None or advice.plan != pending.advice.plan):
            self._pending.pop(name).stop()
            pending = None
        if pending is None and advice is not None and self._coordinator.catalog.backend.at_hand:
            join = self.watched()[name].join
            if sum(len(join.relations[input]) for input, _, _ in advice.missing) > _FEW_ROWS:
                self._pending[name] = pending = PendingSwitch(join, advice)
        return pending is not None

    def _entry(
        self, name: str, before: JoinOrders, after: JoinOrders, reason: str, gain: float = 0.0, taken: bool = True
    ) -> PlanSwitch:
        coordinator = self._coordinator
        return PlanSwitch(coordinator.epoch, coordinator.time, name, before, after, reason, gain, taken)

    # -- epochs that choose ------------------------------------------------------------------------------------------

    def write_epoch(self, epoch: Epoch) -> None:
        """Write an epoch to the storage; before it, plans that it chose itself because it multiplied an input."""
        storage = self._coordinator.storage
        strayed = [join for join in self._pinned() if join.strayed is not None]
        if not strayed:
            storage.write_epoch(epoch)
            return
        catalog = self._coordinator.catalog
        switches = [self._entry(j.fingerprint, j.strayed or (), j.plan, _MULTIPLIED) for j in strayed]
        orders = {switch.operator: switch.after for switch in switches}
        with storage.appending():
            storage.write_plans(_record(self.mode, orders, switches))
            storage.write_epoch(epoch)
        catalog.orders = {**catalog.orders, **orders}
        self._note(switches)

    def _pinned(self) -> list[Join]:
        """Return the joins here whose plans are decided."""
        if not self._coordinator.catalog.orders or not self._coordinator.catalog.backend.at_hand:
            return []
        return [each.join for each in self.watched().values() if each.join.pinned]

    # -- switching ---------------------------------------------------------------------------------------------------

    def switch(self, switches: list[PlanSwitch]) -> None:
        """Let joins have other orders from the next epoch on, durably; on an error nothing has changed."""
        coordinator = self._coordinator
        orders = {switch.operator: switch.after for switch in switches}
        with coordinator.paused():
            catalog = coordinator.catalog
            before = catalog.save()
            catalog.reorder(orders)
            try:
                with coordinator.storage.appending():
                    coordinator.storage.write_plans(_record(self.mode, orders, switches))
            except BaseException:
                catalog.go_back(before)
                raise
            catalog.backend.commit()
            self._plan = catalog.plan  # the joins are the same
            self._note(switches)
        for switch in switches:
            log.info("a join was switched after epoch %d: %s", switch.epoch, switch.reason)

    def _note(self, switches: list[PlanSwitch]) -> None:
        for switch in switches:
            self.history.add(switch)
            self.switches += switch.before != ()

    # -- durability --------------------------------------------------------------------------------------------------

    def redo(self, record: bytes) -> None:
        """Do again what a record of the log says was done."""
        content = json.loads(record)
        with self._coordinator.paused():
            self.mode, self._plan = check_mode(content["adapt"]), None
            orders = {name: plan_from(plan) for name, plan in content["orders"].items()}
            if orders:
                self._coordinator.catalog.reorder(orders)
                self._coordinator.catalog.backend.commit()
            self._note([from_record(entry) for entry in content["switches"]])

    def image(self) -> dict[str, Any]:
        """Return what an image says of plans."""
        return {
            "adapt": self.mode,
            "orders": dict(self._coordinator.catalog.orders),
            "switches": self.history.records(),
        }

    def restore(self, image: Mapping[str, Any]) -> None:
        """Take up what an image says, before the views are loaded."""
        self.forget()
        self.mode = check_mode(image.get("adapt", "off"))
        self._coordinator.catalog.orders = {name: plan_from(plan) for name, plan in image.get("orders", {}).items()}
        self.history.restore(image.get("switches", ()))

    def forget(self) -> None:
        """Begin anew, with a catalog that is empty."""
        self.history, self._plan = PlanHistory(), None
        self._watched, self._joins, self._pending = {}, {}, {}
        self.mode = "off"

    # -- reports -----------------------------------------------------------------------------------------------------

    def report(self, view: str) -> list[dict[str, Any]]:
        """Return the joins that a view contains, as they run and as they could. The state's lock is held."""
        mine = {name: each for name, each in self.watched().items() if view in each.views}
        readings = self._coordinator.catalog.backend.read_joins(tuple(mine)) if mine else {}
        found = []
        for name, reading in readings.items():
            each, adaptive = mine[name], self._joins.get(name)
            if adaptive is None or not adaptive.readings:
                adaptive = AdaptiveJoin(each.join.shape, self.policy, self.clock())
                adaptive.take(reading, self.clock())
            of_join = report_join(each.join, adaptive, self.history.of([name]))
            found.append({"mode": each.mode, "decided_by": each.decides, "views": list(each.views), **of_join})
        return found

    def explain(self, view: str) -> list[str]:
        """Return what EXPLAIN says of the plans of a view that adapts."""
        found = []
        for each in self.report(view):
            if each["mode"] != "off" or each["history"]:
                counts = f"{each['looks']} looks, {each['searches']} searches"
                found += [f"adapt {each['mode']} ({each['decided_by']}), {counts}: {each['join']}"]
                found += [f"  {line}" for line in lines(each)]
        return found

    # -- figures -----------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, Any]:
        """Return what metrics say of adapting."""
        return {
            "mode": self.mode,
            "seconds": self.seconds,
            "looks": self.looks,
            "searches": sum(join.searches for join in self._joins.values()),
            "switches": self.switches,
            "pending": len(self._pending),
            "error": str(self.error) if self.error is not None else None,
        }


def _own_joins(top: Operator, tops: set[int]) -> list[Join]:
    """Return the joins of a view that are not those of another view that it reads."""
    found, stack, seen = [], [top], {id(top)}
    while stack:
        op = stack.pop()
        if isinstance(op, Join) and op.follows_data and len(op.inputs) <= MOST_INPUTS and not op.transient:
            found.append(op)
        for below in op.inputs:
            if id(below) not in seen and id(below) not in tops:
                seen.add(id(below))
                stack.append(below)
    return found


def _record(mode: AdaptMode, orders: Mapping[str, JoinOrders], switches: list[PlanSwitch]) -> bytes:
    return json.dumps({"adapt": mode, "orders": orders, "switches": [switch.record() for switch in switches]}).encode()
