"""What a source is asked for: the rows that the views over it can use, and no others.

`curiosity.py` decides; without it, everything is asked for. `SourceFeed.subscribe_again` asks otherwise, since the
rows that are there may be too few; `SourceFeed.amend` moves the filter of the subscription that stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whence.subscribe.messages import WireFilter
from whence.subscribe.source_needs import SourceNeeds


@dataclass(frozen=True)
class UpstreamQuery:
    """A subscription upstream: a SELECT over the relation, or its name, and a filter of what is delivered.

    filter   the filter, or what gives the one in effect
    columns  the columns of the source that the query gives, in its order; the others are NULL here. None: all
    results  of a result, the query for each of its addresses
    """

    query: str
    filter: WireFilter | Callable[[], WireFilter | None] | None = None
    columns: tuple[str, ...] | None = None
    needs: SourceNeeds | None = None
    results: tuple[str, ...] = ()

    def query_of(self, relation: str, url: int) -> str:
        """Return the query for a server where the source's relation has this name; it has a place among the URLs."""
        if self.results:
            return self.results[url]
        return relation if self.needs is None else self.needs.select(relation)

    def filter_now(self) -> WireFilter | None:
        """Return the filter to subscribe with."""
        return self.filter() if callable(self.filter) else self.filter
