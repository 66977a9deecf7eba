"""The tables and views of `small_epochs`, each written once: as SQL, as triggers of SQLite, and as a Pathway dataflow.

    sale (id, shop, product, day, seller, amount, tax, cost, weight)       written one row at a time; all columns INT
    shop, product, day, seller (id INT PRIMARY KEY, kind INT, price INT)   100 rows each, which a sale refers to
    link (src INT, dst INT)                                                a tree that grows leaf by leaf

No two views of a kind are equal, so that no system can share their work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

Row = tuple[int, ...]

DIMENSIONS = ("shop", "product", "day", "seller")
MEASURES = ("amount", "tax", "cost", "weight")
COLUMNS = ("id", *DIMENSIONS, *MEASURES)
MEMBERS = [(id, id % 10, id * 7) for id in range(100)]  # of every dimension
LARGEST = 1_000  # above every measure
TABLES = "".join(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, kind INT, price INT);" for name in DIMENSIONS)
LINK = "CREATE TABLE link (src INT, dst INT);"
REACH = """CREATE VIEW reach AS
  SELECT dst AS node FROM link WHERE src = 0 UNION SELECT link.dst FROM reach JOIN link ON reach.node = link.src;"""
REACH_TRIGGERS = """
CREATE INDEX link_src ON link (src);
CREATE TABLE reach (node INTEGER PRIMARY KEY);
CREATE TRIGGER near AFTER INSERT ON link WHEN NEW.src = 0 OR EXISTS (SELECT 1 FROM reach WHERE node = NEW.src) BEGIN
  INSERT OR IGNORE INTO reach VALUES (NEW.dst);
END;
CREATE TRIGGER far AFTER INSERT ON reach BEGIN
  INSERT OR IGNORE INTO reach SELECT dst FROM link WHERE src = NEW.node;
