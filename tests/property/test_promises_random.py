"""Random rows against promises: a brute-force oracle says row by row what is accepted, after every step.

Steps insert all or nothing, or what fits; they nest savepoints, advance, suppose, take images and open the database
again, in other partitions, too. The stream keeps its last row only, so that nothing can be read off the rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import examples
from whence.model.errors import DataError

Row = tuple[Any, ...]
KEYS, KINDS = ["A", "B", None], ["go", "end", None]
row = st.tuples(
    st.integers(0, 9),
    st.sampled_from(KEYS),
    st.integers(0, 1),
    st.sampled_from(KINDS),
    st.sampled_from([0, 3, 4, None]),
)
rows = st.lists(row, max_size=5)
rising = rows.map(lambda found: sorted(found, key=lambda row: row[0]))
either = st.one_of(rows, rising)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), either),
        st.tuples(st.just("skip"), either),
        st.tuples(st.just("transaction"), st.lists(st.tuples(either, st.booleans()), max_size=3)),
        st.tuples(st.just("what_if"), either),
        st.tuples(st.just("advance"), st.integers(0, 9)),
        st.tuples(st.just("snapshot"), st.none()),
        st.tuples(st.just("reopen"), st.sampled_from([None, 1, 3])),
    ),
    max_size=12,
)


@dataclass
class Oracle:
    """What the promises have established, and how many rows came."""

    strictly: bool
    lowest: int = -1  # value that may come
    closed: frozenset[Row] = frozenset()
    accepted: int = 0
    epochs: list[tuple[int, frozenset[Row]]] = field(default_factory=list)

    def accepts(self, row: Row) -> bool:
        time, key, number, kind, value = row
        if value is not None and not 0 <= value <= 3:
            return False
        if time < self.lowest or (key, number) in self.closed:
            return False
        self.lowest = time + 1 if self.strictly else time
        if kind == "end":
            self.closed |= {(key, number)}
        self.accepted += 1
        return True

    def accepts_all(self, found: Iterable[Row]) -> bool:
        """Take all rows, or none."""
        before = replace(self)
        if all(self.accepts(row) for row in found):
            return True
        self.__dict__.update(before.__dict__)
        return False


class Run:
    """A database beside the oracle."""

    def __init__(self, folder: Path, strictly: bool) -> None:
        self.folder, self.oracle = folder, Oracle(strictly)
        self.db = whence.open(folder)
        self.db.execute(f"""
            CREATE STREAM s (t INT, k TEXT, n INT, kind TEXT, x INT CHECK (x BETWEEN 0 AND 3))
            WITH (retain = '1 rows', ordered = 't{" strictly" * strictly}', closes = 'k, n when kind = ''end''')
        """)
        self.compare()

    def step(self, what: str, given: Any) -> None:
        db, oracle = self.db, self.oracle
        match what:
            case "insert":
                self.try_insert(given)
            case "skip":
                assert db.insert("s", given, on_error="skip") == sum([oracle.accepts(row) for row in given])
            case "transaction":
                with db.transaction():
                    for found, fails in given:
                        before = replace(oracle)
                        try:
                            with db.transaction():
                                self.try_insert(found)
                                if fails:
                                    raise KeyError
                        except KeyError:
                            oracle.__dict__.update(before.__dict__)
            case "what_if":
                before = replace(oracle)
                if oracle.accepts_all(given):
                    db.what_if(insert={"s": given})
                else:
                    with pytest.raises(DataError, match="breaks the promise"):
                        db.what_if(insert={"s": given})
                oracle.__dict__.update(before.__dict__)
            case "advance":
                db.advance("s", given, on="t")
                oracle.lowest = max(oracle.lowest, given)
            case "snapshot":
                db.snapshot()
            case "reopen":
                db.close()
                self.db = whence.open(self.folder, partitions=given) if given else whence.open(self.folder)
        self.compare()

    def try_insert(self, found: list[Row]) -> None:
        if self.oracle.accepts_all(found):
            assert self.db.insert("s", found) == len(found)
        else:
            with pytest.raises(DataError, match=r"stream s, row \d+: .* breaks the promise"):
                self.db.insert("s", found)

    def compare(self) -> None:
        db, oracle = self.db, self.oracle
        horizons = inside.coordinator(db).horizons()
        horizon = horizons.of("s", "t")
        lowest = -1 if horizon is None else horizon.value + oracle.strictly
        assert lowest == oracle.lowest
        assert frozenset(horizons.closed_keys("s")) == oracle.closed
        assert len(horizons.closed_keys("s")) == len(oracle.closed)
        while len(oracle.epochs) <= db.epoch:
            oracle.epochs.append((oracle.lowest, oracle.closed))


@settings(max_examples=examples(60))
@given(steps, st.booleans())
def test_random_rows_are_accepted_as_the_promises_say(found: list[tuple[str, Any]], strictly: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "db", strictly)
        try:
            for what, given_ in found:
                run.step(what, given_)
        finally:
            run.db.close()


@settings(max_examples=examples(40))
@given(st.lists(either, max_size=10), st.booleans())
def test_horizons_as_of_an_epoch_never_know_more_than_it(found: list[list[Row]], strictly: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "db", strictly)
        for given_ in found:
            run.step("skip", given_)
        coordinator = inside.coordinator(run.db)
        for epoch, (lowest, closed) in enumerate(run.oracle.epochs):
            horizons = coordinator.horizons(epoch)
            horizon = horizons.of("s", "t")
            assert (-1 if horizon is None else horizon.value + strictly) == lowest
            keys = [(key, number) for key in KEYS for number in (0, 1)]
            assert {key for key in keys if horizons.is_closed("s", key)} == closed
            now = coordinator.horizons().changed_since(epoch)
            assert {key for keys in now.closed.values() for key in keys} == run.oracle.closed - closed
        run.db.close()
