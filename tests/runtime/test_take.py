"""Raw rows and a table: `WriteSet.take` and `resolve_inputs` against a model that goes through them one by one."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import examples
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.epoch import Epoch
from whence.engine.exchange.kernels.routing import route
from whence.model.codes import NULL, Codes
from whence.plan.algebra.program import owed_name
from whence.runtime.writing.inputs import Raw
from whence.runtime.writing.tables import Early, Unmatched
from whence.runtime.writing.transaction import Transaction

OWED = owed_name("t")
SECOND = 1_000_000
TTL = 10 * SECOND
SQL = {
    "bag": "CREATE TABLE t (a INT, b INT)",
    "keyed": "CREATE TABLE t (a INT PRIMARY KEY, b INT)",
    "set": "CREATE TABLE t (a INT, b INT) WITH (ttl = '10 s')",
    "keyed set": "CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (ttl = '10 s')",
    "dated": "CREATE TABLE t (a INT, b TIMESTAMP) WITH (ttl = '10 s', ttl_column = 'b')",
    "keyed dated": "CREATE TABLE t (a INT PRIMARY KEY, b TIMESTAMP) WITH (ttl = '10 s', ttl_column = 'b')",
}
Step = tuple[int, list[tuple[int, int, int]], Early]  # seconds since the step before; rows (a, b, sign); if early
STEPS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([1, 1, -1])), max_size=12),
        st.sampled_from(["ignore", "hold", "hold"]),
    ),
    max_size=6,
)


class Model:
    """A table by the book: what is there, by what identifies it, with its row and its deadline; what it owes, how often
    and until when. A bag is a count for each row, below zero where it is owed."""

    def __init__(self, kind: str):
        self.kind = kind
        self.bag: Counter[tuple[int, int]] = Counter()
        self.rows: dict[Any, tuple[tuple[int, int], int | None]] = {}
        self.debts: dict[tuple[int, int], tuple[int, int | None]] = {}

    def step(self, now: int, rows: list[tuple[int, int, int]], early: Early = "ignore") -> Unmatched:
        self._expire(now)
        missed = [self._one(now, (a, b), sign, early) for a, b, sign in rows]
        self._expire(now)  # rows that came with their time up
        return Unmatched(missed.count("ignore"), missed.count("hold"))

    def _one(self, now: int, row: tuple[int, int], sign: int, early: Early) -> Early | None:
        """What became of it, if it was an early deletion."""
        if self.kind == "bag":
            missed = early if sign < 0 and self.bag[row] <= 0 else None
            self.bag[row] += 0 if missed == "ignore" else sign
            return missed
        name = row[0] if "keyed" in self.kind else row
        deadline = row[1] + TTL if "dated" in self.kind else now + TTL if "set" in self.kind else None
        owed, _ = self.debts.get(row, (0, None))
        if sign > 0:
            self.rows.pop(name, None)
            if not owed:
                self.rows[name] = (row, deadline)
            else:
                self.debts[row] = (owed - 1, deadline)
        elif self.rows.pop(name, None) is None:
            if early == "hold":
                self.debts[row] = (1 if deadline is not None else owed + 1, deadline)
            return early
        return None

    def _expire(self, now: int) -> None:
        self.rows = {name: (row, end) for name, (row, end) in self.rows.items() if end is None or end > now}
        self.debts = {row: (n, end) for row, (n, end) in self.debts.items() if n and (end is None or end > now)}

    @property
    def contents(self) -> Counter[tuple[int, int]]:
        return +self.bag if self.kind == "bag" else Counter(row for row, _ in self.rows.values())

    @property
    def owed(self) -> Counter[tuple[int, int]]:
        return -self.bag if self.kind == "bag" else Counter({row: n for row, (n, _) in self.debts.items()})


def opened(kind: str) -> Any:
    db = whence.open(clock=lambda: 0)
    db.execute(SQL[kind])
    return inside.coordinator(db)


def raw_of(rows: list[tuple[int, int, int]]) -> Raw:
    cells = np.array(rows, np.int64).reshape(-1, 3)
    return np.ascontiguousarray(cells[:, :2]), np.ascontiguousarray(cells[:, 2])


def dated(kind: str, now: int, rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The rows with times around now in the place of small numbers."""
    if "dated" not in kind:
        return rows
    return [(a, now - 12 * SECOND + b * 8 * SECOND, sign) for a, b, sign in rows]


def settled(runtime: Any, now: int, raw: Raw, early: Early = "ignore") -> tuple[Epoch, Unmatched]:
    catalog = runtime.catalog
    epoch = Epoch(runtime.epoch + 1, now, {}, early={"t": early})
    found, missed = catalog.backend.resolve(epoch, {"t": raw})
    return found, missed["t"]


def contents(runtime: Any, name: str = "t") -> Counter[tuple[int, ...]]:
    batch = runtime.catalog.flow.tables[name].contents()
    return Counter({tuple(row): count for row, count in zip(batch.rows.tolist(), batch.ann.tolist(), strict=True)})