END;
"""
REACH_QUERY = """WITH RECURSIVE reach AS (
  SELECT dst AS node FROM link WHERE src = 0 UNION SELECT link.dst FROM reach JOIN link ON reach.node = link.src)
  SELECT node FROM reach"""


def sale_table(keyed: bool) -> str:
    """Declare the table that is written."""
    columns = ", ".join(f"{name} INT" for name in COLUMNS[1:])
    return f"CREATE TABLE sale (id INTEGER{' PRIMARY KEY' if keyed else ''}, {columns});"


def sales(first: int, count: int) -> list[Row]:
    """Make rows of sale with ids from `first` on."""
    random = np.random.default_rng(first)
    members, measures = random.integers(0, len(MEMBERS), (count, 4)), random.integers(0, LARGEST, (count, 4))
    ids = np.arange(first, first + count).reshape(-1, 1)
    return [tuple(row) for row in np.hstack((ids, members, measures)).tolist()]


def links(first: int, count: int) -> list[Row]:
    """Make rows of link: node n hangs below node n // 3, of which 0 is the root."""
    return [(node // 3, node) for node in range(first + 1, first + count + 1)]


@dataclass(frozen=True)
class SmallView:
    """A view over sale: the query, the columns of the table that SQLite keeps it in, and what its triggers do."""

    name: str
    query: str
    columns: str
    added: str
    removed: str
    graph: Callable[[Any, Any, dict[str, Any]], tuple[Any, Sequence[str]]]  # of Pathway: the table and its columns

    @property
    def triggers(self) -> str:
        """Keep the view's rows in a table of SQLite."""
        return f"""CREATE TABLE {self.name} ({self.columns}) WITHOUT ROWID;
            CREATE TRIGGER {self.name}_insert AFTER INSERT ON sale BEGIN {self.added} END;
            CREATE TRIGGER {self.name}_delete AFTER DELETE ON sale BEGIN {self.removed} END;
            CREATE TRIGGER {self.name}_update AFTER UPDATE ON sale BEGIN {self.removed} {self.added} END;"""


def aggregate(number: int) -> SmallView:
    """Count sales and add up a measure, by one to four dimensions."""
    groupings = [keys for size in (1, 2, 3, 4) for keys in combinations(DIMENSIONS, size)]
    keys, measure = groupings[number % 15], MEASURES[number // 15 % 4]
    listed, name = ", ".join(keys), f"aggregate_{number}"
    group = " AND ".join(f"{key} = OLD.{key}" for key in keys)

    def graph(pw: Any, sale: Any, dimensions: dict[str, Any]) -> tuple[Any, Sequence[str]]:
        grouped = sale.groupby(*(sale[key] for key in keys))
        total = pw.reducers.sum(sale[measure])
        return grouped.reduce(*(sale[key] for key in keys), n=pw.reducers.count(), total=total), (*keys, "n", "total")

    return SmallView(
        name,
        f"SELECT {listed}, COUNT(*) AS n, SUM({measure}) AS total FROM sale GROUP BY {listed}",
        f"{listed}, n, total, PRIMARY KEY ({listed})",
        f"""INSERT INTO {name} VALUES ({", ".join(f"NEW.{key}" for key in keys)}, 1, NEW.{measure})
            ON CONFLICT ({listed}) DO UPDATE SET n = n + 1, total = total + excluded.total;""",
        f"""UPDATE {name} SET n = n - 1, total = total - OLD.{measure} WHERE {group};
            DELETE FROM {name} WHERE {group} AND n = 0;""",
        graph,
    )


def join(number: int) -> SmallView:
    """Join sales with a dimension."""
    subsets = [some for size in (1, 2, 3, 4) for some in combinations(MEASURES, size)]
    dimension, measures, name = DIMENSIONS[number % 4], subsets[number // 4 % 15], f"join_{number}"
    taken = ", ".join(f"sale.{measure}" for measure in measures)

    def graph(pw: Any, sale: Any, dimensions: dict[str, Any]) -> tuple[Any, Sequence[str]]:
        other = dimensions[dimension]
        joined = sale.join(other, sale[dimension] == other.member)
        shown = ("id_", "kind", "price", *measures)
        return joined.select(sale.id_, other.kind, other.price, *(sale[m] for m in measures)), shown

    return SmallView(
        name,
        f"SELECT sale.id, kind, price, {taken} FROM sale JOIN {dimension} ON sale.{dimension} = {dimension}.id",
        f"id INTEGER PRIMARY KEY, kind, price, {', '.join(measures)}",
        f"""INSERT INTO {name} SELECT NEW.id, kind, price, {", ".join(f"NEW.{measure}" for measure in measures)}
            FROM {dimension} WHERE id = NEW.{dimension};""",
        f"DELETE FROM {name} WHERE id = OLD.id;",
        graph,
    )


def select(number: int) -> SmallView:
    """Filter sales: half of them or more pass."""
    least, name = number * 7 % (LARGEST // 2), f"select_{number}"

    def graph(pw: Any, sale: Any, dimensions: dict[str, Any]) -> tuple[Any, Sequence[str]]:
        return sale.filter(sale.amount >= least).select(pw.this.id_, pw.this.amount), ("id_", "amount")

    return SmallView(
        name,
        f"SELECT id, amount FROM sale WHERE amount >= {least}",
        "id INTEGER PRIMARY KEY, amount",
        f"INSERT INTO {name} SELECT NEW.id, NEW.amount WHERE NEW.amount >= {least};",
        f"DELETE FROM {name} WHERE id = OLD.id;",
        graph,
    )


def report(number: int) -> SmallView:
    """Filter, join and aggregate: sales by the kind of a dimension."""
    dimension, measure, name = DIMENSIONS[number % 4], MEASURES[number // 4 % 4], f"report_{number}"
    least = number * 7 % (LARGEST // 2)
    kind = f"(SELECT kind FROM {dimension} WHERE id = OLD.{dimension})"

    def graph(pw: Any, sale: Any, dimensions: dict[str, Any]) -> tuple[Any, Sequence[str]]:
        other, some = dimensions[dimension], sale.filter(sale.amount >= least)
        both = some.join(other, some[dimension] == other.member).select(other.kind, value=some[measure])
        total = pw.reducers.sum(both.value)
        return both.groupby(both.kind).reduce(both.kind, n=pw.reducers.count(), total=total), ("kind", "n", "total")

    return SmallView(
        name,
        f"""SELECT kind, COUNT(*) AS n, SUM({measure}) AS total FROM sale JOIN {dimension}
            ON sale.{dimension} = {dimension}.id WHERE amount >= {least} GROUP BY kind""",
        "kind PRIMARY KEY, n, total",
        f"""INSERT INTO {name} SELECT kind, 1, NEW.{measure} FROM {dimension}
            WHERE id = NEW.{dimension} AND NEW.amount >= {least}
            ON CONFLICT (kind) DO UPDATE SET n = n + 1, total = total + excluded.total;""",
        f"""UPDATE {name} SET n = n - 1, total = total - OLD.{measure} WHERE OLD.amount >= {least} AND kind = {kind};
            DELETE FROM {name} WHERE n = 0 AND kind = {kind};""",
        graph,
    )


_MIXED = (aggregate, join, select, report)
KINDS: dict[str, Callable[[int], SmallView]] = {
    "aggregates": aggregate,
    "joins": join,
    "filters": select,
    "mixed": lambda number: _MIXED[number % 4](number),
}


def views(kind: str, count: int) -> list[SmallView]:
    """Make the first `count` views of a kind."""
    return [KINDS[kind](number) for number in range(count)]


def folded(number: int, rows: Sequence[Row]) -> list[Row]:
    """Fold the rows of view `number` to four columns, as the Pathway dataflow does to put all views into one."""
    return [(number, sum((at + 1) * value for at, value in enumerate(row)), row[0], row[-1]) for row in rows]


def graph(kind: str, count: int, pw: Any, source: Any) -> tuple[Any, Sequence[str]]:
    """Build the dataflow of some views, whose folded rows are its output."""
    schema = pw.schema_from_types(member=int, kind=int, price=int)
    dimensions = {name: pw.debug.table_from_rows(schema, MEMBERS) for name in DIMENSIONS}
    parts = []
    for number, view in enumerate(views(kind, count)):
        table, columns = view.graph(pw, source, dimensions)
        weighted = sum(((at + 1) * table[column] for at, column in enumerate(columns[1:], 1)), table[columns[0]])
        parts.append(table.select(view=number, weighted=weighted, first=table[columns[0]], last=table[columns[-1]]))
    return parts[0].concat_reindex(*parts[1:]), ("view", "weighted", "first", "last")


GRAPHS = {f"{kind} {count}": partial(graph, kind, count) for kind in KINDS for count in (1, 3, 10, 50)}
