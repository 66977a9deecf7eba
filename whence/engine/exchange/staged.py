"""A dataflow in stages: the share of one partition, which waits for the others between them.

An operator's stage is the number of exchanges that must come before it: the largest sum of its inputs' delays (a Ship
delays by one). An epoch runs stage after stage; every operator runs at most once in it, when the deltas of all its
inputs are there, so the law of the engine holds as it does in one piece. What a stage leaves for later ones stays here
between two calls; `commit` or `undo` ends the epoch.

What a stage sends is addressed to a stage. A Ship's rows are for the next one. An Exchange has some stages of its own,
each of which is run again, in the partitions that were sent something for it, until nobody sends anything for it any
more; only then does the next one begin. Operators other than the Exchange run in the first of these rounds.

New views are filled in the same stages: what a new Ship sends then is the whole contents of its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whence.engine.core.arrangement import arrangement
from whence.engine.core.dataflow import BackfillInputs, Dataflow, arrange, upwards
from whence.engine.core.image import Images, StaleImage
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.ship import Ship
from whence.engine.exchange.traffic import Letter, Traffic, counted, letter_of_rows
from whence.engine.recursion.iterative import IterativeOperator
from whence.engine.streams.promise import Promise, reaches
from whence.engine.streams.stream import StreamOperator
from whence.model.errors import WhenceError


@dataclass(frozen=True)
class Parcel:
    """A letter (see `traffic.Letter`) on its way, and the stage it is for."""

    stage: int
    channel: str
    to: int
    batch: Batch
    rows: int
    bytes: int


class StagedDataflow(Dataflow):
    """The dataflow of one of some partitions."""

    def __init__(self, partition: int = 0, partitions: int = 1) -> None:
        super().__init__()
        self._partition, self._partitions = partition, partitions
        self._outs: dict[int, Batch] = {}  # of this epoch
        self._ships: dict[str, Ship] = {}  # by channel
        self._exchanges: list[IterativeOperator] = []
        self._installing: _Install | None = None
        self._traffic: dict[str, Traffic] = {}  # of this epoch, by the fingerprints of those who send
        self._promise: Promise | None = None  # of this epoch

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run_stage(
        self,
        stage: int,
        deltas: Mapping[str, Batch],
        received: Mapping[str, Batch],
        promise: Promise | None = None,
    ) -> list[Parcel]:
        """Run one stage with the tables' deltas and a promise (at first), and what other partitions sent; what is to be
        sent on."""
        if self._installing is not None:
            return self._install_stage(self._installing, stage, received)
        before = len(self._ran)
        self._take(deltas, self._outs)
        if promise is not None:
            self._promise = promise
            self._arrive(promise)
        for ship, batch in self._for_ships(received):
            self._deliver(ship, batch)
        for op in self._exchanges:
            if op.stage + op.delay == stage and op in self._ran:
                op.finish()
        self._follow([op for op in self.order if op.stage == stage and op not in self._ran], self._outs, self._promise)
        sent = self._shipped(self._ran[before:], stage)
        for op in self._exchanges:
            phase = stage - op.stage
            if 0 <= phase < op.delay and ((mail := _mail(op, received)) or op.waits(phase)):
                if op not in self._ran:
                    self.touch(op)
                    self._ran.append(op)
                sent += self._exchanged(op, stage, mail)
        return sent

    def _for_ships(self, received: Mapping[str, Batch]) -> list[tuple[Ship, Batch]]:
        """What is not for an Exchange; KeyError if it is for nobody."""
        others = {channel for op in self._exchanges for channel in op.channels}
        return [(self._ships[channel], batch) for channel, batch in received.items() if channel not in others]

    def _deliver(self, ship: Ship, batch: Batch) -> None:
        batch = ship.received(batch)
        if not len(batch.ann):
            return
        if self._promise is not None and ship.ordered and (batch.rows[:, -1] == self._promise.at).sum() > 1:
            raise WhenceError(
                "advance and flush close windows of several keys at once, and a view takes their results in order: in "
                "partitions they have none. Group that view by the key, or open the database without partitions"
            )
        self.touch(ship)
        if ship.arranged is not None:
            self._changed.append(ship.arranged)
            ship.arranged.apply(batch)
        self._outs[id(ship)] = batch

    def waits(self, stage: int) -> int | None:
        """The next stage after this one that has something to do with what is here already."""
        if self._installing is not None:
            return self._installing.after(stage)
        found = min(
            (
                op.stage + phase
                for op in self._exchanges
                for phase in range(1, op.delay)
                if op.stage + phase > stage and op in self._ran and op.waits(phase)
            ),
            default=None,
        )
        for op in self.order:
            if op.stage > stage and (found is None or op.stage < found) and op not in self._ran:
                ready = (
                    any(i in self._ran for i in op.inputs)
                    if op.follows
                    else any(id(i) in self._outs for i in op.inputs)
                )
                if ready or (self._promise is not None and reaches(self._promise, op)):
                    found = op.stage
        return found

    def changes(self, stage: int) -> dict[str, Batch]:
        """What views have changed by in a stage."""
        found = ((name, op) for name, op in self.views.items() if op.stage + op.delay == stage)
        return {name: out for name, op in found if (out := self._outs.get(id(op))) is not None}

    def commit(self) -> None:
        if self._installing is not None:
            self._end_install(self._installing)
        super().commit()
        senders: list[Ship | IterativeOperator] = [*self._ships.values(), *self._exchanges]
        for sender in senders:
            sender.shipped = sender.shipped.after(self._traffic.get(sender.fingerprint, Traffic()))
        self._outs, self._traffic, self._promise = {}, {}, None

    def undo(self) -> None:
        if self._installing is not None:
            self._abort_install(self._installing)
        super().undo()
        self._outs, self._traffic, self._promise = {}, {}, None

    # -- sending -----------------------------------------------------------------------------------------------------

    def _exchanged(self, op: IterativeOperator, stage: int, mail: Mapping[str, Batch]) -> list[Parcel]:
        return self._sent(op, stage, op.work(stage - op.stage, mail))

    def _shipped(self, ran: list[Operator], stage: int) -> list[Parcel]:
        out = []
        for op in ran:
            if isinstance(op, Ship):
                letters = [letter_of_rows(op.channel, to, batch) for to, batch in op.send().items()]
                out += self._sent(op, stage + 1, letters)
        return out

    def _sent(self, op: Operator, stage: int, letters: list[Letter]) -> list[Parcel]:
        for letter in letters:
            traffic = counted(letter.to, letter.rows, letter.bytes, self._partition, self._partitions)
            self._traffic[op.fingerprint] = self._traffic.get(op.fingerprint, Traffic()).plus(traffic)
        return [Parcel(stage, *letter) for letter in letters]

    # -- views -------------------------------------------------------------------------------------------------------

    def install(self, views: dict[str, Operator], images: Images | None = None) -> None:
        """Begin to keep these views, and no others; what is new is restored now, or filled by the stages to come."""
        fresh = [op for op in upwards(list(views.values())) if not op.primed]
        for op in fresh:
            op.stage = max((i.stage + i.delay for i in op.inputs), default=0)
        install = _Install(views, fresh, [op for op in views.values() if op.arranged is None and not op.keeps_output])
        for op in install.arranged:
            arrangement(op)
        self._installing = install
        self._ships |= {op.channel: op for op in fresh if isinstance(op, Ship)}
        self._exchanges += [op for op in fresh if isinstance(op, IterativeOperator)]
        if images is not None:
            try:
                for op in fresh:
                    if not self._restore(op, images):
                        self._fill_here(op, install.kept)
                    op.primed = True
                    install.kept.used_by(op)
            except BaseException:
                self._abort_install(install)
                raise
            self._end_install(install)

    def _fill_here(self, op: Operator, kept: BackfillInputs) -> None:
        """Compute an operator that images do not have from its inputs in this partition; StaleImage if that takes the
        other partitions, or the past of a stream."""
        remote = isinstance(op, (Ship, IterativeOperator, StreamOperator)) or not all(i.is_readable for i in op.inputs)
        if remote:
            raise StaleImage(f"there is no image of {op.describe()}")
        self._fill(op, kept)

    def pretend(self) -> None:
        """End an installation as if all had been filled: of a dataflow that is only looked at."""
        if self._installing is not None:
            for op in self._installing.fresh:
                op.primed = True
            self._end_install(self._installing)

    def _install_stage(self, install: _Install, stage: int, received: Mapping[str, Batch]) -> list[Parcel]:
        for ship, batch in self._for_ships(received):
            batch = ship.received(batch)
            install.kept.keep(ship, arrange(ship, batch) if ship.arranged is not None else batch)
        now = [op for op in install.fresh if op.stage == stage and not op.primed]
        for op in now:
            for i in op.inputs:
                if isinstance(i, Ship) and i in install.fresh:
                    install.kept.keep_if_none(i, Batch.empty(len(i.schema)))
            if isinstance(op, (Ship, IterativeOperator)):
                op.prime([install.kept.contents(i) for i in op.inputs])
            else:
                self._fill(op, install.kept)
            op.primed = True
            install.kept.used_by(op)
        sent = self._shipped(now, stage)
        for op in install.fresh:
            if isinstance(op, IterativeOperator) and 0 <= stage - op.stage < op.delay:
                sent += self._exchanged(op, stage, _mail(op, received))
        return sent

    def _end_install(self, install: _Install) -> None:
        self.order.extend(install.fresh)
        for op in install.arranged:
            assert op.arranged is not None
            op.arranged.commit()
        for op in install.fresh:
            if isinstance(op, IterativeOperator):
                op.commit()
        self.views, self._installing = install.views, None
        self._sweep()

    def _abort_install(self, install: _Install) -> None:
        self._installing = None
        for op in install.arranged:
            if op not in install.fresh:
                op.arranged = None
        for op in install.fresh:
            op.dropped = True
        self._sweep()

    def _sweep(self) -> None:
        self.sweep()
        self._ships = {op.channel: op for op in self.order if isinstance(op, Ship)}
        self._exchanges = [op for op in self.order if isinstance(op, IterativeOperator)]


class _Install:
    """Views that are being made."""

    def __init__(self, views: dict[str, Operator], fresh: list[Operator], arranged: list[Operator]):
        self.views, self.fresh, self.arranged = views, fresh, arranged
        self.kept = BackfillInputs(fresh)

    def after(self, stage: int) -> int | None:
        """The next stage that fills something."""
        stages = [o.stage + p for o in self.fresh for p in range(o.delay if isinstance(o, IterativeOperator) else 1)]
        return min((s for s in stages if s > stage), default=None)


def _mail(op: IterativeOperator, received: Mapping[str, Batch]) -> dict[str, Batch]:
    return {channel: batch for channel in op.channels if (batch := received.get(channel)) is not None}