def deadlines(runtime: Any, name: str = "t") -> dict[tuple[int, ...], int]:
    relation = runtime.catalog.flow.tables[name].relation
    ids = relation.ids()
    return dict(zip(map(tuple, relation.rows[ids].tolist()), relation.acc[ids, 0].tolist(), strict=True))


@pytest.mark.parametrize("kind", SQL)
@given(steps=STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_rows_are_taken_as_if_one_by_one(kind: str, steps: list[Step]) -> None:
    runtime, model, now = opened(kind), Model(kind), 100 * SECOND
    for pause, small, early in steps:
        now += pause * SECOND
        rows = dated(kind, now, small)
        epoch, missed = settled(runtime, now, raw_of(rows), early)
        assert missed == model.step(now, rows, early)
        runtime.replay(epoch)
        assert contents(runtime) == model.contents
        assert contents(runtime, OWED) == model.owed
        if kind in ("set", "keyed set"):
            assert deadlines(runtime) == dict(model.rows.values())
            assert deadlines(runtime, OWED) == {row: end for row, (_, end) in model.debts.items()}


@pytest.mark.parametrize("kind", SQL)
@given(steps=STEPS, cut=st.integers(0, 12))
@settings(max_examples=examples(40), deadline=None)
def test_partitions_together_change_what_the_whole_does(kind: str, steps: list[Step], cut: int) -> None:
    """Also if the rows come in two parts."""
    whole, shares, now = opened(kind), [opened(kind) for _ in range(3)], 100 * SECOND
    cols = np.array([0] if "keyed" in kind else [0, 1])
    for pause, small, early in steps:
        now += pause * SECOND
        rows, signs = raw_of(dated(kind, now, small))
        epoch, missed = settled(whole, now, (rows, signs), early)
        targets = route(rows, cols, 3)
        own = [targets == p for p in range(3)]
        found = [settled(share, now, (rows[mine], signs[mine]), early) for share, mine in zip(shares, own, strict=True)]
        assert missed == reduce(Unmatched.plus, (vain for _, vain in found))
        for name, table in product(("deltas", "refreshed"), ("t", OWED)):
            parts = [getattr(part, name).get(table) for part, _ in found]
            assert changes(getattr(epoch, name).get(table)) == sum(map(changes, parts), Counter())
        if kind in ("bag", "keyed"):
            writes = Transaction(whole.open_table)
            pending = writes.table("t")
            vain = pending.take(rows[:cut], signs[:cut], early).plus(pending.take(rows[cut:], signs[cut:], early))
            assert vain == missed
            for table in ("t", OWED):
                assert changes(writes.deltas(epoch.time).get(table)) == changes(epoch.deltas.get(table))
        whole.replay(epoch)
        for share, (part, _) in zip(shares, found, strict=True):
            share.replay(part)


def changes(of: Any) -> Counter[tuple[Any, ...]]:
    """A delta or refreshed rows, in no order; each change counts once."""
    if of is None:
        return Counter()
    if isinstance(of, np.ndarray):
        return Counter(map(tuple, of.tolist()))
    of = consolidate(concat([of], of.rows.shape[1]))
    return Counter((*row, change) for row, change in zip(of.rows.tolist(), of.ann.tolist(), strict=True))


def take(runtime: Any, rows: list[tuple[int, int, int]]) -> tuple[int, Codes, Codes]:
    pending = runtime.open_table("t")
    missed = pending.take(*raw_of(rows)).passed
    delta = consolidate(pending.batch())
    return missed, delta.rows, delta.ann


def test_nothing_is_looked_up_that_only_comes() -> None:
    missed, rows, ann = take(opened("bag"), [(1, 1, 1), (2, 1, 1), (1, 1, 1)])
    assert (missed, rows.tolist(), ann.tolist()) == (0, [[1, 1], [2, 1]], [2, 1])


def test_a_deletion_before_the_insertion_finds_nothing() -> None:
    assert take(opened("bag"), [(1, 1, -1), (1, 1, 1)])[0] == 1
    assert take(opened("bag"), [(1, 1, 1), (1, 1, -1)])[0] == 0


def test_a_key_is_deleted_whatever_else_the_row_says() -> None:
    runtime = opened("keyed")
    runtime.replay(settled(runtime, SECOND, raw_of([(1, 7, 1), (2, 7, 1)]))[0])
    runtime.replay(settled(runtime, SECOND, raw_of([(1, 8, -1), (3, 0, -1)]))[0])
    assert contents(runtime) == {(2, 7): 1}


def test_null_where_there_must_be_none() -> None:
    runtime = opened("keyed")
    with pytest.raises(whence.DataError, match="column a: NULL in a NOT NULL column"):
        take(runtime, [(1, 1, 1), (NULL, 1, 1)])
    assert take(runtime, [(NULL, 1, -1)])[0] == 1


def test_exact_changes_and_rows_do_not_meet() -> None:
    runtime = opened("bag")
    delta, _ = settled(runtime, SECOND, raw_of([(1, 1, 1)]))
    with pytest.raises(ValueError, match="exact changes and others"):
        runtime.catalog.backend.resolve(delta, {"t": raw_of([])})
