"""Horizons: what enforced promises have established as of an epoch about the rows that are still to come.

Law: as of epoch e no row of a later epoch has a value below the horizon of its stream's ordered column, nor a key that
is closed. A horizon comes from the rows of an `ordered` stream, and from `db.advance` on its ordered column, which is
enforced there, too; `advance` on any other column moves windows only, for late rows are still taken in. Horizons only
rise. What follows for an epoch from horizons of an earlier one is true, from those of a later one it may be false: so
the last `KEPT` moves of each are known by their epochs, and what is older is unknown, which is sound.

State: one code per ordered column, in images and, by the rows and promises of epochs, in the log; closed keys are a
relation beside their stream (`Table.closed_keys`). Codes of ordered columns order like values; a column that is ordered
strictly has its horizon one code higher, so that a code below the horizon is always one that does not come any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.core.epoch import Epoch
from whence.engine.core.key_lookup import among
from whence.engine.streams.promise import promise_in
from whence.io.rows import to_tuples
from whence.model.codes import Codes, Dictionary, decode_value, encode_value
from whence.model.errors import DataError
from whence.model.types import Schema, Type
from whence.plan.algebra.program import Table, closed_name, has_closed_keys, owner_of

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

KEPT = 4096
"""Moves of a horizon that are known by their epochs."""


@dataclass(frozen=True)
class Horizon:
    """Nothing below `value` comes any more; `strictly`, nothing equal to it either. `code` is the lowest code that may
    still come."""

    value: Any
    strictly: bool
    code: int = field(repr=False)

    @classmethod
    def of(cls, code: int, type: Type, strictly: bool, dictionary: Dictionary) -> Horizon:
        return cls(decode_value(code - strictly, type, dictionary), strictly, code)

    def has_passed(self, value: Any) -> bool:
        """Return whether no row with this value, or a smaller one, comes any more.

        >>> Horizon(7, False, 7).has_passed(7), Horizon(7, True, 8).has_passed(7), Horizon(7, False, 7).has_passed(6)
        (False, True, True)
        """
        return bool(value < self.value or (self.strictly and value == self.value))


@dataclass(frozen=True)
class HorizonChanges:
    """What has been established since an epoch: horizons by stream and column, and keys that were closed, by stream.

    `complete` is False if that epoch is too long ago: horizons are then those of now, and `closed` lacks older keys.
    """

    horizons: Mapping[tuple[str, str], Horizon]
    closed: Mapping[str, Sequence[tuple[Any, ...]]]
    complete: bool = True

    def __bool__(self) -> bool:
        return bool(self.horizons or self.closed)


class _Moves:
    """The last epochs in which one thing moved, and how."""

    __slots__ = ("epochs", "forgotten", "moves")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.moves: list[Any] = []
        self.forgotten = 0  # the last epoch whose move is not known any more

    def add(self, epoch: int, move: Any) -> None:
        self.epochs.append(epoch)
        self.moves.append(move)
        if len(self.epochs) >= 2 * KEPT:
            self.forgotten = self.epochs[-KEPT - 1]
            del self.epochs[:-KEPT], self.moves[:-KEPT]

    def as_of(self, epoch: int) -> Any:
        """Return the last move up to an epoch; None if it is not known."""
        at = bisect_right(self.epochs, epoch)
        return self.moves[at - 1] if at else None

    def since(self, epoch: int) -> list[Any]:
        """Return the moves after an epoch that are known."""
        return self.moves[bisect_right(self.epochs, epoch) :]


class HorizonHistory:
    """The horizons of one database, now and as of its last epochs. Under the state's lock."""

    def __init__(self) -> None:
        self._bounds: dict[tuple[str, int], _Moves] = {}  # by stream and column: the lowest code that may come
        self._closed: dict[str, _Moves] = {}  # by stream: keys, by the epochs that closed them
        self._begins = 0  # the epoch before which nothing is known

    # -- moving ------------------------------------------------------------------------------------------------------

    def note(self, epoch: Epoch, tables: Mapping[str, Table]) -> None:
        """Take in what an epoch, which is committed, has established."""
        for name, delta in epoch.deltas.items():
            table = tables.get(name)
            if table is None:
                if has_closed_keys(name):
                    self._closed.setdefault(owner_of(name), _Moves()).add(epoch.number, delta.rows)
                continue
            ordered = table.promises.ordered
            if ordered is not None and table.source is None:  # rows of a source may come ahead of others
                self.rise(name, ordered.column, ordered.after(int(delta.rows[-1, ordered.column])), epoch.number)
        promise = promise_in(epoch.source_positions) if epoch.source_positions else None
        if promise is not None and promise.bound is not None:
            for name, column in promise.columns.items():
                table = tables.get(name)
                ordered = table.promises.ordered if table is not None else None
                if ordered is not None and ordered.column == column:
                    self.rise(name, column, promise.bound, epoch.number)

    def rise(self, stream: str, column: int, code: int, epoch: int) -> None:
        """Let no code below `code` come from now on, if that is not known already."""
        moves = self._bounds.setdefault((stream, column), _Moves())
        if not moves.moves or code > moves.moves[-1]:
            moves.add(epoch, code)

    def forget(self, stream: str) -> None:
        """Forget a stream that was dropped."""
        for key in [key for key in self._bounds if key[0] == stream]:
            del self._bounds[key]
        self._closed.pop(stream, None)

    # -- asking ------------------------------------------------------------------------------------------------------

    def bound(self, stream: str, column: int, epoch: int | None = None) -> int | None:
        """Return the lowest code that may still come, now or as of an epoch; None if nothing is known."""
        moves = self._bounds.get((stream, column))
        if moves is None or not moves.moves:
            return None
        found: int | None = moves.moves[-1] if epoch is None else moves.as_of(epoch)
        return found

    def moved_since(self, stream: str, column: int, epoch: int) -> bool:
        """Return whether a horizon has risen after an epoch."""
        moves = self._bounds.get((stream, column))
        return moves is not None and bool(moves.epochs) and moves.epochs[-1] > epoch

    def closed_since(self, stream: str, epoch: int) -> tuple[list[Codes], bool]:
        """Return the keys that were closed after an epoch, and whether these are all of them."""
        moves = self._closed.get(stream)
        known = self._begins <= epoch
        return ([], known) if moves is None else (moves.since(epoch), known and moves.forgotten <= epoch)

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> dict[str, int]:
        """Return the horizons of now, as an image or an export has them."""
        return {f"{column}/{stream}": moves.moves[-1] for (stream, column), moves in self._bounds.items()}

    def restore(self, image: Mapping[str, int], epoch: int) -> None:
        """Begin with the horizons of an image of an epoch."""
        self._bounds, self._closed, self._begins = {}, {}, epoch
        for key, code in image.items():
            column, stream = parse_key(key)
            self.rise(stream, column, code, epoch)


