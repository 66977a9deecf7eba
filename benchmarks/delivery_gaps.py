"""Measurements of `delivery` about what one source costs its broker: work a message, and memory by gaps.

The receiving end of a source (`subscribe/sources.py`) is driven directly, as a broker does: one event a message, of
which some are lost on the way. There is no socket and no database in it, so what is measured is what grows, if anything
does. Then the same messages go to a broker: a database in memory with a source, from where its connection hands
messages over to rows, ticks and ranges that are committed. All times are those of the processor.

| figure | what is measured |
|---|---|
| µs a message | over the last tenth of so many events, of which 100 are missing |
| memory | of the state with so many gaps that stay open |
| µs a message beside gaps | the same events in order, beside so many gaps that stay open |
| µs a message that opens a gap | every second event is lost: over the last tenth of so many gaps |
| µs a message that fills a gap | these gaps are filled from the first on, and in any order |
| broker: µs a message | over the last tenth of so many events; 1 in 100 is lost, and stays so |
"""

from __future__ import annotations

import gc
import random
import threading
import time
import tracemalloc
from collections.abc import Sequence

import whence
from benchmarks.delivery_run import Curve, Run, Section, sample
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_processes import FailedError
from whence.runtime.sources.source_feed import SourceFeed
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position
from whence.subscribe.publishing import RangeChange
from whence.subscribe.ranges import RangeSet
from whence.subscribe.sources import Apply, Opened, SourceState

AT = Position("0123456789ab", "00c0ffee", 0)
MISSING = 100  # events that are lost, of those by number of events
ROWS = ((1, 2, 3),)  # what a message brings; the state only passes it on
BESIDE = 20_000  # messages that are timed beside gaps
BROKER_LOSES = 100  # one in so many events is lost, of those at a broker


def receive(state: SourceState, first: int, count: int, lost_every: int = 0) -> float:
    """Let a state receive `count` events from tick `first` on; every `lost_every`th is lost. Return the seconds."""
    begin = time.process_time()
    applied = 0
    for tick in range(first, first + count):
        if lost_every and tick % lost_every == lost_every - 1:
            continue
        for action in state.receive(RangeChange(tick, tick + 1, ROWS), 1, 0.0):
            applied += isinstance(action, Apply)
    seconds = time.process_time() - begin
    expected = count - (sum(1 for tick in range(first, first + count) if tick % lost_every == lost_every - 1)
                        if lost_every else 0)  # fmt: skip
    assert applied == expected, f"{applied} of {expected} messages were applied"
    return seconds


def opened(reflected: RangeSet | None = None) -> SourceState:
    """Return a state that is subscribed and reflects some ticks."""
    state = SourceState("quote", "ahead", AT if reflected else None, reflected)
    state.connect(0.0)
    state.receive(Opened(AT, "resumed" if reflected else "unknown"), 1, 0.0)
    return state


def with_gaps(gaps: int) -> RangeSet:
    """Return the ticks of twice as many events and one, of which every second is missing."""
    return RangeSet((2 * place, 2 * place + 1) for place in range(gaps + 1))


