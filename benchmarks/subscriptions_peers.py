"""Peers of `subscriptions_scale`: the same subscriptions, each event's affected ones found in another way.

| peer | how |
|---|---|
| NumPy | each event is compared with all subscriptions |
| rtree | join first: each row with the event's key is looked up in an R-tree of boxes |
| STRtree | the same in bulk, with shapely's packed tree |
| DuckDB | a batch of events is joined with the rows and the table of parameters |
| PostgreSQL | the same statement, with a GiST index of boxes |

All answer (event, subscription) pairs, each once; answers are compared before anything is timed. With `rows` they list
(event, subscription, row) instead, as many as are delivered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.common import installed

Numbers = NDArray[np.int64]
Pairs = Numbers | list[tuple[int, ...]]
Find = Callable[[Numbers, bool], Pairs]
"""From events, lines of (key, a), to pairs of an event's place and a subscription's id; or to all rows of these. The
answer is what the peer gives without Python work for each line, where it can."""


def numpy_peer(data: Numbers, subscriptions: Numbers) -> Find:
    """Compare each event with every subscription."""
    order = np.lexsort((data[:, 1], data[:, 0]))
    keys, values = data[order, 0], data[order, 1]
    ids, a_low, a_high, c_low, c_high = subscriptions.T.copy()

    def find(events: Numbers, rows: bool) -> Pairs:
        found = []
        for place, (key, a) in enumerate(events.tolist()):
            run = values[np.searchsorted(keys, key) : np.searchsorted(keys, key, side="right")]
            if len(run):
                next_one = np.searchsorted(run, c_low)
                holds = (next_one < len(run)) & (a_low <= a) & (a <= a_high)
                holds &= run[np.minimum(next_one, len(run) - 1)] <= c_high
                hit = ids[holds]
                if rows:
                    hit = np.repeat(hit, np.searchsorted(run, c_high[holds], side="right") - next_one[holds])
                found.append(np.column_stack((np.full(len(hit), place), hit)))
        return np.concatenate(found)

    return find


def rtree_peer(rows: Numbers, subscriptions: Numbers) -> Find | None:
    """Look each joined row up in an R-tree."""
    if not installed("rtree"):
        return None
    from rtree import index

    boxes = subscriptions[:, [1, 3, 2, 4]].tolist()
    ids = subscriptions[:, 0].tolist()
    tree = index.Index((id, tuple(box), None) for id, box in zip(ids, boxes, strict=True))
    by_key = _by_key(rows)

    def find(events: Numbers, rows: bool) -> Pairs:
        found: list[tuple[int, ...]] = [
            (place, id)
            for place, (key, a) in enumerate(events.tolist())
            for c in by_key.get(key, ())
            for id in tree.intersection((a, c, a, c))
        ]
        return found if rows else list(set(found))

    return find


def strtree_peer(rows: Numbers, subscriptions: Numbers) -> Find | None:
    """Look all joined rows of all events up at once."""
    if not installed("shapely"):
        return None
    import shapely

    ids = subscriptions[:, 0]
    tree = shapely.STRtree(shapely.box(*subscriptions[:, [1, 3, 2, 4]].T.astype(float)))
    by_key = _by_key(rows)

    def find(events: Numbers, rows: bool) -> Pairs:
        joined = [(place, a, c) for place, (key, a) in enumerate(events.tolist()) for c in by_key.get(key, ())]
        if not joined:
            return []
        places, a, c = np.array(joined, np.int64).T
        at, hit = tree.query(shapely.points(a.astype(float), c.astype(float)), predicate="intersects")
        found = np.column_stack((places[at], ids[hit]))
        return found if rows else np.unique(found, axis=0)

    return find


_ANSWERS = {False: "DISTINCT e.place, p.id", True: "e.place, p.id, r.c"}
_SQL = """
SELECT {answer} FROM event e JOIN r ON r.k = e.k
JOIN p ON {condition}
"""


def duckdb_peer(rows: Numbers, subscriptions: Numbers) -> Find:
    """Join a batch of events with the rows and the parameters."""
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": 1})
    connection.register("given_rows", _table(pa, rows[:, :2], "kc"))
    connection.register("given", _table(pa, subscriptions, ("id", "al", "ah", "cl", "ch")))
    connection.execute("CREATE TABLE r AS SELECT * FROM given_rows; CREATE TABLE p AS SELECT * FROM given")
    condition = "e.a BETWEEN p.al AND p.ah AND r.c BETWEEN p.cl AND p.ch"

    def find(events: Numbers, rows: bool) -> Pairs:
        numbered = np.column_stack((np.arange(len(events)), events))
        connection.register("event", _table(pa, numbered, ("place", "k", "a")))
        found = connection.execute(_SQL.format(answer=_ANSWERS[rows], condition=condition)).fetchnumpy()
        return np.column_stack(tuple(found.values()))

    return find


def postgres_peer(rows: Numbers, subscriptions: Numbers) -> tuple[Find, Callable[[], None]] | None:
    """The same in PostgreSQL, with a GiST index of boxes; and what stops the server."""
    from benchmarks.peers import postgres_peer as pg

    if pg.missing():
        return None
    import psycopg

    server = pg.PostgresServer(Path(tempfile.gettempdir()))
    server.open([])
    connection: Any = psycopg.connect(pg.address(server.port), autocommit=True)
    run = connection.execute
    run("CREATE TABLE r (k BIGINT, c BIGINT); CREATE TABLE p (id BIGINT, area BOX)")
    run("CREATE UNLOGGED TABLE event (place BIGINT, k BIGINT, a BIGINT)")
    with connection.cursor().copy("COPY r FROM STDIN") as copy:
        for row in rows[:, :2].tolist():
            copy.write_row(row)
    with connection.cursor().copy("COPY p FROM STDIN") as copy:
        for id, al, ah, cl, ch in subscriptions.tolist():
            copy.write_row((id, f"(({al},{cl}),({ah},{ch}))"))
    run("CREATE INDEX ON r (k); CREATE INDEX ON p USING gist (area); ANALYZE r; ANALYZE p")
    condition = "p.area @> box(point(e.a, r.c), point(e.a, r.c))"  # GiST has no `box @> point`

    def find(events: Numbers, rows: bool) -> Pairs:
        run("TRUNCATE event")
        with connection.cursor().copy("COPY event FROM STDIN") as copy:
            for place, (key, a) in enumerate(events.tolist()):
                copy.write_row((place, key, a))
        found: list[tuple[int, ...]] = run(_SQL.format(answer=_ANSWERS[rows], condition=condition)).fetchall()
        return found

    def stop() -> None:
        connection.close()
        server.close()

    return find, stop


def _by_key(rows: Numbers) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for key, c, *_ in rows.tolist():
        found.setdefault(key, []).append(c)
    return found


def _table(pa: Any, numbers: Numbers, names: Any) -> Any:
    return pa.table({name: np.ascontiguousarray(numbers[:, at]) for at, name in enumerate(names)})
