"""Rows of a source that a relay had let go of, fetched for a subscriber: through its query and its filter.

The law: what `rows_through` gives of the rows of some ticks is what the subscriber would have been told of these ticks
while the relay still retained them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.expressions.evaluate import compile_expr
from whence.io.rows import encode
from whence.model.codes import Codes
from whence.plan.algebra.logical import Node, Project, Scan, Select
from whence.plan.algebra.program import Table
from whence.subscribe.messages import PartChange, PlainColumns
from whence.subscribe.plain import column_from_plain, from_plain, to_plain
from whence.subscribe.publishing import DeliveryFilter

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.subscriptions.channels import FollowedRelation


@dataclass(frozen=True)
class FetchedTicks:
    """What came of a range of ticks of a source: rows, none, or that they are lost.

    columns  the columns of the source that the rows have, by their places; None if they have all in their order
    """

    since: int
    upto: int
    part: PartChange | None = None
    columns: Sequence[int] | None = None
    is_lost: bool = False


def encode_columns(coordinator: Coordinator, table: Table, columns: PlainColumns, given: Sequence[int] | None) -> Codes:
    """Encode columns of plain values; columns of the table that are not `given` are NULL."""
    schema = table.schema
    if given is None:
        rows = from_plain(columns, schema.types)
    else:
        count = len(columns[0]) if columns else 0
        whole: list[Any] = [[None] * count] * len(schema)
        for place, column in zip(given, columns, strict=True):
            whole[place] = column_from_plain(column, schema.types[place])
        rows = list(zip(*whole, strict=True))
    return encode(rows, schema, coordinator.dictionary, table.name)


def rows_through(
    coordinator: Coordinator, part: FollowedRelation, source: Table, fetched: FetchedTicks, filter: DeliveryFilter
) -> PartChange | None:
    """Return what of fetched rows passes the query and the filter of a subscriber, with the ticks of the rows."""
    given = fetched.part
    if given is None or given.came is None:
        return None
    with coordinator.writer, coordinator.looking():  # words are encoded and read again before any can be forgotten
        rows = encode_columns(coordinator, source, given.came, fetched.columns)
        rows, places = _through(coordinator, part.name, rows, np.arange(len(rows)))
        kept = np.flatnonzero(filter.passes(rows))
        if not len(kept):
            return None
        shown = to_plain(np.ascontiguousarray(rows[kept]), part.schema, coordinator.dictionary)
    ticks = [(tick, time) for tick, time, count in given.ticks or [] for _ in range(count)]
    told = (ticks[place] for place in places[kept].tolist())
    return PartChange(None, shown, ticks=[(tick, time, len(list(run))) for (tick, time), run in groupby(told)])


def _through(coordinator: Coordinator, name: str, rows: Codes, places: Codes) -> tuple[Codes, Codes]:
    """Return the rows of a relation that selects rows and columns of a source, and which of the source's they are."""
    if name in coordinator.program.tables:
        return rows, places
    transient = coordinator.catalog.transient.get(name)
    view = coordinator.program.views[name] if transient is None else transient.view

    def run(node: Node) -> tuple[Codes, Codes]:
        match node:
            case Select():
                rows, places = run(node.input)
                keep = compile_expr(node.predicate, coordinator.dictionary)(rows) == 1
                return rows[keep], places[keep]
            case Project():
                rows, places = run(node.input)
                made = [compile_expr(expr, coordinator.dictionary)(rows) for expr in node.exprs]
                return np.column_stack(made).astype(np.int64), places
            case _:
                assert isinstance(node, Scan)
                return _through(coordinator, node.table, rows_of_source, places_of_source)

    rows_of_source, places_of_source = rows, places
    return run(view.query)
