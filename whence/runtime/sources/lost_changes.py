"""Single changes of a source that nobody knows any more, told to those who want each of them in order.

A publisher that was restarted tells a table as its state, and rows of a stream that retention has dropped are lost. A
view is right afterwards. Whoever subscribed with `ordered` and `every_change` is told that changes are lost, and then
the state: nothing is skipped in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from whence.runtime.sources.doubt import doubt_of

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


@contextmanager
def losing_changes(coordinator: Coordinator, sources: Collection[str]) -> Iterator[None]:
    """Have the epoch that is made in here, which lacks single changes of some sources, be told as such in order."""
    channels = [each for each in coordinator.hub.channels if each.ordered] if sources else []
    parts = {
        part
        for channel in channels
        if (doubt := doubt_of(coordinator, channel)) is not None and not doubt.reads.isdisjoint(sources)
        for part in channel.parts
    }
    for part in parts:
        part.is_losing = True
    try:
        yield
    finally:
        for part in parts:
            part.lose()
