"""The declarative optimizer: the rules of `rules.py` on a dataflow of their own, and the loop that prunes.

Without pruning, a change of costs is one run: the engine keeps best costs and plans. With pruning the loop is closed
from outside, in runs until nothing moves, since a cost must not decide over the rows it is derived from within one run:

1. select (aggregate selection with source suppression): of each entry only its cheapest alternative stays in the space.
   Others leave, and return when the costs of their inputs, or lower bounds of them, say that they are cheaper.
2. An input that is not there is opened (its alternatives are enumerated by `split`), or, with recursive bounding, has
   a lower bound of its cost in `floor`.
3. bound: entries in `floor` are opened when they are on the best plan so far; so what no best plan needs is never
   enumerated.
4. count (reference counting): when all costs are right, entries that nothing reads leave, and their inputs in turn.
   What they cost is remembered as a lower bound, which a change lowers by the most that costs have fallen.

Invariant between changes: no alternative outside the space is cheaper, over the best costs or lower bounds of its
inputs, than the best of its entry; so the best plan of the space is the best of all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np

from whence.adapt.private_flow import PrivateFlow
from whence.adapt.rules import BEST_COST, BEST_PLAN, BOUND, REFERENCE_COUNT, SPACE
from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.optimizer.changes import CostChange, Moved
from whence.plan.optimizer.greedy import greedy_cost
from whence.plan.optimizer.kernels import bottom_up, pruning
from whence.plan.optimizer.kernels.costs import ENTRY, EXPRESSION, LEFT, RIGHT
from whence.plan.optimizer.lower_bounds import LowerBounds
from whence.plan.optimizer.space import PlanModel

Pruning = Literal["aggregate", "count", "bound", "outside"]
PRUNINGS: tuple[Pruning, ...] = ("aggregate", "count", "bound", "outside")
EVITA: tuple[Pruning, ...] = ("aggregate",)  # only against equivalent plans, as Evita Raced does


class Declarative:
    """The best plan of a search space, kept by the engine."""

    def __init__(self, model: PlanModel, prune: Collection[Pruning] = ()) -> None:
        wrong = {*prune} - {*PRUNINGS}
        if wrong or ({"count", "bound"} & {*prune} and "aggregate" not in prune):
            raise DataError(
                f"prune has some of {', '.join(PRUNINGS)}; count and bound only with aggregate, not {', '.join(prune)}"
            )
        self.model, self.prune = model, frozenset(prune)
        if not prune:
            model.complete()
        self._selects = "aggregate" in prune  # then the space has the best plan of each entry, and nothing else
        plans = "" if self._selects else BEST_PLAN
        self._flow = PrivateFlow(SPACE + BEST_COST + plans + (REFERENCE_COUNT if "count" in prune else ""))
        self._explains = False
        views = {"best_plan": not self._selects, "plan_cost": not self._selects, "reference_count": "count" in prune}
        self._wanted = ("best_cost", *(view for view, is_kept in views.items() if is_kept))
        self._state = _SpaceState()
        self._bounds = LowerBounds(model)
        self._pending = _Deltas()
        self._moved: Moved | None = None
        self._seen: tuple[set[int], set[int]] = (set(), set())
        self.runs = 0
        self.ever: set[int] = set()  # alternatives that have been in the space
        self._limits: tuple[int, ...] = ()
        self._opened: set[int] = set()
        self._start()
        self.recomputed = self._end()

    # -- the first optimization ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        roots = list(dict.fromkeys(self.model.roots))  # two queries may be the same
        self._pending.add("goal", np.array(roots, np.int64)[:, None], 1)
        if not self.prune:
            self._grow()
            self._offer(np.arange(self.model.alternative_count))
            self._run()
            return
        if "outside" in self.prune:
            self._limits = tuple(greedy_cost(self.model, root) for root in self.model.roots)
        self._grow()
        fresh = np.array([n for root in roots for n in self._open(root)], np.int64)
        while len(fresh):
            self._offer(fresh)
            fresh = self._see_to_inputs(fresh)
        self._run()
        self._prune()

    # -- changes ------------------------------------------------------------------------------------------------------

    def apply(self, change: CostChange) -> None:
        model, state = self.model, self._state
        if self._moved is None or not self._moved.fits(model):
            self._moved = Moved(model)
        moved = self._moved
        self._seen = (set(), set())
        before = model.local.copy()
        moved.apply(model, change)
        touched = moved.alternatives
        alive = touched[state.alive[touched] != 0]
        self._pending.add("cost", _pairs(alive, before[alive]), -1)
        self._pending.add("cost", _pairs(alive, model.local[alive]), 1)
        if self.prune:
            self._move_bounds(moved)
        moved.hit[touched] = 0
        moved.clear()
        self._run()
        if self.prune:
            self._prune()
        self.recomputed = self._end()

    def _move_bounds(self, moved: Moved) -> None:
        """Let lower bounds of entries that are not in the program stay lower bounds."""
        model, state = self.model, self._state
        expressions = model.entries[:, EXPRESSION]
        reached = moved.entries != 0
        for origin in moved.origins:
            reached |= expressions & origin == origin
        for entry in self._bounds.after_change(state.known, state.held, reached, moved.fallen).tolist():
            if entry in state.floors:
                self._set_floor(entry, int(state.known[entry]))
        if "outside" in self.prune:
            self._limits = tuple(self._tree_cost(root) for root in self.model.roots)

    def _tree_cost(self, entry: int) -> int:
        choice = int(self._state.choice[entry])
        left, right = self.model.alternatives[choice, [LEFT, RIGHT]].tolist()
        return int(self.model.local[choice]) + sum(self._tree_cost(side) for side in (left, right) if side >= 0)

    def _end(self) -> tuple[int, int]:
        joins = [n for n in self._seen[1] if self.model.alternatives[n, LEFT] >= 0]
        return len(self._seen[0]), len(joins)

    # -- pruning ------------------------------------------------------------------------------------------------------

    def _prune(self) -> None:
        """Let the space be what the best plan needs: runs until nothing moves."""
        while self._select() or self._open_best() or self._close():
            self._run()

    def _select(self) -> bool:
        """Exchange alternatives that are no longer the cheapest of their entries, or no longer within the limit, and
        see to the inputs of new ones; return whether there were any."""
        listed = self._decided()
        self._withdraw(-1 - listed[listed < 0])
        fresh = listed[listed >= 0]
        while len(fresh):
            self._offer(fresh)
            fresh = self._see_to_inputs(fresh)
        if self._selects and len(listed):
            alive = np.flatnonzero(self._state.alive)
            self._state.choice[self.model.alternatives[alive, ENTRY]] = alive
        return len(listed) > 0

    def _decided(self) -> Codes:
        model, state, moves = self.model, self._state, True
        changes = np.empty(2 * model.alternative_count, np.int64)
        count = 0
        while moves:
            count, moves = pruning.decide(
                model.entries,
                model.alternatives,
                model.local,
                state.known,
                state.held,
                state.alive,
                self._bounds.allowed(self._limits),
                self._selects,
                changes,
            )
        return changes[:count]

    def _see_to_inputs(self, numbers: Codes) -> Codes:
        """Open the inputs of alternatives that are not there, or let them have a lower bound; return alternatives of
        those that are to be offered at once.."""
        model, state = self.model, self._state
        fresh: list[int] = []
        for entry in np.unique(model.alternatives[numbers][:, [LEFT, RIGHT]]).tolist():
            if entry < 0 or state.held[entry] or entry in state.floors:
                continue
            if "bound" in self.prune and not model.splitter.is_leaf(model.names[entry]):
                self._set_floor(entry, int(state.known[entry]))
            else:
                fresh += self._open(entry)
        return np.array(fresh, np.int64)

    def _open_best(self) -> bool:
        """Open the entries on the best plan so far that only have a lower bound; return whether there were any."""
        if "bound" not in self.prune:
            return False
        found = self._unopened()
        fresh: list[int] = []
        for entry in found:
            self._set_floor(entry, None)
            fresh += self._open(entry)
        while fresh:
            self._offer(np.array(fresh, np.int64))
            fresh = self._see_to_inputs(np.array(fresh, np.int64)).tolist()
        return bool(found)

    def _unopened(self) -> list[int]:
        """Return the entries on the best plans of the roots that only have a lower bound."""
        state, alternatives, found = self._state, self.model.alternatives, list[int]()
        level = np.unique(self.model.roots)
        while state.floors and len(level):  # plans of many queries share entries: each is looked at once a level
            found += [entry for entry in level.tolist() if entry in state.floors]
            choices = state.choice[level]
            sides = alternatives[choices[choices >= 0]][:, [LEFT, RIGHT]]
            level = np.unique(sides[sides >= 0])
        return list(dict.fromkeys(found))

    def _close(self) -> bool:
        """Remove entries that nothing reads, their inputs in turn, and lower bounds of such; return whether there were
        any."""
        state, model = self._state, self.model
        if "count" in self.prune and any(e not in state.referred for e in np.flatnonzero(state.held).tolist()):
            reached = self._reached()
            for entry in [e for e in np.flatnonzero(state.held).tolist() if e not in reached]:
                numbers = np.array(model.open(entry), np.int64)
                self._withdraw(numbers[state.alive[numbers] != 0])
                state.held[entry] = 0
            for entry in [e for e in state.floors if e not in reached]:
                self._set_floor(entry, None)
        return bool(self._pending)

    def _reached(self) -> set[int]:
        """Return the entries that the alternatives of the space lead to from the roots."""
        model, state = self.model, self._state
        reached, waiting = set(model.roots), list(model.roots)
        while waiting:
            entry = waiting.pop()
            for number in model.open(entry) if state.held[entry] else ():
                if state.alive[number]:
                    sides = model.alternatives[number, [LEFT, RIGHT]].tolist()
                    waiting += [side for side in sides if side >= 0 and side not in reached]
                    reached.update(sides)
        return reached

    def _open(self, entry: int) -> list[int]:
        """Enumerate an entry; return the alternatives that are to be offered: the cheapest by what is known of their
        inputs, or, where lower bounds are not to decide, all within the limit when it is enumerated first."""
        model, state = self.model, self._state
        fresh = entry not in self._opened
        self._opened.add(entry)
        numbers = model.open(entry)
        self._grow()
        state.held[entry] = 1
        allowed = int(self._bounds.allowed(self._limits)[entry])
        costs = {n: int(bottom_up.plan_cost(n, model.alternatives, model.local, state.known)) for n in numbers}
        within = [n for n in numbers if costs[n] <= allowed]
        if (fresh and "bound" not in self.prune) or "aggregate" not in self.prune:
            return within
        return [min(within, key=costs.__getitem__)] if within else []

    def _grow(self) -> None:
        """Have room for all entries and alternatives of the model, and lower bounds of new entries."""
        state = self._state
        state.grow(len(self.model.names), self.model.alternative_count)
        self._bounds.fill(state.known)

    def _set_floor(self, entry: int, cost: int | None) -> None:
        """Let an entry that is not open have a lower bound in the program, or none."""
        old = self._state.floors.pop(entry, None)
        if old is not None:
            self._pending.add("floor", np.array([[entry, old]], np.int64), -1)
        if cost is not None:
            self._state.floors[entry] = cost
            self._pending.add("floor", np.array([[entry, cost]], np.int64), 1)

    def _offer(self, numbers: Codes) -> None:
        """Put alternatives into the space."""
        if len(numbers):
            self._space(numbers, 1)
            self.ever.update(numbers.tolist())

    def _withdraw(self, numbers: Codes) -> None:
        """Take alternatives out of the space."""
        if len(numbers):
            self._space(numbers, -1)

    def _space(self, numbers: Codes, sign: int) -> None:
        rows = self.model.alternatives[numbers]
        self._state.alive[numbers] = sign > 0
        if self._selects and sign > 0:
            self._state.choice[rows[:, ENTRY]] = numbers  # the only one, but when an entry is enumerated first
        self._pending.add("space", np.column_stack([numbers, rows[:, [ENTRY, LEFT, RIGHT]]]), sign)
        self._pending.add("cost", _pairs(numbers, self.model.local[numbers]), sign)

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run the program on what is pending, and take over what it computed."""
        changes = self._flow.run(self._pending.take(), self._wanted)
        self.runs += 1
        state = self._state
        state.take(changes)
        self._seen[0].update(_column(changes, "best_cost", 0))
        if self._selects:
            self._seen[1].update(state.choice[_column(changes, "best_cost", 0)].tolist())
        else:
            self._seen[1].update(_column(changes, "plan_cost", 0))

    def best_of(self, entry: int) -> int:
        return int(self._state.known[entry])

    def choice_of(self, entry: int) -> int:
        return int(self._state.choice[entry])

    def held(self) -> Mapping[int, int]:
        """Return the entries of the space, and how many alternatives each has in it."""
        numbers = self.model.alternatives[np.flatnonzero(self._state.alive), ENTRY]
        entries, counts = np.unique(numbers, return_counts=True)
        return dict(zip(entries.tolist(), counts.tolist(), strict=True))

    def explained(self) -> Mapping[int, int]:
        """Return what the cheapest whole plan through each alternative of the space costs; regrets, detours, bounds and
        reference counts are kept from now on."""
        if not self._explains:
            counts = "" if "count" in self.prune else REFERENCE_COUNT
            self._flow.add((BEST_PLAN if self._selects else "") + counts + BOUND)
            self._explains = True
        detours = dict(self._flow.rows("detour").tolist())
        least = min(self.best_of(root) for root in self.model.roots)
        regrets = self._flow.rows("regret").tolist()
        return {number: least + detours[entry] + regret for number, entry, _, _, regret in regrets if entry in detours}

    def rows(self, view: str) -> Codes:
        """Return the rows of a view of the program."""
        return self._flow.rows(view)

    def size(self) -> int:
        """Return the bytes of the program's state."""
        return self._flow.size()


