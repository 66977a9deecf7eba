"""What is served in these tests, what is subscribed to, and what is true of it: by DuckDB, from the base rows alone.

Rows are made of the number of the write that brings them, so that a writer that was killed makes the same rows again,
and any test can say which rows a write had.

| relation | what it tests |
|---|---|
| `item` | numbered inserts: a bag without a key, so that a row that came twice is there twice |
| `link`, `move` | transactions: each replaces a link and notes that in `move`, so there are always as many links |
| `reach`, `totals`, `best` | recursion, aggregates, the best few |
| `tick`, `sums` | a stream, and windows over it |
| `shifty` | a view that is replaced and dropped while it is subscribed to |
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

Row = tuple[Any, ...]
Tables = Mapping[str, Sequence[Row]]
KINDS = ("ant", "bee", "cat", "dog")
LINKS = 12
WINDOW = 4
TABLES = {
    "item": "id BIGINT, who INT, kind TEXT, price INT",
    "link": "id INT, a INT, b INT",
    "move": "who INT, n BIGINT",
    "tick": "who INT, n BIGINT, amount INT",
}
SHIFTY = (
    "SELECT kind, MIN(price) AS low FROM item GROUP BY kind",
    "SELECT kind, MAX(price) AS high, COUNT(*) AS n FROM item GROUP BY kind",
    "SELECT who, id FROM item WHERE price < 10",
)
VIEWS = {
    "reach": "SELECT a, b FROM link UNION SELECT r.a, l.b FROM reach r JOIN link l ON r.b = l.a",
    "totals": "SELECT kind, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS high FROM item GROUP BY kind",
    "best": "SELECT price, id, kind FROM item ORDER BY price DESC, id LIMIT 5",
    "sums": "SELECT who, COUNT(*) AS n, SUM(amount) AS amount "
    f"FROM slide(tick, rows => {WINDOW}, every => {WINDOW}, by => who) GROUP BY who",
}
SETUP = f"""
CREATE TABLE item ({TABLES["item"]});
CREATE TABLE link (id INT PRIMARY KEY, a INT, b INT);
CREATE TABLE move ({TABLES["move"]});
CREATE STREAM tick ({TABLES["tick"]});
{"".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items())}
CREATE VIEW shifty AS {SHIFTY[0]};
"""


EXPLAINED = "SELECT DISTINCT kind, price FROM item WHERE price > 90"


@dataclass(frozen=True)
class Follows:
    """A subscription: its queries, and the options of `subscribe`."""

    queries: str | dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_of_relations(self) -> bool:
        """Whether it needs no view of its own, so that a server which only reads has it, too."""
        return "why" not in self.options and all(text.removeprefix("SELECT * FROM ").isalpha() for text in self.texts)

    @property
    def texts(self) -> list[str]:
        """The queries, in their order."""
        return [self.queries] if isinstance(self.queries, str) else list(self.queries.values())


FOLLOWED = {
    "totals": Follows("totals", {"key": "kind"}),
    "dear": Follows("SELECT id, price FROM item WHERE kind = 'ant' AND price > 40"),
    "joined": Follows(
        "SELECT i.kind, l.b, COUNT(*) AS n FROM item i JOIN link l ON i.price % 10 = l.a GROUP BY i.kind, l.b"
    ),
    "together": Follows(
        {
            "all": "item",
            "count": "SELECT COUNT(*) AS n, SUM(price) AS total FROM item",
            "totals": "totals",
            "links": "SELECT COUNT(*) AS n FROM link",
        }
    ),
    "seldom": Follows("reach", {"every": "300 ms"}),
    "each": Follows({"item": "item", "move": "move"}, {"every_change": True}),
    "windows": Follows({"sums": "sums", "tick": "SELECT who, n, amount FROM tick WHERE amount > 20"}),
    "best": Follows("SELECT * FROM best"),
    "explained": Follows(EXPLAINED, {"why": True}),
    "shifty": Follows("shifty"),
}


# -- rows --------------------------------------------------------------------------------------------------------------


def items_of(who: int, number: int) -> list[Row]:
    """Return the items of a numbered write."""
    dice = random.Random(f"item {who} {number}")
    return [
        (who * 1_000_000 + number * 10 + i, who, dice.choice(KINDS), dice.randrange(100))
        for i in range(dice.choice((1, 1, 2, 4)))
    ]


def ticks_of(who: int, number: int) -> list[Row]:
    """Return the rows of the stream of a numbered write."""
    dice = random.Random(f"tick {who} {number}")
    return [(who, number * 10 + i, dice.randrange(50)) for i in range(dice.choice((1, 2, 3)))]


def link_of(who: int, number: int) -> Row:
    """Return the link that a transaction sets."""
    dice = random.Random(f"link {who} {number}")
    return (dice.randrange(LINKS), dice.randrange(10), dice.randrange(10))


def first_links() -> list[Row]:
    """Return the links that there are from the beginning."""
    return [(i, i % 10, (i * 3 + 1) % 10) for i in range(LINKS)]


# -- what is true ------------------------------------------------------------------------------------------------------


class Truth:
    """Computes queries from base rows by DuckDB; windows, which depend on the order of rows, by hand."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config={"threads": 1})
        for name, columns in TABLES.items():
            self._con.execute(f"CREATE TABLE {name} ({columns})")
        self._con.execute("CREATE TABLE sums (who INT, n BIGINT, amount BIGINT)")
        for name in ("totals", "best"):
            self._con.execute(f"CREATE VIEW {name} AS {VIEWS[name]}")
        self._con.execute(f"CREATE VIEW reach AS WITH RECURSIVE reach AS ({VIEWS['reach']}) SELECT * FROM reach")

    def load(self, tables: Tables) -> None:
        """Have these base rows; those of the stream are in order."""
        for name in TABLES:
            self._load(name, tables[name])
        self._load("sums", window_sums(tables["tick"]))

    def _load(self, name: str, rows: Sequence[Row]) -> None:
        self._con.execute(f"DELETE FROM {name}")
        if rows:
            given = pa.table({f"c{i}": list(column) for i, column in enumerate(zip(*rows, strict=True))})
            self._con.register("given", given)
            self._con.execute(f"INSERT INTO {name} SELECT * FROM given")
            self._con.unregister("given")

    def rows(self, query: str) -> Counter[Row]:
        """Return the rows of a query or a relation, as a multiset."""
        text = query if " " in query else f"SELECT * FROM {query}"
        return Counter(tuple(row) for row in self._con.execute(text).fetchall())

    def close(self) -> None:
        self._con.close()


def window_sums(ticks: Sequence[Row]) -> list[Row]:
    """Return the rows of `sums`: one per full window of a writer's rows."""
    open_rows: dict[int, list[int]] = {}
    found = []
    for who, _, amount in ticks:
        window = open_rows.setdefault(who, [])
        window.append(amount)
        if len(window) == WINDOW:
            found.append((who, WINDOW, sum(window)))
            window.clear()
    return found
