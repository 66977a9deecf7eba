"""Lookup caches: which rows from outside an epoch needs, which of them are fetched, and which stay.

A lookup is a table whose rows are fetched by key. Views join streams with it (`engine/streams/outside_lookup.py`), and
say after a run which keys they asked for. Where rows are missing, the run is undone, they are fetched, and the epoch is
run again with them among its changes. So fetched rows are changes of a table like any others: they are in the log and
in images, go to partitions, are undone with their epoch, and a replay calls nobody. Nothing is fetched with the state
lock held, but for dry runs.

Which rows stay is decided by the references in their order (`engine/streams/windows/cached_keys.py`). The rows of an
epoch are all there while it runs; those that are not kept leave at the beginning of the next one. What is known of keys
is not stored: after reopening, the rows that are there are kept, as if each had been referred to once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.engine.streams.windows.cached_keys import CachedKeys
from whence.engine.streams.windows.eviction_tuner import has_numbers
from whence.engine.streams.windows.kept_rows import rows_within
from whence.io.rows import encode, to_tuples
from whence.model.codes import Codes
from whence.model.errors import CatalogError, DataError, FetchError
from whence.model.types import Schema
from whence.plan.algebra.program import Table
from whence.runtime.lookups.fetching import Fetcher

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


class UnansweredError(Exception):
    """A run has asked for rows from outside that are not here: their keys, by lookup."""

    def __init__(self, keys: Mapping[str, Codes]) -> None:
        super().__init__(f"rows of {', '.join(keys)} are missing")
        self.keys = keys


def unanswered(asked: Mapping[str, Codes]) -> dict[str, Codes]:
    """Return the keys that were asked for and were not there, in the order in which they first were."""
    found = {}
    for name, rows in asked.items():
        missing = rows[rows[:, 2] == 0]
        if len(missing):
            _, first = np.unique(missing[:, 1], return_index=True)
            found[name] = missing[np.sort(first), 1]
    return found


@dataclass
class Counts:
    """What a lookup has done since the database was opened."""

    hits: int = 0
    misses: int = 0
    failures: int = 0
    seconds: float = 0.0
    error: str | None = None  # of the last call, if it failed


@dataclass
class LookupCache:
    """One lookup: its table, which of its keys are kept, and those whose rows have yet to leave."""

    table: Table
    restarts: int  # of the coordinator, when it was made
    keys: CachedKeys
    leaving: set[int] = field(default_factory=set)

    def refer(self, keys: Codes) -> None:
        """Take in references, in their order."""
        _, evicted = self.keys.refer(keys)
        self.leaving.difference_update(keys.tolist())
        self.leaving.update(evicted.tolist())


class LookupCaches:
    """The lookups of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._fetchers: dict[str, Fetcher] = {}
        self._caches: dict[str, LookupCache] = {}
        self._counts: dict[str, Counts] = {}

    # -- what there is -----------------------------------------------------------------------------------------------

    def fetch_by(self, name: str, fetcher: Fetcher) -> None:
        """Fetch the rows of a lookup by a function from now on."""
        self._fetchers[name] = fetcher

    def table(self, name: str) -> Table:
        """Return the table of a lookup."""
        table = self._coordinator.table_of(name)
        if table.lookup is None:
            raise CatalogError(f'"{name}" is no lookup: its rows are here, not outside')
        return table

    def _cache(self, name: str) -> LookupCache:
        """Return a lookup, with the keys of the rows that are there. With a lock held."""
        coordinator = self._coordinator
        table, restarts = coordinator.program.tables[name], coordinator.restarts
        found = self._caches.get(name)
        if found is None or found.table != table or found.restarts != restarts:
            limit, at = table.lookup, table.key[0]
            assert limit is not None
            columns = len(table.schema)
            capacity = limit.rows if limit.nbytes is None else rows_within(limit.nbytes, columns)
            keys = CachedKeys(capacity or 1, limit, has_numbers(table.schema.types[at]))
            found = self._caches[name] = LookupCache(table, restarts, keys)
            found.refer(coordinator.catalog.flow.tables[name].relation.scan().rows[:, at])
        return found

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return what metrics say of every lookup."""
        found = {}
        sizes = self._coordinator.catalog.backend.sizes()
        for name, table in self._coordinator.program.tables.items():
            if table.lookup is not None:
                counts = self._counts.get(name, Counts())
                found[name] = {"rows": sizes[name], **vars(counts)}
        return found

    def describe(self, name: str) -> list[str]:
        """Return what EXPLAIN says of a lookup."""
        table, counts = self.table(name), self._counts.get(name, Counts())
        assert table.lookup is not None
        lines = [
            f"lookup by {table.schema.names[table.key[0]]}: keeps {table.lookup.describe()} by {table.lookup.keep}"
        ]
        if name in self._caches:
            lines.append(self._cache(name).keys.describe())
        return [*lines, f"{counts.hits} hits, {counts.misses} misses"]

    # -- epochs ------------------------------------------------------------------------------------------------------

    def prepare(self, epoch: Epoch) -> Epoch:
        """Return an epoch in which rows leave, too, that are not kept any more."""
        tables = self._coordinator.program.tables
        for name in self._fetchers:
            if name not in tables or tables[name].lookup is None:
                continue
            cache = self._cache(name)
            if cache.leaving:
                keys = np.fromiter(cache.leaving, np.int64, len(cache.leaving))
                relation = self._coordinator.catalog.flow.tables[name].relation
                rows = relation.at_keys(cache.table.key, keys[:, None]).rows
                had = epoch.deltas.get(name)
                if had is not None:  # their time may be up
                    rows = rows[~np.isin(rows[:, cache.table.key[0]], had.rows[:, cache.table.key[0]])]
                if len(rows):
                    epoch = _changed(epoch, name, Batch(rows, np.full(len(rows), -1, np.int64)))
        return epoch

    def answer(self, epoch: Epoch, wanted: Mapping[str, Codes]) -> Epoch:
        """Return an epoch with the rows of some keys, which are fetched."""
        for name, keys in wanted.items():
            rows = self._fetched(name, keys)
            coming = Batch(rows, np.ones(len(rows), np.int64))
            had = epoch.deltas.get(name)
            epoch = _changed(epoch, name, coming)
            if had is not None and self._coordinator.program.tables[name].lifetime is not None:
                again = rows[~_is_in(rows, epoch.deltas[name].rows)] if name in epoch.deltas else rows
                if len(again):  # they were to expire, and are as they were
                    epoch = replace(epoch, refreshed={**epoch.refreshed, name: again})
        return epoch

    def _fetched(self, name: str, codes: Codes) -> Codes:
        """Return the rows of some keys, from outside."""
        table, words = self._coordinator.program.tables[name], self._coordinator.dictionary
        at = table.key[0]
        columns = table.schema.columns
        others = Schema((*columns[:at], *columns[at + 1 :]))
        keys = [key for (key,) in to_tuples(codes[:, None], Schema((columns[at],)), words)]
        counts = self._counts.setdefault(name, Counts())
        start = time.perf_counter()
        try:
            fetcher = self._fetchers.get(name)
            if fetcher is None:
                raise FetchError(
                    name, keys[0], "no function is known here that fetches it: call db.create_lookup again"
                )
            values = fetcher.fetch(name, keys, others)
            cells = self._encoded(name, keys, values, others)
        except FetchError as error:
            counts.failures += 1
            counts.error = str(error)
            raise
        finally:
            counts.seconds += time.perf_counter() - start
        counts.error = None
        return np.ascontiguousarray(np.insert(cells, at, codes, axis=1))

    def _encoded(self, name: str, keys: list[Any], values: list[tuple[Any, ...]], columns: Schema) -> Codes:
        if not len(columns):
            return np.empty((len(keys), 0), np.int64)
        words = self._coordinator.dictionary
        try:
            return encode(values, columns, words, name)
        except DataError:
            for key, value in zip(keys, values, strict=True):
                try:
                    encode([value], columns, words, name)
                except DataError as error:
                    raise FetchError(name, key, str(error).partition("column ")[2] or str(error)) from error
            raise

    def note(self, epoch: Epoch, asked: Mapping[str, Codes]) -> None:
        """Take note of an epoch that was committed, and of what its views have asked for."""
        for name, cache in self._caches.items():
            delta = epoch.deltas.get(name)
            if delta is not None and cache.leaving:
                cache.leaving.difference_update(delta.rows[delta.ann < 0, cache.table.key[0]].tolist())
        for name, rows in asked.items():
            cache, delta = self._cache(name), epoch.deltas.get(name)
            fetched = int((delta.ann > 0).sum()) if delta is not None else 0
            counts = self._counts.setdefault(name, Counts())
            counts.misses += fetched
            counts.hits += len(rows) - fetched
            cache.refer(rows[np.argsort(rows[:, 0], kind="stable"), 1])

    # -- the outside has changed -------------------------------------------------------------------------------------

    def refresh(self, name: str, keys: Iterable[Any] | None) -> int:
        """Forget rows, all or those of some keys; they are fetched when they are asked for again. Return how many."""
        coordinator = self._coordinator
        coordinator.check_not_writing("refresh_lookup")
        table = self.table(name)
        at = table.key[0]
        codes = None
        if keys is not None:
            given = [keys] if isinstance(keys, str) else keys
            codes = encode([(key,) for key in given], Schema((table.schema.columns[at],)), coordinator.dictionary, name)
        with coordinator.feeding(), coordinator.transaction() as writes:
            relation = coordinator.catalog.flow.tables[name].relation
            rows = (
                relation.scan().rows if codes is None else relation.at_keys(table.key, np.unique(codes)[:, None]).rows
            )
            return writes.table(name).delete(rows.copy()) if len(rows) else 0


def _changed(epoch: Epoch, name: str, more: Batch) -> Epoch:
    """Return an epoch that changes a table by more."""
    had = epoch.deltas.get(name)
    both = more if had is None else consolidate(concat([had, more], more.rows.shape[1]))
    deltas = {**epoch.deltas, name: both}
    if not len(both):
        del deltas[name]
    return replace(epoch, deltas=deltas)


def _is_in(rows: Codes, others: Codes) -> Any:
    found = {row.tobytes() for row in others}
    return np.array([row.tobytes() in found for row in rows], bool)