def parse_key(key: str) -> tuple[int, str]:
    """Return the column and the stream of a horizon in an image.

    >>> parse_key("2/a/b")
    (2, 'a/b')
    """
    column, _, stream = key.partition("/")
    return int(column), stream


class Horizons:
    """What is established as of one epoch. Its questions are asked by readers: each holds the state's lock."""

    def __init__(self, coordinator: Coordinator, epoch: int) -> None:
        self._coordinator, self.epoch = coordinator, epoch

    def of(self, stream: str, column: str) -> Horizon | None:
        """Return the horizon of a column of a stream; None if nothing is known.

        >>> import whence
        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (t INT, x INT) WITH (ordered = 't')")
        >>> _ = db.insert("s", [(3, 1), (5, 1)])
        >>> db._coordinator.horizons().of("s", "t"), db._coordinator.horizons(0).of("s", "t")
        (Horizon(value=5, strictly=False), None)
        """
        coordinator = self._coordinator
        with coordinator.looking():
            table = coordinator.program.tables.get(stream)
            if table is None or column not in table.schema.names:
                return None
            at = table.schema.names.index(column)
            code = coordinator.horizon_history.bound(stream, at, self.epoch)
            return None if code is None else self._horizon(table, at, code)

    def _horizon(self, table: Table, column: int, code: int) -> Horizon:
        ordered = table.promises.ordered
        strictly = ordered is not None and ordered.column == column and ordered.strictly
        return Horizon.of(code, table.schema.types[column], strictly, self._coordinator.dictionary)

    def is_closed(self, stream: str, key: Sequence[Any]) -> bool:
        """Return whether no row with this key, in the order of `closes`, comes any more.

        >>> import whence
        >>> db = whence.open()
        >>> _ = db.execute("CREATE STREAM s (game TEXT, kind TEXT) WITH (closes = 'game when kind = ''end''')")
        >>> _ = db.insert("s", [("A", "goal"), ("A", "end"), ("B", "goal")])
        >>> horizons = db._coordinator.horizons()
        >>> horizons.is_closed("s", ["A"]), horizons.is_closed("s", ["B"])
        (True, False)
        """
        coordinator = self._coordinator
        with coordinator.looking():
            table = coordinator.program.tables.get(stream)
            if table is None or table.promises.closes is None:
                return False
            codes = _known_key(key, table.closed_keys.schema, coordinator.dictionary)
            if codes is None or not coordinator.catalog.flow.tables[closed_name(stream)].relation.counts(codes)[0]:
                return False
            later, complete = coordinator.horizon_history.closed_since(stream, self.epoch)
            return complete and not any(among(codes, keys)[0] for keys in later)

    def closed_keys(self, stream: str) -> list[tuple[Any, ...]]:
        """Return all keys of a stream that are closed as of now."""
        coordinator = self._coordinator
        with coordinator.looking():
            table = coordinator.program.tables[stream]
            if table.promises.closes is None:
                return []
            rows = coordinator.catalog.flow.tables[closed_name(stream)].contents().rows
            return to_tuples(rows, table.closed_keys.schema, coordinator.dictionary)

    def changed_since(self, epoch: int) -> HorizonChanges:
        """Return what was established after an earlier epoch, up to this one."""
        coordinator, history = self._coordinator, self._coordinator.horizon_history
        horizons: dict[tuple[str, str], Horizon] = {}
        closed: dict[str, list[tuple[Any, ...]]] = {}
        complete = True
        with coordinator.looking():
            for name, table in coordinator.program.tables.items():
                if table.stream is None or not table.promises.follows_order:
                    continue
                ordered = table.promises.ordered
                if ordered is not None:
                    now, before = (history.bound(name, ordered.column, at) for at in (self.epoch, epoch))
                    if now is not None and now != before:
                        horizons[name, table.schema.names[ordered.column]] = self._horizon(table, ordered.column, now)
                if table.promises.closes is not None:
                    keys, all_of_them = history.closed_since(name, epoch)
                    later, _ = history.closed_since(name, self.epoch)
                    keys, complete = keys[: len(keys) - len(later)], complete and all_of_them
                    if keys:
                        schema = table.closed_keys.schema
                        closed[name] = to_tuples(np.concatenate(keys), schema, coordinator.dictionary)
        return HorizonChanges(horizons, closed, complete)


def _known_key(key: Sequence[Any], schema: Schema, dictionary: Dictionary) -> Codes | None:
    """Return the codes of a key; None if it has a value that no row has."""
    words, codes = Dictionary(), list[int]()
    for value, type in zip(key, schema.types, strict=True):
        try:
            code = encode_value(value, type, words if type.needs_dictionary else dictionary)
        except DataError:
            return None
        found = words.translated(code, type, dictionary) if type.needs_dictionary else code
        if found is None:
            return None
        codes.append(found)
    return np.array([codes], np.int64)
