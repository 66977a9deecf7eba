"""What a source is asked for: the rows that the views over it can use, and no others.

`curiosity.py` decides; without it, everything is asked for. `SourceFeed.ask` subscribes anew, since the rows that are
there may be too few; `SourceFeed.amend` moves the filter of the subscription that stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.subscribe.messages import WireFilter


@dataclass(frozen=True)
class UpstreamQuery:
    """A subscription upstream: a SELECT over the relation, or its name, and a filter of what is delivered.

    columns  the columns of the source that the query gives, in its order; the others are NULL here. None: all
    """

    query: str
    filter: WireFilter | None = None
    columns: tuple[str, ...] | None = None
