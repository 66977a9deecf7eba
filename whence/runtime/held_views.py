"""Held views: their pending rows, when these are released, and that every reader gets the last epoch.

A view `WITH (respond_within = …)` stands behind holds (`engine/relational/hold.py`), and so does every view that reads
it. Laws: who reads such a view releases what is pending before it, so what is read is its definition over the tables of
the last epoch; between reads the scheduler of a view releases tables as soon as the estimated work would exceed the
bound. A release is a run of the partitions like an epoch, all of it or nothing, but it is no epoch: it has no number
and no record, so a replay leaves rows pending.

A release of some tables leaves a view that never was: change feeds are told when nothing is pending, and then what
changed since they were told last. A release that fails leaves its rows pending: the error is the reader's. One that a
schedule asked for is logged and counted, and tried again when more rows have come.

Everything is called with the state lock held.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.adapt.refresh.costs import Action, RefreshCosts
from whence.adapt.refresh.learnt_cost import LearntCost
from whence.adapt.refresh.schedulers import Naive, Online, Planned, Scheduler
from whence.adapt.refresh.view_costs import ViewCosts
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.budget import shielded
from whence.model.errors import WhenceError
from whence.plan.algebra.logical import HoldKey
from whence.plan.algebra.program import View
from whence.plan.rewrite.hold_inputs import SCHEDULE, bound_of, holder_of, holds_in
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition_plan import NOTHING, PartitionPlan

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_clock = time.perf_counter
_HORIZON = 500  # epochs that are planned for, unless the view says


class Refreshed(NamedTuple):
    """What it took to bring a held view up to date when it was last read (`db["v"].refreshed`).

    epoch       the epoch that it is of since
    seconds     how long it took
    rows        how many pending rows were released
    tables      those by the table, or view, that they came from
    recomputed  whether the view was computed anew instead, which was estimated to be cheaper
    """

    epoch: int
    seconds: float
    rows: int
    tables: Mapping[str, int]
    recomputed: bool = False


@dataclass
class HeldView:
    """A view with a bound: the holds before it, what their releases cost, and who decides when they come."""

    name: str
    bound: float
    holds: tuple[HoldKey, ...]
    model: ViewCosts
    scheduler: Scheduler
    has_streams: bool
    refreshed: Refreshed | None = None
    reads: int = 0
    misses: int = 0
    releases: int = 0  # that the scheduler asked for
    rows: int = 0
    seconds: float = 0.0
    recomputed: int = 0
    failed: int = 0
    seen: tuple[int, ...] = ()  # pending rows when it was last looked at
    stuck: tuple[int, ...] | None = None  # those on which a release failed

    def figures(self, pending: Mapping[HoldKey, int]) -> dict[str, Any]:
        """Return what metrics say of it."""
        return {
            "respond_within": self.bound,
            "pending": sum(pending.get(hold, 0) for hold in self.holds),
            "reads": self.reads,
            "misses": self.misses,
            "releases": self.releases,
            "recomputed": self.recomputed,
            "failed": self.failed,
            "rows": self.rows,
            "seconds": self.seconds,
        }


@dataclass
class _Told:
    """What feeds have not been told of a view."""

    batches: list[Batch] = field(default_factory=list)

    def net(self) -> Batch:
        return consolidate(concat(self.batches, self.batches[0].rows.shape[1]))


class HeldViews:
    """The held views of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._plan: PartitionPlan = NOTHING  # that the following is of
        self._behind: dict[str, frozenset[HoldKey]] = {}  # the holds that each view is behind, if any
        self._views: dict[str, HeldView] = {}
        self._costs: dict[HoldKey, LearntCost] = {}
        self._untold: dict[str, _Told] = {}

    # -- what there is -----------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Take up the plan that runs now; return whether any view is held."""
        plan = self._coordinator.catalog.plan
        if plan is not self._plan:
            self._plan = plan
            self._take_up(plan)
        return bool(self._behind)

    def _take_up(self, plan: PartitionPlan) -> None:
        behind: dict[str, frozenset[HoldKey]] = {}
        for piece in plan.distributed.pieces:
            found = frozenset().union(*(holds_in(node, behind) for node in piece.plans))
            if found:
                behind |= dict.fromkeys(piece.views, found)
        self._behind = behind
        holds = {hold for found in behind.values() for hold in found}
        self._costs = {hold: self._costs.get(hold) or LearntCost() for hold in sorted(holds)}
        program = self._coordinator.catalog.planned
        before, self._views = self._views, {}
        for name, found in behind.items():
            view = program.views.get(name)
            if view is not None and holder_of(name, program) is view:
                had, ordered = before.get(name), tuple(sorted(found))
                same = had is not None and had.holds == ordered and had.bound == bound_of(view)
                self._views[name] = had if had is not None and same else self._make(view, ordered)
        self._untold = {name: told for name, told in self._untold.items() if name in behind}

    def _make(self, view: View, holds: tuple[HoldKey, ...]) -> HeldView:
        coordinator = self._coordinator
        backend = coordinator.catalog.backend
        model = ViewCosts([self._costs[hold] for hold in holds], together=backend.partitions > 1)
        words = (view.option(SCHEDULE) or "online").split()
        scheduler: Scheduler
        match words:
            case ["naive"]:
                scheduler = Naive()
            case ["planned", *horizon]:
                scheduler = Planned(len(holds), int(horizon[1]) if horizon else _HORIZON)
            case _:
                scheduler = Online(len(holds))
        found = HeldView(view.name, bound_of(view), holds, model, scheduler, bool(coordinator.catalog.flow.streams))
        if coordinator.catalog.filled.get(view.name):
            model.observe_recomputing(self._rows_read(found), coordinator.catalog.filled[view.name])
        return found

    def is_behind(self, name: str) -> bool:
        """Return whether a view is held, or reads one that is."""
        return self._look() and name in self._behind

    def holds_of(self, names: Iterable[str]) -> tuple[HoldKey, ...]:
        """Return the holds that some views are behind."""
        if not self._look():
            return ()
        return tuple(sorted({hold for name in names for hold in self._behind.get(name, ())}))

    def last_refresh(self, name: str) -> Refreshed | None:
        """Return what the last read of a held view took; None if it was not read yet."""
        self._look()
        view = self._views.get(name)
        if view is None:
            raise WhenceError(
                f'"{name}" is not held: it is up to date after every epoch. See WITH (respond_within = …)'
            )
        return view.refreshed

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return what metrics say of every held view."""
        if not self._look():
            return {}
        pending = self._coordinator.catalog.backend.pending()
        return {name: view.figures(pending) for name, view in self._views.items()}

    # -- reading -----------------------------------------------------------------------------------------------------

    def refresh(self, *names: str) -> None:
        """Bring views to the last epoch, before they are read."""
        holds = self.holds_of(names)
        if not holds:
            return
        pending = self._coordinator.catalog.backend.pending()
        due = [hold for hold in holds if hold in pending]
        read = [view for name, view in self._views.items() if name in names]
        start = _clock()
        recomputed = False
        estimates = [(view, self._estimate(view, pending)) for view in read]
        if due:
            with shielded():
                changes, recomputed = self._refresh(read, due, pending)
            self._tell(changes)
        seconds = _clock() - start
        for view, estimated in estimates:
            if due and not recomputed:
                view.model.observe_refresh(estimated, seconds)
            self._note_read(view, {hold: pending[hold] for hold in due if hold in view.holds}, seconds, recomputed)

    def _estimate(self, view: HeldView, pending: Mapping[HoldKey, int]) -> float:
        counts = _counts(view, pending)
        return 0.0 if view.model.is_unknown(counts) else self._costs_of(view).incremental(counts)

    def _refresh(
        self, read: Sequence[HeldView], due: Sequence[HoldKey], pending: Mapping[HoldKey, int]
    ) -> tuple[dict[str, Batch], bool]:
        """Release some holds, or compute the one view that is read anew if that is estimated to be cheaper."""
        if len(read) == 1 and {*due} <= {*read[0].holds}:
            (view,) = read
            counts = _counts(view, pending)
            if not view.model.is_unknown(counts) and self._costs_of(view).everything(counts).recompute:
                return self._recompute(view), True
        return self._release(due, pending), False

    def _note_read(self, view: HeldView, rows: Mapping[HoldKey, int], seconds: float, recomputed: bool) -> None:
        view.reads += 1
        view.misses += seconds > view.bound
        view.seen, view.stuck = (0,) * len(view.holds), None
        view.scheduler.refreshed()
        tables: dict[str, int] = {}
        for (_, relation), count in rows.items():
            tables[relation] = tables.get(relation, 0) + count
        epoch = self._coordinator.epoch
        view.refreshed = Refreshed(epoch, seconds, sum(tables.values()), tables, recomputed)

    # -- after an epoch ----------------------------------------------------------------------------------------------

    def after_epoch(self, changes: Mapping[str, Batch]) -> Mapping[str, Batch]:
        """Release what has to be, after an epoch that changed followed relations; return what feeds may be told."""
        if not self._look():
            return changes
        told = {name: batch for name, batch in changes.items() if name not in self._behind}
        for name, batch in changes.items():
            if name in self._behind:
                self._untold.setdefault(name, _Told()).batches.append(batch)
        eager = self._coordinator.read_eagerly() & self._behind.keys()
        pending = self._coordinator.catalog.backend.pending()
        if eager:
            due = [hold for hold in self.holds_of(eager) if hold in pending]
            told |= self._try_releasing(due, pending, "subscriptions") if due else self._tellable()
        if not self._coordinator.catalog.backend.replaying:
            for view in self._views.values():
                told |= self._keep_within_bound(view)
        return told

    def settle(self) -> None:
        """Bring the pending work of every view within its bound, after a database has been opened."""
        if self._look() and not self._coordinator.storage.read_only:
            self._tell(self.after_epoch({}))

    def _keep_within_bound(self, view: HeldView) -> dict[str, Batch]:
        pending = self._coordinator.catalog.backend.pending()
        counts = _counts(view, pending)
        if counts == view.seen:
            return {}
        before = view.seen or (0,) * len(counts)
        view.scheduler.arrived([max(0, count - had) for count, had in zip(counts, before, strict=True)])
        view.seen = counts
        if not any(counts) or counts == view.stuck:
            return {}
        model = view.model
        costs, bound = self._costs_of(view), view.bound / model.margin
        if model.is_unknown(counts):
            unknown = tuple(i for i, count in enumerate(counts) if count and not model.tables[i].known)
            action = Action(unknown, 0.0)
        elif view.scheduler.is_round_over():
            action = costs.everything(counts)
        elif costs.refresh(counts) > bound:
            action = view.scheduler.choose(counts, costs, bound)
        else:
            return {}
        view.releases += 1
        if action.recompute:
            found = self._try(view, lambda: self._recompute(view))
        else:
            due = [view.holds[i] for i in action.tables]
            found = self._try(view, lambda: self._release(due, pending))
        if found is None:
            view.stuck = counts
            return {}
        left = self._coordinator.catalog.backend.pending()
        view.seen = _counts(view, left)
        if not any(view.seen):
            view.scheduler.refreshed()
        return found

    def _try_releasing(self, due: Sequence[HoldKey], pending: Mapping[HoldKey, int], who: str) -> dict[str, Batch]:
        """Release holds for those who follow views; what fails stays pending."""
        views = [view for view in self._views.values() if {*view.holds} & {*due}]
        if any(_counts(view, pending) == view.stuck for view in views):
            return {}
        found = self._try(views[0] if views else None, lambda: self._release(due, pending))
        if found is None:
            for view in views:
                view.stuck = _counts(view, pending)
            log.debug("%s are not told: a release failed", who)
        return found or {}

    def _try(self, view: HeldView | None, release: Any) -> dict[str, Batch] | None:
        try:
            with shielded():
                found: dict[str, Batch] = release()
                return found
        except WhenceError as error:
            if view is not None:
                view.failed += 1
            log.warning("%s is not refreshed, its rows stay pending: %s", view.name if view else "a view", error)
            return None

    # -- releases ----------------------------------------------------------------------------------------------------

    def _release(self, due: Sequence[HoldKey], pending: Mapping[HoldKey, int]) -> dict[str, Batch]:
        """Release some holds, one by one or, in partitions, in one run; return what feeds may be told now."""
        together = self._coordinator.catalog.backend.partitions > 1
        for keys in [tuple(due)] if together else [(hold,) for hold in due]:
            start = _clock()
            result = self._run(keys)
            seconds = _clock() - start
            rows = sum(pending.get(hold, 0) for hold in keys)
            observed = False
            for view in self._views.values():
                if {*keys} <= {*view.holds}:
                    view.rows, view.seconds = view.rows + rows, view.seconds + seconds
                    if not observed or together:  # of one table, all views share what is learnt
                        view.model.observe([pending.get(h, 0) if h in keys else 0 for h in view.holds], seconds)
                        observed = True
            self._note(result.changes)
        return self._tellable()

    def _run(self, keys: tuple[HoldKey, ...]) -> EpochResult:
        coordinator = self._coordinator
        backend = coordinator.catalog.backend
        epoch = Epoch(coordinator.epoch, coordinator.time, {}, released=keys)
        try:
            result = coordinator.run_release(epoch)
        except BaseException:
            backend.undo()
            raise
        backend.commit(epoch)
        coordinator.count(result, coordinator.epoch)
        return result

    def _costs_of(self, view: HeldView) -> RefreshCosts:
        """Return what releases of a view cost now. Over streams, whose rows are let go of, it is never recomputed."""
        found = view.model.costs(self._rows_read(view))
        return replace(found, recompute=math.inf) if view.has_streams else found

    def _recompute(self, view: HeldView) -> dict[str, Batch]:
        """Compute a view, and what reads it, from the tables; return what feeds may be told now."""
        coordinator = self._coordinator
        catalog = coordinator.catalog
        owners = {owner for owner, _ in view.holds}
        touched = {name for name, holds in self._behind.items() if {owner for owner, _ in holds} & owners}
        followed = coordinator.followed() & touched
        before = {name: catalog.flow.views[name].contents() for name in followed}
        start = _clock()
        catalog.recompute(owners, touched)
        seconds = _clock() - start
        view.model.observe_recomputing(self._rows_read(view), seconds)
        view.recomputed += 1
        view.seconds += seconds
        for name in touched:
            coordinator.changed[name] = coordinator.epoch
        for name, old in before.items():
            new = catalog.flow.views[name].contents()
            change = concat([new, Batch(old.rows, -old.ann)], old.rows.shape[1])
            self._note({name: consolidate(change)})
        self._look()
        return self._tellable()

    def _rows_read(self, view: HeldView) -> tuple[int, ...]:
        """Return how many rows of each of its inputs a view reads; nothing where that is not at hand."""
        catalog = self._coordinator.catalog
        if not catalog.backend.at_hand or view.has_streams:
            return ()
        flow = catalog.flow
        return tuple((flow.tables.get(name) or flow.views[name]).size for _, name in view.holds)

    # -- telling -----------------------------------------------------------------------------------------------------

    def _note(self, changes: Mapping[str, Batch]) -> None:
        for name, batch in changes.items():
            if name in self._behind and len(batch.ann):
                self._untold.setdefault(name, _Told()).batches.append(batch)

    def _tellable(self) -> dict[str, Batch]:
        """Take what followed views have changed by since they were told, of those that are behind no pending row."""
        if not self._untold:
            return {}
        pending = self._coordinator.catalog.backend.pending()
        ready = [name for name in self._untold if not any(hold in pending for hold in self._behind[name])]
        return {name: self._untold.pop(name).net() for name in ready}

    def _tell(self, changes: Mapping[str, Batch]) -> None:
        if changes:
            self._coordinator.push(changes)


def _counts(view: HeldView, pending: Mapping[HoldKey, int]) -> tuple[int, ...]:
    return tuple(pending.get(hold, 0) for hold in view.holds)