def memory_with_gaps(gaps: int) -> int:
    """Return the bytes of a state with so many gaps that are still to be filled."""
    gc.collect()
    tracemalloc.start()
    try:
        state = opened(with_gaps(gaps))
        gc.collect()
        assert len(state.reflected) == gaps + 1
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def open_and_fill(count: int, shuffled: bool) -> tuple[float, float]:
    """Open so many gaps one by one, and fill them; return the seconds of the last tenth of each."""
    state, tenth = opened(), max(1, count // 10)
    receive(state, 0, 2 * (count - tenth), 2)
    opening = receive(state, 2 * (count - tenth), 2 * tenth, 2)
    order = list(range(1, 2 * count, 2))
    if shuffled:
        random.Random(count).shuffle(order)
    begin = time.process_time()
    for tick in order[-tenth:]:
        state.receive(RangeChange(tick, tick + 1, ROWS), 1, 0.0)
    return opening / tenth, (time.process_time() - begin) / tenth


class SilentConnection:
    """A connection whose server accepts subscriptions and says nothing else: what comes is handed over by `FedBroker`.

    A broker that misses ticks for long subscribes again, so it must be accepted again."""

    def __init__(self, broker: FedBroker) -> None:
        self._broker = broker

    def attach(self, listener: SourceFeed) -> int:
        return 1

    def send(self, message: object) -> None:
        if isinstance(message, ms.Subscribe):
            self._broker.accept()

    def detach(self, wire_id: int) -> None:
        pass


class FedBroker:
    """A broker with one source, whose messages are handed over as its connection would."""

    def __init__(self) -> None:
        self.db = whence.open()
        self.db.execute(
            "CREATE SOURCE quote FROM 'ws://127.0.0.1:1/quote' WITH (wait = '1 ms') AS STREAM (issue TEXT, price INT);"
            "CREATE VIEW high AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM quote GROUP BY issue"
        )
        found = self.db._now.broker
        assert found is not None
        self._broker, self._feed = found, found.feeds["quote"]
        self._reached, self._accepted = 0, threading.Event()
        connection = SilentConnection(self)

        async def connected(address: object) -> SilentConnection:
            return connection

        found.connection = connected  # type: ignore[method-assign,assignment]  # there is no server
        if not self._accepted.wait(60):
            raise FailedError("the broker does not subscribe")

    def accept(self) -> None:
        """Accept a subscription. Called in the broker's loop."""
        columns = [[("issue", "TEXT"), ("price", "INTEGER")]]
        at = str(AT._replace(epoch=self._reached))
        self._broker.loop.call_soon(self._feed.receive, 1, ms.Subscribed(1, at, columns, eras=[(AT.era, 0)]))
        self._accepted.set()

    def _give(self, messages: Sequence[object]) -> None:
        done = threading.Event()

        def receive() -> None:
            if not self._feed.state.is_open:  # it is subscribing again
                self._broker.loop.call_later(0.001, receive)
                return
            for message in messages:
                self._feed.receive(1, message)
            done.set()

        self._broker.call(receive)
        done.wait()
        self._broker.writer.run(lambda: None)  # returns when all before it is written

    def receive(self, first: int, count: int, lost_every: int) -> float:
        """Let the broker receive events, one a message, 100 at a time; return the seconds that it computed."""
        begin = time.process_time()
        for start in range(first, first + count, 100):
            ticks = [tick for tick in range(start, min(start + 100, first + count)) if tick % lost_every]
            self._reached = start + 100
            self._give([
                ms.UpdateMessage(
                    1, str(AT._replace(epoch=tick)), str(AT._replace(epoch=tick + 1)), 0,
                    [ms.PartChange(None, [["A"], [tick]], ticks=[(tick + 1, 0, 1)])],
                )
                for tick in ticks
            ])  # fmt: skip
        return time.process_time() - begin

    def close(self, events: int, lost_every: int) -> None:
        """Check what has come of it, and end."""
        lost = len(range(0, events, lost_every))
        [(_, _, n)] = self.db["high"].rows
        assert n == events - lost, f"{n} of {events - lost} events are there"
        self.db.close()


def gaps(run: Run) -> Section:
    """Measure work a message and memory, by events and by gaps."""
    sizes, figures = run.sizes, dict[str, Figure]()
    work = Curve("work a message", "by events", x="events before", y="µs a message")
    for events in sizes.gap_events:
        state = opened()
        rest = events // 10
        every = max(2, events // MISSING)
        receive(state, 0, events - rest, every)
        seconds = receive(state, events - rest, rest, every)
        each = 1e6 * seconds / rest
        sample(figures, f"µs a message after {events:,} events", "µs", WHENCE, each)
        work.points.append((f"{events:,}", events, each))
        run.say(f"gaps: {each:.2f} µs a message after {events:,} events, {len(state.reflected) - 1} gaps")
    kept = Curve("memory", "by gaps", x="gaps", y="bytes")
    beside = Curve("work a message", "by gaps", x="events before", y="µs a message")
    for count in sizes.gaps:
        taken = memory_with_gaps(count)
        sample(figures, f"memory with {count:,} gaps", "kB", WHENCE, taken / 1e3)
        kept.points.append((f"{count:,}", count, taken))
        each = 1e6 * receive(opened(with_gaps(count)), 2 * count + 1, BESIDE) / BESIDE
        sample(figures, f"µs a message beside {count:,} gaps", "µs", WHENCE, each)
        beside.points.append((f"{count:,}", count, each))
        run.say(f"gaps: {taken / 1e3:.1f} kB and {each:.2f} µs a message with {count:,} gaps")
    churn = [Curve("work a message", name, x="events before", y="µs a message") for name in ("opens", "fills")]
    for count in sizes.gaps:
        if not count:
            continue
        opening, filling = open_and_fill(count, shuffled=False)
        _, anywhere = open_and_fill(count, shuffled=True)
        for name, each in (("opens a gap", opening), ("fills the first gap", filling), ("fills any gap", anywhere)):
            sample(figures, f"µs a message that {name}, of {count:,}", "µs", WHENCE, 1e6 * each)
        churn[0].points.append((f"{count:,}", count, 1e6 * opening))
        churn[1].points.append((f"{count:,}", count, 1e6 * anywhere))
        run.say(
            f"gaps: {1e6 * opening:.2f}, {1e6 * filling:.2f}, {1e6 * anywhere:.2f} µs to open, fill first, fill any"
        )
    through = Curve("work a message", "broker", x="events before", y="µs a message")
    for events in sizes.broker_events:
        broker, tenth = FedBroker(), events // 10
        broker.receive(0, events - tenth, BROKER_LOSES)
        each = 1e6 * broker.receive(events - tenth, tenth, BROKER_LOSES) / tenth
        broker.close(events, BROKER_LOSES)
        sample(figures, f"broker: µs a message after {events:,} events", "µs", WHENCE, each)
        through.points.append((f"{events:,}", events, each))
        run.say(f"gaps: {each:.1f} µs a message at a broker after {events:,} events, {events // BROKER_LOSES:,} gaps")
    section = Section(list(figures.values()), curves=[work, kept, beside, *churn, through])
    first, last = (figures[f"µs a message after {n:,} events"].of(WHENCE) for n in
                   (sizes.gap_events[0], sizes.gap_events[-1]))  # fmt: skip
    name = f"work a message, {sizes.gap_events[-1]:,} against {sizes.gap_events[0]:,} events: times"
    section.checks.append(Check(name, last / first, 1.5, at_least=False))
    most = max(sizes.gaps)
    per_gap = 1e3 * (figures[f"memory with {most:,} gaps"].of(WHENCE) - figures["memory with 0 gaps"].of(WHENCE)) / most
    section.checks.append(Check("bytes a gap", per_gap, 500, at_least=False))
    few, many = (next(y for _, x, y in churn[0].points if x == n) for n in
                 (min(n for n in sizes.gaps if n), most))  # fmt: skip
    section.checks.append(
        Check(f"work of a message that opens a gap, of {most:,}: times", many / few, 2, at_least=False)
    )
    first, last = through.points[0][2], through.points[-1][2]
    name = f"broker: work a message, {sizes.broker_events[-1]:,} against {sizes.broker_events[0]:,} events: times"
    section.checks.append(Check(name, last / first, 2, at_least=False))
    return section
