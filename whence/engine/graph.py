"""The dataflow: operators in topological order, the views that read them, and the epoch that runs through them.

Invariant between epochs: every operator's state, every arrangement and every view equals its definition over the
tables. An operator whose inputs did not change is skipped. After `run` comes `commit` or `undo`; an error in `run`
leaves the caller to `undo`, which restores everything that ran. Operators live as long as a view needs them, an
arrangement or an index as long as an operator or a view does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from whence.annotate import Algebra
from whence.annotate.counting import COUNTING
from whence.engine.arrange import arrangement
from whence.engine.batch import consolidate
from whence.engine.operator import Batch, Operator
from whence.engine.relation import Relation
from whence.engine.scan import Scan
from whence.model.types import Schema

Progress = Callable[[int, int, str], None]


class Dataflow:
    """Tables in, views out."""

    def __init__(self, algebra: Algebra = COUNTING):
        self.algebra = algebra
        self.tables: dict[str, Scan] = {}
        self.views: dict[str, Operator] = {}
        self.order: list[Operator] = []  # topological; tables are not in it
        self._ran: list[Operator] = []
        self._changed: list[Relation] = []

    # -- the plan ----------------------------------------------------------------------------------------------------

    def table(self, name: str, schema: Schema, key: tuple[int, ...] = ()) -> Scan:
        """Declare a table."""
        scan = self.tables[name] = Scan(name, schema, key, self.algebra)
        return scan

    def remove_table(self, name: str) -> None:
        del self.tables[name]

    def add_view(self, name: str, op: Operator, progress: Progress | None = None) -> None:
        """Keep an operator's output as a view, back-filling what is new; on an error nothing has changed."""
        had = op.arranged
        try:
            if not op.keeps_output:
                arrangement(op)
            self._prime(op, progress)
        except BaseException:
            if had is None:
                op.arranged = None
            running = {id(o) for o in self.order}
            for new in _upwards([op]):
                new.dropped = id(new) not in running and not isinstance(new, Scan)
            self.sweep()
            raise
        if op.arranged is not None:
            op.arranged.commit()
        self.views[name] = op

    def remove_view(self, name: str) -> None:
        """Forget a view and everything that only it needed."""
        del self.views[name]
        self.sweep()

    def _prime(self, op: Operator, progress: Progress | None) -> None:
        fresh = [o for o in _upwards([op]) if not o.primed]
        left = {id(o): sum(o is i for f in fresh for i in f.inputs) for f in fresh for o in f.inputs}
        kept: dict[int, Batch] = {}
        for done, new in enumerate(fresh):
            if progress is not None:
                progress(done, len(fresh), new.describe())
                new.watch = partial(progress, done, len(fresh))
            ins = []
            for i in new.inputs:
                if id(i) not in kept:
                    kept[id(i)] = i.contents()
                ins.append(kept[id(i)])
            out = new.prime(ins)
            if new.arranged is not None and not isinstance(new, Scan):
                out = consolidate(out, new.algebra)
                new.arranged.apply(out)
                new.arranged.commit()
            new.commit()
            new.primed, new.watch = True, None
            kept[id(new)] = out
            for i in new.inputs:
                left[id(i)] -= 1
                if not left[id(i)]:
                    kept.pop(id(i), None)
            if not left.get(id(new)):
                kept.pop(id(new), None)
        self.order.extend(fresh)
        if progress is not None:
            progress(len(fresh), len(fresh), "done")

    def sweep(self) -> None:
        """Drop operators, arrangements and indexes that nothing needs any more."""
        used = _upwards(list(self.views.values()))
        alive = {id(o) for o in used}
        for op in self.order:
            op.dropped = id(op) not in alive
        self.order = [o for o in self.order if not o.dropped]
        wanted: dict[int, set[tuple[int, ...]]] = {id(o): set() for o in self.views.values() if not o.keeps_output}
        for op in used:
            for target, cols in op.needs():
                wanted.setdefault(id(target), set()).add(cols)
        for op in [*self.order, *self.tables.values()]:
            if op.arranged is None:
                continue
            keep = wanted.get(id(op), set())
            if isinstance(op, Scan):
                keep = keep | {op.key} if op.key else keep
            elif id(op) not in wanted:
                op.arranged = None
                continue
            for cols in list(op.arranged.indexes):
                if cols not in keep:
                    op.arranged.drop_index(cols)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run(self, deltas: dict[str, Batch]) -> dict[str, Batch]:
        """Push the tables' deltas through; the consolidated change of each view that changed."""
        outs: dict[int, Batch] = {}
        ran = self._ran
        for name, delta in deltas.items():
            if len(delta.ann):
                self._step(self.tables[name], [delta], outs)
        if not outs:
            return {}
        for op in self.order:
            inputs = op.inputs
            if op.follows:
                if not any(i in ran for i in inputs):
                    continue
            else:
                for i in inputs:
                    if id(i) in outs:
                        break
                else:
                    continue
            ins = []
            for i in inputs:
                delta = outs.get(id(i))  # type: ignore[assignment]  # None is replaced at once
                ins.append(delta if delta is not None else Batch.empty(len(i.schema)))
            self._step(op, ins, outs)
        changes = {}
        for name, op in self.views.items():
            out = outs.get(id(op))
            if out is not None:
                changes[name] = out
        return changes

    def _step(self, op: Operator, deltas: list[Batch], outs: dict[int, Batch]) -> None:
        self._ran.append(op)
        out = op.apply(deltas)
        if not len(out.ann):
            return
        if op.arranged is not None:
            out = consolidate(out, op.algebra)
            if not len(out.ann):
                return
            self._changed.append(op.arranged)
            op.arranged.apply(out)
        outs[id(op)] = out

    def commit(self) -> None:
        """Keep what the last run did."""
        for op in self._ran:
            op.commit()
        for relation in self._changed:
            relation.commit()
        self._ran, self._changed = [], []

    def undo(self) -> None:
        """Go back to before the last run, whether it returned or raised."""
        for op in reversed(self._ran):
            op.undo()
        for relation in reversed(self._changed):
            relation.undo()
        self._ran, self._changed = [], []

    @property
    def state_bytes(self) -> int:
        tables = sum(scan.relation.nbytes for scan in self.tables.values())
        own = sum(op.state_bytes for op in self.order)
        return tables + own + sum(op.arranged.nbytes for op in self.order if op.arranged is not None)


def _upwards(ops: list[Operator]) -> list[Operator]:
    """The operators and all they read, inputs first."""
    out: list[Operator] = []
    seen: set[int] = set()
    stack: list[tuple[Operator, bool]] = [(op, False) for op in reversed(ops)]
    while stack:
        op, ready = stack.pop()
        if ready:
            out.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            stack.append((op, True))
            stack.extend((i, False) for i in reversed(op.inputs))
    return out
