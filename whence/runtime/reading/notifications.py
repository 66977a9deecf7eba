"""Notifications: what changes for the subscriptions of a template, epoch by epoch, as it happens.

The law: for each subscription, its answer when this feed was made, plus every notification of it that has been read, is
its answer as of the last epoch that was read. In an epoch a subscription is told its net change, withdrawals first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whence.io.arrow import arrow_schema
from whence.io.rows import expand, to_arrow
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError
from whence.model.types import Schema
from whence.runtime.reading.changes import ChangeQueue


class Notification(NamedTuple):
    """A row that came into the answer of a subscription or left it, in an epoch; one that came twice is two.

    epoch  the number of the epoch
    id     the subscription
    sign   1 for a row that came, -1 for one that left
    row    the row, a tuple

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> _ = db.insert("above", (1, 5)); news = db.notifications("above"); _ = db.insert("a", [(3,), (7,)])
    >>> list(news)
    [Notification(epoch=2, id=1, sign=1, row=(7,))]
    """

    epoch: int
    id: int
    sign: int
    row: tuple[Any, ...]


class Notifications(ChangeQueue[Notification]):
    """What changes for the subscriptions of a template since this object was made (`Database.notifications`). Iterating
    ends when it has caught up, and may be resumed.

    name      the hidden view whose changes these are
    template  the name of the template
    columns   the names of the columns of `Notification.row`
    schema    the names and types of the columns of the view: the subscription's id, then those of the row

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> news = db.notifications("above"); _ = db.insert("a", [(3,), (7,)]); list(news)
    []
    >>> _ = db.insert("above", (1, 5)); [(n.id, n.sign, n.row) for n in news]
    [(1, 1, (7,))]
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        dictionary: Dictionary,
        stable: Callable[[], int],
        poll: float | None = None,
        *,
        template: str,
    ) -> None:
        super().__init__(name, schema, dictionary, stable, poll)
        self.template = template
        self.columns = schema.names[1:]

    def _made(self, epoch: int, row: tuple[Any, ...], sign: int) -> Notification:
        return Notification(epoch, row[0], sign, row[1:])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield one Arrow batch per epoch: columns epoch, id, sign, and those of the row. Ends when it has caught up.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
        >>> _ = db.insert("above", (1, 5)); news = db.notifications("above"); _ = db.insert("a", [(3,), (7,)])
        >>> [batch.to_pydict() for batch in news.batches()]
        [{'epoch': [2], 'id': [1], 'sign': [1], 'x': [7]}]
        """
        shown = arrow_schema(self.schema)
        taken = {"epoch", "id", "sign"}
        names = [name if name not in taken else f"{name}_row" for name in self.columns]
        own = [pa.field("epoch", pa.int64()), pa.field("id", pa.int64()), pa.field("sign", pa.int8())]
        whole = pa.schema([*own, *(shown.field(i + 1).with_name(name) for i, name in enumerate(names))])
        while (found := self._take()) is not None:
            epoch, rows, counts = found
            if isinstance(rows, list):
                ids, signs, columns = self._columns_of(rows, whole)
            else:
                ids, signs, columns = self._decoded(rows, counts)
            epochs = pa.array(np.full(len(ids), epoch, np.int64))
            yield pa.RecordBatch.from_arrays([epochs, ids, signs, *columns], schema=whole)

    def _decoded(self, rows: Codes, counts: Codes) -> tuple[pa.Array, pa.Array, list[pa.Array]]:
        order = np.argsort(counts > 0, kind="stable")
        rows, counts = rows[order], counts[order]
        table = to_arrow(rows, np.abs(counts), self.schema, self._dictionary).combine_chunks()
        signs = expand(np.sign(counts).reshape(-1, 1), np.abs(counts))[:, 0].astype(np.int8)
        arrays = [_one(table.column(i)) for i in range(table.num_columns)]
        return arrays[0], pa.array(signs), arrays[1:]

    def _columns_of(self, rows: list[Notification], whole: pa.Schema) -> tuple[pa.Array, pa.Array, list[pa.Array]]:
        values = [pa.array([n.row[i] for n in rows], whole.field(3 + i).type) for i in range(len(self.columns))]
        return pa.array([n.id for n in rows], pa.int64()), pa.array([n.sign for n in rows], pa.int8()), values

    def _take(self) -> tuple[int, Codes | list[Notification], Codes] | None:
        """Return the next epoch that may be told of, in codes; decoded, if it had to be."""
        until = self._stable() if self._end is None else None
        with self._news:
            rest = self._ready or self._early
            if rest:
                if until is not None and rest[0].epoch > until:
                    return None
                epoch, found = rest[0].epoch, list[Notification]()
                while rest and rest[0].epoch == epoch:
                    found.append(rest.popleft())
                return epoch, found, np.empty(0, np.int64)
            if not self._waiting:
                if self._end:
                    raise CatalogError(self._end)
                return None
            return None if until is not None and self._waiting[0][0] > until else self._waiting.popleft()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
