"""Measurements of `delivery` about what one source costs its broker: work a message, and memory by gaps.

The receiving end of a source (`subscribe/sources.py`) is driven directly, as a broker does: one event a message, of
which some are lost on the way. There is no socket and no database in it, so what is measured is what grows, if anything
does.

| figure | what is measured |
|---|---|
| µs a message | over the last tenth of so many events, of which 100 are missing |
| memory | of the state with so many gaps that stay open |
| µs a message beside gaps | the same events in order, beside so many gaps that stay open |
"""

from __future__ import annotations

import gc
import time
import tracemalloc

from benchmarks.delivery_run import Curve, Run, Section, sample
from benchmarks.report import WHENCE, Check, Figure
from whence.subscribe.positions import Position
from whence.subscribe.publishing import RangeChange
from whence.subscribe.ranges import RangeSet
from whence.subscribe.sources import Apply, Opened, SourceState

AT = Position("0123456789ab", "00c0ffee", 0)
MISSING = 100  # events that are lost, of those by number of events
ROWS = ((1, 2, 3),)  # what a message brings; the state only passes it on
BESIDE = 20_000  # messages that are timed beside gaps


def receive(state: SourceState, first: int, count: int, lost_every: int = 0) -> float:
    """Let a state receive `count` events from tick `first` on; every `lost_every`th is lost. Return the seconds."""
    begin = time.perf_counter()
    applied = 0
    for tick in range(first, first + count):
        if lost_every and tick % lost_every == lost_every - 1:
            continue
        for action in state.receive(RangeChange(tick, tick + 1, ROWS), 1, 0.0):
            applied += isinstance(action, Apply)
    seconds = time.perf_counter() - begin
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
    section = Section(list(figures.values()), curves=[work, kept, beside])
    first, last = (figures[f"µs a message after {n:,} events"].of(WHENCE) for n in
                   (sizes.gap_events[0], sizes.gap_events[-1]))  # fmt: skip
    name = f"work a message, {sizes.gap_events[-1]:,} against {sizes.gap_events[0]:,} events: times"
    section.checks.append(Check(name, last / first, 1.5, at_least=False))
    most = max(sizes.gaps)
    per_gap = 1e3 * (figures[f"memory with {most:,} gaps"].of(WHENCE) - figures["memory with 0 gaps"].of(WHENCE)) / most
    section.checks.append(Check("bytes a gap", per_gap, 500, at_least=False))
    return section
