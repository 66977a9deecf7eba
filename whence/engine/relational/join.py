"""Join: rows of any number of inputs, side by side, that agree where they must and pass the tests.

Law: multiplication distributes over addition, so the change of a product A·B·C is dA·B·C + A'·dB·C + A'·B'·dC, where a
prime marks the new state. Each input has a *path*: its delta is extended by one other input after the other, through
indexes on columns already known, so that a join of many inputs keeps no intermediate result. Arrangements show new
states; where the law wants an old one, what the delta adds is taken off again, and what cancels is dropped before the
next step: a row that changed is met as new, as taken off and as old, which would multiply from input to input. If an
input was empty before, so was the product, and the change is A'·B'·C': the path of that input alone. State: none of its
own, indexes on the inputs' arrangements. Cost: the deltas and what they match along their paths.

The order of a path does not change the rows, so it follows from what the inputs hold when it is chosen: at the first
run, and at the beginning of an epoch by which an input has grown or shrunk fourfold. An input that does not change has
no path, and no index is kept for its sake. A change of columns that the join does not read is no change: what cancels
without them ends before the path. Orders that were decided outside (`pin`) stay until that decides otherwise
(`adapt/`), or such an epoch comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from whence.engine.core.arrangement import arrangement
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.kernels.batches import join_batches
from whence.engine.core.kernels.index import pair_rows
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.relational.join_estimates import JoinEstimates
from whence.engine.relational.join_steps import JoinPath, JoinStep, StepBound, Test, extended, joined_rows, passing_rows
from whence.model.codes import NULL, Dictionary
from whence.model.errors import EvaluationError
from whence.plan.algebra.expressions import Col, Expr, columns_of, may_fail, substitute
from whence.plan.algebra.join_bounds import ColumnBound
from whence.plan.algebra.join_paths import (
    JoinOrders,
    JoinShape,
    PathOrder,
    cheapest_order,
    connected_order,
    has_moved,
    weigh_order,
)
from whence.plan.algebra.multiway_join import MultiwayJoin

_PATIENCE = 64  # changes of an input that a choice must last at least, times the choices so far
_GAIN = 0.8  # of its cost: what another order may cost at most to take the place of the running one

_follows_data = True


@contextmanager
def connected_joins() -> Iterator[None]:
    """Let joins that are built inside order their paths by connectedness alone, and keep the indexes of all of them:
    what others are measured against."""
    global _follows_data
    before, _follows_data = _follows_data, False
    try:
        yield
    finally:
        _follows_data = before


class Join(Operator):
    """Inner join of two or more inputs; without anything to agree on, every combination is tried."""

    def __init__(self, inputs: list[Operator], join: MultiwayJoin, dictionary: Dictionary):
        self.schema, self.inputs, self.join, self._dictionary = join.schema, inputs, join, dictionary
        self.shape = JoinShape(join)
        self._start = self.shape.starts
        self.relations = [arrangement(i) for i in inputs]
        self.tests = [(compile_expr(t, dictionary), may_fail(t)) for t in join.tests]
        self._orders = [connected_order(self.shape, i) for i in range(len(inputs))]
        self.paths: list[JoinPath | None] = [None] * len(inputs)  # of inputs that change
        self._weighed: list[tuple[PathOrder, PathOrder]] = []  # the orders, and by connectedness, when they were chosen
        self._unread = [np.array(cols if _follows_data else [], np.int64) for cols in self.shape.unread()]
        self._bounds: list[list[tuple[ColumnBound, ...]]] = [
            [()] * (len(inputs) - 1) for _ in inputs
        ]  # of each order's steps
        self.follows_data = _follows_data and (len(inputs) > 2 or any(self.shape.bounds))
        self._planned = [0] * len(inputs)  # rows of the inputs when the orders were chosen
        self._patience = [0] * len(inputs)  # changes until it is asked whether they still hold
        self._choices = 0
        self.pinned = self._firm = False  # its orders are decided outside
        self.strayed: JoinOrders | None = None  # the plan that was pinned before this epoch chose another
        self.changes = [0] * len(inputs)  # rows by which each has changed so far
        self._is_lazy = _follows_data
        self._filled: set[int] = set()  # inputs whose path was followed once, and not kept
        if not self._is_lazy:
            for i in range(len(inputs)):
                self._path(i)

    # -- orders ------------------------------------------------------------------------------------------------------

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """The order in which a delta of each input meets the others."""
        return list(self._orders)

    @property
    def plan(self) -> JoinOrders:
        """The orders as they are written down."""
        return tuple(
            tuple(~i if bounds else i for i, bounds in zip(order, of_steps, strict=True))
            for order, of_steps in zip(self._orders, self._bounds, strict=True)
        )

    def reorder(self, orders: Sequence[Sequence[int]]) -> None:
        """Let a delta of each input meet the others in this order; between two epochs, or at the beginning of one."""
        self._lay(orders, coded=False)

    def pin(self, plan: JoinOrders, firm: bool = False) -> None:
        """Let deltas go by a plan as it was written down until another is pinned, or `release`; between two epochs. It
        is not `firm` if an epoch that multiplies an input may choose another, which is `strayed` from then."""
        self.pinned, self._firm = True, firm
        if plan != self.plan:
            running = [i for i, path in enumerate(self.paths) if path is not None]
            self._lay(plan, coded=True)
            for i in running:
                self._path(i)  # now: its indexes may have been built for it

    def commit(self) -> None:
        self.strayed = None

    def undo(self) -> None:
        if self.strayed is not None:
            self.pin(self.strayed, self._firm)
            self.strayed = None

    def release(self, plan: JoinOrders) -> None:
        """Go back to a plan that was not pinned."""
        self.pin(plan)
        self.pinned = False

    def _lay(self, orders: Sequence[Sequence[int]], coded: bool) -> None:
        estimates, shape = self._estimates(), self.shape
        self._weighed = []
        for i, order in enumerate(orders):
            weighed = weigh_order(shape, i, order, estimates, coded)
            bounds = [step.bounds for step in weighed.steps]
            if (weighed.inputs, bounds) != (self._orders[i], self._bounds[i]) and self.paths[i] is not None:
                self.paths[i], self.replanned = None, True
            self._orders[i], self._bounds[i] = weighed.inputs, bounds
            self._weighed.append((weighed, weigh_order(shape, i, connected_order(shape, i), estimates)))

    def weigh(self) -> tuple[JoinEstimates, list[tuple[int, PathOrder]]]:
        """Return what is known of the inputs now, and of each how many rows its path has taken since its order was
        chosen, and what one costs."""
        estimates, found = self._estimates(), []
        for i, (path, order) in enumerate(zip(self.paths, self._orders, strict=True)):
            taken = path.steps[0].probes if path is not None and path.steps else 0
            found.append((taken, weigh_order(self.shape, i, order, estimates)))
        return estimates, found

    def _estimates(self) -> JoinEstimates:
        """What is known now; what the paths have met counts while an input is about as large as it was then."""
        met = {
            (first, step.input, tuple(step.cols.tolist())): (step.probes, step.matches)
            for first, path in enumerate(self.paths)
            if path is not None
            for step in path.steps
            if step.range is None
            and self._planned[step.input] <= 2 * len(step.relation) <= 4 * self._planned[step.input]
        }
        return JoinEstimates(self.relations, self.tests, met)

    def _choose(self) -> None:
        """Choose the orders by what the inputs hold."""
        estimates, orders = self._estimates(), list(self._orders)
        for i, running in enumerate(orders):
            now, best = weigh_order(self.shape, i, running, estimates), cheapest_order(self.shape, i, estimates)
            if best.cost < (_GAIN if self.paths[i] is not None else 1.0) * now.cost:
                orders[i] = best.inputs
        before = self.plan
        self.reorder(orders)
        if self.pinned and self.strayed is None and before != self.plan:
            self.strayed = before
        for step in self._steps():
            step.probes = step.matches = step.passed = 0
        self._planned = [len(r) for r in self.relations]
        self._choices += 1
        self._wait()

    def _wait(self) -> None:
        least = _PATIENCE * self._choices
        self._patience = [max(n // 2, least) if n else 0 for n in self._planned]

    def _reconsider(self) -> None:
        """Choose again if the size of an input has moved far."""
        sizes = [len(r) for r in self.relations]
        if any(map(has_moved, self._planned, sizes)):
            self._choose()
        else:
            self._wait()

    def _path(self, first: int) -> JoinPath:
        """Return the path of an input, with its indexes."""
        path = self.paths[first]
        if path is None:
            path = self.paths[first] = self._lay_path(first, self._orders[first])
        return path

    def _lay_path(self, first: int, order: Sequence[int]) -> JoinPath:
        position = {c: c - self._start[first] for c in range(self._start[first], self._start[first + 1])}
        waiting = list(self.join.tests)
        path = JoinPath(self._ready(waiting, position), [], *2 * (np.empty(0, np.int64),))
        for number, chosen in enumerate(order):
            pairs = self._agreeing(chosen, position)
            known, cols = tuple(k for k, _ in pairs), tuple(c for _, c in pairs)
            relation, bounds = self.relations[chosen], self._bounds[first][number]
            ranged = relation.range_index((*cols, bounds[0].column - self._start[chosen])) if bounds else None
            index = relation.index(cols) if ranged is None else None
            limits = [self._bound_of(bound, position) for bound in bounds]
            width, start = len(position), self._start[chosen]
            position |= {c: width + c - start for c in range(start, self._start[chosen + 1])}
            tests = self._ready(waiting, position)
            whole = np.arange(len(position))
            keys = np.array(known, np.int64), np.array(cols, np.int64)
            path.steps.append(JoinStep(chosen, *keys, relation, index, tests, whole, whole, ranged, limits))
        path.out = np.array([position[c] for c in self.join.out], np.int64)
        path.whole = np.array([position[c] for c in range(len(position))], np.int64)
        if path.steps and not path.steps[-1].tests:
            path.steps[-1].taken, path.rearranges = path.out, False
        return path

    def _bound_of(self, bound: ColumnBound, position: dict[int, int]) -> StepBound:
        placed = substitute(bound.expr, lambda c: Col(c.type, position[c.index]))
        return StepBound(compile_expr(placed, self._dictionary), bound.more, bound.upper)

    def _agreeing(self, input: int, position: dict[int, int]) -> list[tuple[int, int]]:
        """(position of a known column, column of the input) pairs that must be equal, one a class, in column order."""
        start, end = self._start[input], self._start[input + 1]
        pairs = []
        for members in self.join.classes:
            known = [c for c in members if c in position]
            if known:
                pairs += [(position[known[0]], c - start) for c in members if start <= c < end]
        return sorted(pairs, key=lambda p: p[1])

    def _ready(self, waiting: list[Expr], position: dict[int, int]) -> list[Test]:
        """Tests that can be decided now; one that may fail waits for all inputs, or it could meet lone rows."""
        whole = len(position) == self._start[-1]
        found = [t for t in waiting if columns_of(t) <= position.keys() and (whole or not may_fail(t))]
        for test in found:
            waiting.remove(test)
        placed = [substitute(t, lambda c: Col(c.type, position[c.index])) for t in found]
        return [(compile_expr(t, self._dictionary), may_fail(t)) for t in placed]

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        found: list[tuple[Operator, tuple[int, ...]]] = [(i, ()) for i in self.inputs]  # whatever the orders are
        return found + [(self.inputs[s.input], tuple(s.cols.tolist())) for s in self._steps() if s.range is None]

    def range_needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        steps = self._steps()
        return [(self.inputs[s.input], tuple(s.range.cols.tolist())) for s in steps if s.range is not None]

    def _steps(self) -> list[JoinStep]:
        return [step for path in self.paths if path is not None for step in path.steps]

    # -- epochs ------------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        changed = [(i, delta) for i, delta in enumerate(deltas) if len(delta.ann)]
        if self.follows_data:
            self._count(changed)
        filled = [(i, delta) for i, delta in changed if self.relations[i].was_empty]
        if filled:
            first, delta = min(filled, key=lambda f: len(f[1].ann))
            return self._follow_once(first, delta)
        changed = [(i, self._read_changes(i, delta)) for i, delta in changed]
        try:
            parts = [self._follow(i, delta, deltas) for i, delta in changed]
            return concat(parts, len(self.schema))
        except EvaluationError:
            if len(changed) == 1 and changed[0][1].unique:
                raise
            # Perhaps on a combination that comes and goes within the epoch: decide only when those are gone.
            parts = [self._follow(i, delta, deltas, decide=False) for i, delta in changed]
            whole = consolidate(concat(parts, self._start[-1]))
            passed = passing_rows(whole, self.tests)
            return Batch(np.ascontiguousarray(passed.rows[:, np.array(self.join.out, np.int64)]), passed.ann)

    def _read_changes(self, input: int, delta: Batch) -> Batch:
        """Return what a delta changes in the columns that are read, the others being NULL; the delta itself if nothing
        can cancel."""
        unread = self._unread[input]
        if not len(unread) or delta.ann.min() > 0 or delta.ann.max() < 0:
            return delta
        rows = delta.rows.copy()
        rows[:, unread] = NULL
        return consolidate(Batch(rows, delta.ann))

    def _count(self, changed: list[tuple[int, Batch]]) -> None:
        """Note how much the inputs change, and choose the orders again when that may be due."""
        patience, due = self._patience, False
        for i, delta in changed:
            rows = len(delta.ann)
            patience[i] -= rows
            self.changes[i] += rows
            due = due or patience[i] < 0
        if due and not (self.pinned and (self._firm or self.context.replaying)):
            self._reconsider()

    def prime(self, contents: list[Batch]) -> Batch:
        if self.follows_data and not self.pinned and any(map(len, contents)):
            self._choose()
        smallest = min(range(len(contents)), key=lambda i: len(contents[i]))
        return self._follow_once(smallest, contents[smallest])

    def recompute(self) -> Batch:
        return self._follow_once(0, self.inputs[0].contents())

    def _follow_once(self, first: int, rows: Batch) -> Batch:
        """Follow the path of an input over the new state of the others. The first time it may be a load that no change
        follows, so indexes that were built for it are not kept."""
        if not len(rows.ann):
            return Batch.empty(len(self.schema))
        is_new = self.paths[first] is None and first not in self._filled
        found = self._follow(first, rows, None)
        if is_new and self._is_lazy:
            self._filled.add(first)
            self.paths[first], self.replanned = None, True
        return found

    def _follow(self, first: int, delta: Batch, deltas: list[Batch] | None, decide: bool = True) -> Batch:
        """A delta's path. Inputs after it are read as they were before this epoch's deltas, if there are any.

        Without `decide`, only tests that cannot fail are made, and all columns are given."""
        path = self.paths[first] or self._path(first)
        batch = passing_rows(delta, path.first, decide)
        for step in path.steps:
            if not len(batch.ann):
                break
            cols = step.taken if decide else step.whole
            longer = extended(batch, step, cols)
            step.probes += len(batch.ann)
            self.probes += len(batch.ann)
            step.matches += len(longer.ann)
            if deltas is not None and step.input > first and len(deltas[step.input].ann):
                new = deltas[step.input]
                at, ids = join_batches(batch.rows, step.known, new.rows, step.cols)
                if len(at):
                    added = joined_rows(pair_rows(batch.rows, batch.ann, at, new.rows, new.ann, ids, cols))
                    longer = concat([longer, Batch(added.rows, -added.ann)], longer.rows.shape[1])
                    longer = consolidate(longer)
            batch = passing_rows(longer, step.tests, decide)
            step.passed += len(batch.ann)
        if not len(batch.ann):
            return Batch.empty(len(path.out if decide else path.whole))
        if not decide:
            return Batch(batch.rows.take(path.whole, axis=1), batch.ann)
        return Batch(batch.rows.take(path.out, axis=1), batch.ann) if path.rearranges else batch

    def describe(self) -> str:
        on = ", ".join(" = ".join(self._name(c) for c in members) for members in self.join.classes) or "every pair"
        tests = "".join(f" where {t}" for t in self.join.tests[:1]) + (" …" if len(self.join.tests) > 1 else "")
        return f"join of {len(self.inputs)} on {on}{tests}"

    def notes(self) -> tuple[str, ...]:
        """Say each input's order: what a step was estimated to match, and has, and the work of a row beside that of the
        order by connectedness; of three inputs or more."""
        return tuple(
            f"order of {first + 1}: {self._steps_note(first, order)}; work {order.work:.3g}"
            + (f", as connected {plain.work:.3g}" if plain.inputs != order.inputs else "")
            for first, (order, plain) in enumerate(self._weighed)
        )

    def _steps_note(self, first: int, order: PathOrder) -> str:
        path, notes = self.paths[first], []
        for number, step in enumerate(order.steps):
            names = self.inputs[step.input].schema.names
            on = f" on {', '.join(names[c] for c in step.cols)}" if step.cols else ""
            passing = f" of which {step.passing:.2g} pass" if step.passing < 1 else ""
            run = path.steps[number] if path is not None else None
            met = f", met {run.matches / run.probes:.3g}" if run is not None and run.probes else ""
            if step.bounds:
                column = self._name(step.bounds[0].column).partition(".")[2]
                on = f"{on}, {column} in order" if on else f" on {column} in order"
            notes.append(f"{step.input + 1}{on} (x {step.fan_out:.3g}{passing}{met})")
        return ", ".join(notes)

    def _name(self, column: int) -> str:
        owner = self.shape.owner(column)
        return f"{owner + 1}.{self.inputs[owner].schema.names[column - self._start[owner]]}"
