"""What must be true of a run of `faults.py`, by what its processes wrote down and what the folder has.

1. Every follower ends with the rows of the last epoch, as DuckDB computes them from the base rows.
2. Every write that was acknowledged is in once, and none twice; what was not acknowledged is in once or not at all.
3. Every update was true at its position: the rows that it left are the query's as of that epoch, of all parts as of
   the same. An update is the rows before it, less what went, plus what came.
4. Positions of a subscription only grow, unless its process was started anew without a position.
5. With `every_change`, no change lies between two updates, but where the loss of some is told.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whence
from tests.serving.follower import digest, read_lines, tuples
from tests.serving.world import FOLLOWED, LINKS, TABLES, Row, Truth, items_of, ticks_of

Line = dict[str, Any]


class PastStates:
    """The base rows as of past epochs, and what queries are by them."""

    def __init__(self, db: whence.Database) -> None:
        self._db, self._truth = db, Truth()
        self._loaded: int | None = None
        self._known: dict[tuple[int, str], Counter[Row]] = {}

    def rows(self, epoch: int, query: str) -> Counter[Row]:
        """Return the rows of a query as of an epoch."""
        found = self._known.get((epoch, query))
        if found is None:
            if query == "shifty":  # which is another view from time to time: as the database has it
                past = self._db.at(epoch)
                found = Counter(past["shifty"].rows)
            else:
                self._load(epoch)
                found = self._truth.rows(query)
            self._known[epoch, query] = found
        return found

    def _load(self, epoch: int) -> None:
        if self._loaded != epoch:
            past = self._db.at(epoch)
            self._truth.load({name: past[name].rows for name in TABLES})
            self._loaded = epoch

    def close(self) -> None:
        self._truth.close()


@dataclass
class Seen:
    """What one subscription saw in one life of its process: since it began, or since it began anew."""

    file: Path
    name: str
    updates: list[Line] = field(default_factory=list)
    final: Line | None = None
    resumed: bool = False

    def __str__(self) -> str:
        return f"{self.name} of {self.file.name}"


def seen_in(path: Path) -> list[Seen]:
    """Read what a follower wrote down."""
    found: list[Seen] = []
    now: dict[str, Seen] = {}
    for line in read_lines(path):
        if "begun" in line:
            now = {name: seen for name, seen in now.items() if name in line["resumed"]}
            continue
        name = line["s"]
        if "error" in line:
            assert name == "shifty", line
            assert "shifty" in line["message"], line
            now.pop(name, None)
            continue
        if name not in now:
            now[name] = Seen(path, name)
            found.append(now[name])
        if "at" in line:
            now[name].updates.append(line)
        else:
            now[name].final = line
    return found


def check_run(
    database: Path, publishers: Iterable[Path], followers: Iterable[Path], last: whence.Position, sample: int
) -> int:
    """Check everything, with as many past epochs as `sample` says; return how many updates there were."""
    with whence.open(database, read_only=True) as db:
        assert (db.position.history, db.epoch) == (last.history, last.epoch)
        check_writes(db, publishers)
        past = PastStates(db)
        everything = [seen for path in followers for seen in seen_in(path)]
        for seen in everything:
            check_order(seen)
        check_ends(past, everything, last)
        check_truth(past, everything, sample)
        past.close()
        return sum(len(seen.updates) for seen in everything)


# -- writes ------------------------------------------------------------------------------------------------------------


def check_writes(db: whence.Database, publishers: Iterable[Path]) -> None:
    """Check that what was acknowledged is in once, and nothing is in twice."""
    items, ticks = Counter(db["item"].rows), Counter(db["tick"].rows)
    moves, tried_rows = Counter(db["move"].rows), Counter[Row]()
    for who, path in enumerate(publishers, 1):
        lines = read_lines(path)
        tried = {tuple(line["try"]) for line in lines if "try" in line}
        done = {tuple(line["done"]) for line in lines if "done" in line}
        assert done, f"{path.name}: nothing was done"
        for kind, number in sorted(tried):
            acknowledged = (kind, number) in done
            if kind == "move":
                _check_count(moves[who, number], acknowledged, False, f"move {number} of {who}")
            elif kind == "insert":
                gone = ("delete", number) in tried
                rows, there = (ticks_of, ticks) if number % 3 == 0 else (items_of, items)
                counts = {there[row] for row in rows(who, number)}
                assert len(counts) == 1, f"insert {number} of {who} is in by half: {counts}"
                if gone and ("delete", number) in done:
                    assert counts == {0}, f"insert {number} of {who} was deleted and is there"
                else:
                    _check_count(counts.pop(), acknowledged, gone, f"insert {number} of {who}")
                tried_rows.update(rows(who, number))
    strange = (items + ticks) - tried_rows
    assert not strange, f"rows that nobody wrote, or that are there twice: {list(strange)[:5]}"
    assert max(moves.values()) == 1


def _check_count(count: int, acknowledged: bool, gone: bool, what: str) -> None:
    allowed = {1} if acknowledged and not gone else {0, 1}
    assert count in allowed, f"{what} is there {count} times, acknowledged: {acknowledged}"


# -- followers ---------------------------------------------------------------------------------------------------------


def epoch_of(line: Line) -> int:
    return whence.Position.parse(line["at"]).epoch


def check_order(seen: Seen) -> None:
    """Check that positions only grow, and that each update is the difference to the one before."""
    rows: list[Counter[Row]] | None = None
    before: Line | None = None
    for line in seen.updates:
        if before is not None:
            assert line["at"].split(".")[0] == before["at"].split(".")[0], f"{seen}: another history"
            back = epoch_of(line) < epoch_of(before)
            assert not back, f"{seen} went back from {before['at']} to {line['at']}"
        if rows is None:
            rows = [Counter() for _ in line["parts"]]
            assert line["restarted"] == "begin", f"{seen} began with {line}"
        if not line["passed"]:
            for had, part in zip(rows, line["parts"], strict=True):
                had.subtract(Counter(tuples(part["went"])))
                had.update(Counter(tuples(part["came"])))
                assert min(had.values(), default=0) >= 0, f"{seen}: at {line['at']} a row went that was not there"
                assert digest((+had).elements()) == part["rows"], f"{seen}: at {line['at']} came and went are not it"
            check_changed(seen, line)
            if seen.name == "together":
                check_together(seen, line, rows)
        before = line


def check_together(seen: Seen, line: Line, rows: list[Counter[Row]]) -> None:
    """Check that all parts of an update are as of one epoch: the first one has the items that the others count."""
    prices: dict[str, list[int]] = {}
    for _, _, kind, price in rows[0].elements():
        prices.setdefault(kind, []).append(price)
    everything = [price for some in prices.values() for price in some]
    counted = Counter([(len(everything), sum(everything) if everything else None)])
    totals = Counter((kind, len(some), sum(some), max(some)) for kind, some in prices.items())
    links = Counter([(LINKS,)])
    assert [+part for part in rows[1:]] == [counted, totals, links], f"{seen}: parts of two epochs at {line['at']}"


def check_changed(seen: Seen, line: Line) -> None:
    """Check what `changed` says, with `key=`."""
    if "changed" in line and not line["restarted"]:
        [part] = line["parts"]
        assert Counter(tuples(part["went"])) == Counter(tuple(old) for _, old, _ in line["changed"] if old), seen
        assert Counter(tuples(part["came"])) == Counter(tuple(new) for _, _, new in line["changed"] if new), seen


def check_ends(past: PastStates, everything: list[Seen], last: whence.Position) -> None:
    """Check that every follower ended with the rows of the last epoch."""
    ended = {(seen.file, seen.name) for seen in everything if seen.final is not None}
    assert ended == {(seen.file, seen.name) for seen in everything}, "some did not come to an end"
    assert {name for _, name in ended} == set(FOLLOWED)
    for seen in everything:
        if seen.final is None:
            continue
        assert whence.Position.parse(seen.final["final"]).epoch == last.epoch, f"{seen} did not reach the end"
        for query, rows in zip(FOLLOWED[seen.name].texts, seen.final["rows"], strict=True):
            _compare(seen, f"at the end, {query}", Counter(tuples(rows)), past.rows(last.epoch, query))


def check_truth(past: PastStates, everything: list[Seen], sample: int) -> None:
    """Check that updates were true at their positions: those of as many epochs as `sample` says."""
    told: dict[int, list[tuple[Seen, Line]]] = {}
    for seen in everything:
        for line in seen.updates:
            told.setdefault(epoch_of(line), []).append((seen, line))
    epochs = sorted(told)
    if len(epochs) > sample:
        dice = random.Random(len(epochs))
        restarted = [epoch for epoch in epochs if any(line["restarted"] for _, line in told[epoch])]
        first = dice.sample(restarted, min(len(restarted), sample // 2))
        epochs = sorted({*first, *dice.sample(epochs, sample - len(first))})
    for epoch in epochs:
        for seen, line in told[epoch]:
            for query, part in zip(FOLLOWED[seen.name].texts, line["parts"], strict=True):
                wanted = past.rows(epoch, query)
                if digest(wanted.elements()) != part["rows"]:
                    raise AssertionError(f"{seen}: {query} was not so at {line['at']}: {part}; it was {dict(wanted)}")
        for seen, line in told[epoch]:
            check_witnesses(seen, line, past.rows(epoch, "item"))
    some = set(epochs[::2])  # each needs one more epoch
    for seen, before, line in _each_changes(everything):
        if epoch_of(line) in some:
            for query, part in zip(FOLLOWED[seen.name].texts, before["parts"], strict=True):
                wanted = past.rows(epoch_of(line) - 1, query)
                assert digest(wanted.elements()) == part["rows"], f"{seen}: a change before {line['at']} was not told"


def check_witnesses(seen: Seen, line: Line, items: Counter[Row]) -> None:
    """Check that each witness of a row that came was there in that epoch, and makes the row."""
    for (kind, price), witnesses in line.get("why", ()):
        assert witnesses, f"{seen}: no witness of {kind}, {price} at {line['at']}"
        for [[table, row]] in witnesses:
            assert table == "item"
            assert (row["kind"], row["price"]) == (kind, price), f"{seen}: {row} at {line['at']}"
            assert tuple(row[name] for name in ("id", "who", "kind", "price")) in items, f"{seen}: {row} was not there"


def _each_changes(everything: list[Seen]) -> Iterator[tuple[Seen, Line, Line]]:
    """Yield the updates of subscriptions to every change, with the one before each."""
    for seen in everything:
        if FOLLOWED[seen.name].options.get("every_change"):
            for before, line in zip(seen.updates, seen.updates[1:], strict=False):
                if not line["restarted"] and not line["passed"]:
                    yield seen, before, line


def _compare(seen: Seen, what: str, got: Counter[Row], wanted: Counter[Row]) -> None:
    if got != wanted:
        extra, missing = list((got - wanted).elements())[:5], list((wanted - got).elements())[:5]
        raise AssertionError(f"{seen}: {what}: too many {extra}, missing {missing}")