class _SpaceState:
    """What is in the program, and what is known of entries whether or not they are in it."""

    def __init__(self) -> None:
        self.known = self.held = self.inside = np.zeros(0, np.int64)  # costs; opened; in best_cost
        self.choice = self.alive = np.zeros(0, np.int64)
        self.floors: dict[int, int] = {}
        self.referred: set[int] = set()

    def grow(self, entries: int, alternatives: int) -> None:
        more = entries - len(self.known)
        if more > 0:
            self.known = np.concatenate([self.known, np.full(more, -1, np.int64)])
            self.choice = np.concatenate([self.choice, np.full(more, -1, np.int64)])
            self.held, self.inside = (np.concatenate([a, np.zeros(more, np.int64)]) for a in (self.held, self.inside))
        self.alive = np.concatenate([self.alive, np.zeros(alternatives - len(self.alive), np.int64)])

    def take(self, changes: Mapping[str, object]) -> None:
        """Take over the changes of views."""
        gone, come = _signed(changes, "best_cost")
        self.inside[gone[:, 0]] = 0
        self.inside[come[:, 0]] = 1
        self.known[come[:, 0]] = come[:, 1]
        gone, come = _signed(changes, "best_plan")
        self.choice[gone[:, 0]] = -1
        self.choice[come[:, 0]] = come[:, 1]
        gone, come = _signed(changes, "reference_count")
        self.referred.difference_update(gone[:, 0].tolist())
        self.referred.update(come[:, 0].tolist())


class _Deltas:
    """Signed rows on their way into tables."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Codes, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, table: str, rows: Codes, sign: int) -> None:
        if len(rows):
            self._rows.setdefault(table, []).append((rows, sign))

    def take(self) -> dict[str, tuple[Codes, Codes]]:
        """Return what has been added, and begin anew."""
        rows, self._rows = self._rows, {}
        return {
            table: (
                np.ascontiguousarray(np.concatenate([each for each, _ in parts])),
                np.concatenate([np.full(len(each), sign, np.int64) for each, sign in parts]),
            )
            for table, parts in rows.items()
        }


def _signed(changes: Mapping[str, object], view: str) -> tuple[Codes, Codes]:
    """Return the rows that left a view, and those that came."""
    batch = changes.get(view)
    if batch is None:
        return np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)
    return batch.rows[batch.ann < 0], batch.rows[batch.ann > 0]  # type: ignore[attr-defined]


def _column(changes: Mapping[str, object], view: str, column: int) -> list[int]:
    batch = changes.get(view)
    return [] if batch is None else batch.rows[:, column].tolist()  # type: ignore[attr-defined]


def _pairs(numbers: Codes, costs: Codes) -> Codes:
    return np.column_stack([numbers, costs]).astype(np.int64)
