"""The oracle: a program in Whence beside the same program recomputed from scratch, compared after every batch.

A `Twin` holds both. Its base tables are kept a second time in plain Python, so that a fault in Whence's own tables
shows too. After each batch `check` recomputes every view: by the Python function a test gives for it, or else by DuckDB
from the view's own text. Views that depend on themselves are iterated there from nothing until they stand still (as
sets), which says what non-linear and mutual recursion, negation between strata, and MIN or MAX inside recursion mean,
none of which DuckDB's own WITH RECURSIVE can express.

Every test can be run on partitions: `on_partitions` lets `whence.open` make them. A Twin then keeps an embedded
database beside the partitioned one, and both must hold and tell the same after every batch.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import duckdb
import duckdb.func
import pytest

import whence
from tests import inside
from whence.runtime import database

Row = tuple[Any, ...]
Update = tuple[str, Row, int]  # table, row, +1 or -1
Batch = Sequence[Update]
Tables = dict[str, list[Row]]
Brute = Callable[[Tables], Iterable[Row]]

POLICIES = ("support", "dred")
every_policy = pytest.mark.parametrize("policy", POLICIES)

_ROUNDS = 200  # of naive iteration, before a recursion is held to have no end
_HEAD = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:RECURSIVE\s+)?VIEW\s+(\w+)\s*(\([^)]*\))?\s*(?:WITH\s*\(([^)]*)\)\s*)?AS\b",
    re.IGNORECASE,
)
_DECLARED = re.compile(r"\s*WITH\s+RECURSIVE\s+(\w+)\s*(\([^)]*\))?\s*AS\b(?=\s*\()", re.IGNORECASE)

# Made last, so that all other views have followed a batch when this one fails on it.
_POISON = "CREATE TABLE poison (x TEXT); CREATE VIEW poisoned AS SELECT CAST(x AS INT) AS n FROM poison"


# -- runtimes ----------------------------------------------------------------------------------------------------------


@contextmanager
def on_partitions(count: int | None) -> Iterator[None]:
    """Let `whence.open` make partitions, all in this process; None: let it be."""
    plain = whence.open
    if count is not None:
        whence.open = partial(open_parts, count)
    try:
        yield
    finally:
        whence.open = plain


def open_parts(count: int, path: Any = None, **options: Any) -> whence.Database:
    """A database in so many partitions. What it writes need not outlast the test."""
    if options.get("read_only"):
        return database.open(path, **options)
    return database.open(path, **{"durability": "none", "partitions": count} | options)


# -- programs as text --------------------------------------------------------------------------------------------------


def statements(sql: str) -> list[str]:
    """The statements of a script without quoted semicolons, comments gone."""
    bare = re.sub(r"--[^\n]*", "", sql)
    return [part.strip() for part in bare.split(";") if part.strip()]


@dataclass(frozen=True)
class ViewText:
    """A CREATE VIEW (or a WITH RECURSIVE that declares one), taken apart."""

    name: str
    columns: tuple[str, ...]
    options: str
    query: str

    def create(self, policy: str) -> str:
        """The statement, its recursion under a policy unless it names one itself, or maintains provenance."""
        options = self.options or ""
        if not re.search("policy|maintain", options.lower()):
            options = ", ".join(filter(None, (options, f"policy = '{policy}'")))
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"CREATE OR REPLACE VIEW {self.name}{columns} WITH ({options}) AS {self.query}"


def view_text(statement: str) -> ViewText | None:
    """The parts of a statement that makes a view, else None."""
    head = _HEAD.match(statement) or _DECLARED.match(statement)
    if head is None:
        return None
    name, columns, options = (*head.groups(), "")[:3]
    named = tuple(c.strip().lower() for c in (columns or "").strip("()").split(",") if c.strip())
    return ViewText(name.lower(), named, options or "", statement[head.end() :].strip())


def with_policy(sql: str, policy: str) -> str:
    """The script with every view under a policy.

    >>> with_policy("CREATE VIEW v AS SELECT 1 AS x", "dred")
    "CREATE OR REPLACE VIEW v WITH (policy = 'dred') AS SELECT 1 AS x"
    """
    parts = [(view.create(policy) if (view := view_text(s)) else s) for s in statements(sql)]
    return ";\n".join(parts)


def with_provenance(sql: str, options: str) -> str:
    """The script with these options on the views that recurse."""
    parts = statements(sql)
    views = {v.name: v for s in parts if (v := view_text(s)) is not None}
    recursive = {n for together in strata(views) for n in together if len(together) > 1 or reads(views[n], n)}
    recursive |= {n for n, v in views.items() if re.match(r"\s*WITH\s+RECURSIVE", v.query, re.IGNORECASE)}
    return ";\n".join(
        replace(view, options=options).create("")
        if (view := view_text(s)) is not None and view.name in recursive and not view.options
        else s
        for s in parts
    )


# -- rows as values ----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as both systems can be compared by it."""
    if isinstance(value, whence.Interval):
        return dt.timedelta(days=30 * value.months + value.days, microseconds=value.micros)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def bag(rows: Iterable[Row]) -> Counter[Row]:
    """Rows as a multiset."""
    return Counter(tuple(plain(v) for v in row) for row in rows)


def same_rows(left: Counter[Row], right: Counter[Row]) -> bool:
    """Whether two multisets of rows are equal, floats up to rounding."""
    if left == right:
        return True
    ours, theirs = sorted((left - right).elements(), key=_order), sorted((right - left).elements(), key=_order)
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


def _close(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(left, right, strict=True)
    )


def _order(row: Row) -> list[tuple[str, Any]]:
    return [("", 0) if v is None else ("n", round(v, 6)) if isinstance(v, float) else ("v", str(v)) for v in row]


def assert_rows(got: Iterable[Row], wanted: Iterable[Row], what: str = "rows") -> None:
    """The multisets are equal; otherwise say which rows are too many and which are missing."""
    ours, theirs = bag(got), bag(wanted)
    if not same_rows(ours, theirs):
        extra, missing = list((ours - theirs).elements()), list((theirs - ours).elements())
        raise AssertionError(f"{what}: too many {extra[:10]}, missing {missing[:10]}")


# -- recomputing -------------------------------------------------------------------------------------------------------


class Recompute:
    """The views of a program computed from nothing by DuckDB, in the order of their strata."""

    def __init__(self, tables: dict[str, str], views: list[ViewText], optimize: bool = False) -> None:
        self.con = duckdb.connect(":memory:", config={"threads": 1})
        if not optimize:  # on a handful of rows planning is most of the time
            self.con.execute("PRAGMA disable_optimizer")
        self.views = {v.name: v for v in views}
        for name, columns in tables.items():
            self.con.execute(f"CREATE TABLE {name} ({columns})")

    def load(self, name: str, rows: list[Row]) -> None:
        self.con.execute(f"DELETE FROM {name}")
        for start in range(0, len(rows), 200):
            some = rows[start : start + 200]
            places = ", ".join("(" + ", ".join("?" * len(some[0])) + ")" for _ in some)
            self.con.execute(f"INSERT INTO {name} VALUES {places}", [plain(v) for row in some for v in row])

    def run(self, schemas: dict[str, str], given: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Every view's rows; views in `given` are taken as they are, and others may read them."""
        found = {}
        for stratum in strata(self.views):
            names = [n for n in stratum if n not in given]
            for name in stratum:
                if name in given or len(stratum) > 1 or self._own(name):
                    self.con.execute(f"CREATE OR REPLACE TABLE {name} ({schemas[name]})")
                if name in given:
                    self.load(name, given[name])
                    found[name] = given[name]
            if len(stratum) == 1 and names and not self._own(names[0]):
                self.con.execute(f"CREATE OR REPLACE TABLE {names[0]} AS {self._query(names[0])}")
            elif names:
                self._iterate(names)
            for name in names:
                found[name] = self.rows(f"SELECT * FROM {name}")
        return found

    def rows(self, query: str) -> list[Row]:
        return self.con.execute(query).fetchall()

    def _own(self, name: str) -> bool:
        return reads(self.views[name], name)

    def _query(self, name: str) -> str:
        view = self.views[name]
        columns = f"({', '.join(view.columns)})" if view.columns else ""
        return f"SELECT * FROM ({view.query.rstrip(';')}) AS q{columns}"

    def _iterate(self, names: list[str]) -> None:
        rows: dict[str, set[Row]] = {n: set() for n in names}
        for _ in range(_ROUNDS):
            changed = False
            for name in names:
                self.con.execute(f"CREATE OR REPLACE TEMP TABLE newer AS SELECT DISTINCT * FROM ({self._query(name)})")
                newer = set(self.rows("SELECT * FROM newer"))
                if newer != rows[name]:
                    self.con.execute(f"DELETE FROM {name}; INSERT INTO {name} SELECT * FROM newer")
                    rows[name], changed = newer, True
            if not changed:
                return
        raise AssertionError(f"the oracle found no fixpoint of {', '.join(names)}")


def reads(view: ViewText, name: str) -> bool:
    return bool(re.search(rf"(?:\bFROM|\bJOIN|,)[\s(]+{name}\b", view.query, re.IGNORECASE))


def strata(views: dict[str, ViewText]) -> list[list[str]]:
    uses = {n: {m for m in views if reads(v, m)} for n, v in views.items()}
    reach: dict[str, set[str]] = {}
    for name in views:
        seen: set[str] = set()
        stack = [name]
        while stack:
            for used in uses[stack.pop()] - seen:
                seen.add(used)
                stack.append(used)
        reach[name] = seen
    order = sorted(views, key=lambda n: len(reach[n] | {n}))
    strata: list[list[str]] = []
    done: set[str] = set()
    for name in order:
        if name not in done:
            together = [m for m in order if m == name or (m in reach[name] and name in reach[m])]
            strata.append(together)
            done |= set(together)
    return strata


# -- both side by side -------------------------------------------------------------------------------------------------


@dataclass
class ScalarFunction:
    """A Python function that both systems are given."""

    name: str
    function: Callable[..., Any]
    args: list[str]
    returns: str


@dataclass
class Twin:
    """A program in Whence and its recomputation. `brute` gives the views whose answer a Python function knows; `setup`
    registers table functions; `skip` names views that nothing else can compute (their changes are still added up)."""

    sql: str
    policy: str = "support"
    brute: dict[str, Brute] = field(default_factory=dict)
    functions: list[ScalarFunction] = field(default_factory=list)
    setup: Callable[[whence.Database], None] | None = None
    skip: tuple[str, ...] = ()
    recursion_limit: int = 100_000
    optimize: bool = False  # DuckDB's plans: for joins of many tables
    db: whence.Database = field(init=False)

    def __post_init__(self) -> None:
        parts = statements(self.sql)
        self.views = [v for s in parts if (v := view_text(s)) is not None]
        makes = [m for s in parts if (m := re.match(r"CREATE\s+TABLE\s+(\w+)\s*\((.*)\)$", s, re.I | re.S))]
        self._columns = {m[1].lower(): m[2] for m in makes}
        self._keys: dict[str, list[int]] = {}
        self._rows: dict[str, Counter[Row]] = {name: Counter() for name in self._columns}
        self.db = self.open()
        self.beside = self.open(database.open) if inside.is_partitioned(self.db) else None
        unkeyed = {}
        for name, columns in self._columns.items():
            names = self.db[name].columns
            keyed = re.search(r"PRIMARY\s+KEY\s*\(([^)]*)\)", columns, re.I)
            inline = re.findall(r"(\w+)\s+\w+(?:\([^)]*\))?\s+PRIMARY\s+KEY", columns, re.I)
            key = [k.strip().lower() for k in keyed[1].split(",")] if keyed else [k.lower() for k in inline]
            self._keys[name] = [names.index(k) for k in key]
            columns = re.sub(r",\s*PRIMARY\s+KEY\s*\([^)]*\)", "", columns, flags=re.I)
            unkeyed[name] = re.sub(r"\s+PRIMARY\s+KEY", "", columns, flags=re.I)
        self.again = Recompute(unkeyed, self.views, self.optimize)
        for f in self.functions:
            types: list[Any] = [duckdb.sqltype(t) for t in f.args]
            self.again.con.create_function(
                f.name, f.function, types, duckdb.sqltype(f.returns), null_handling=duckdb.func.SPECIAL
            )
        self._names = [v.name for v in self.views]
        self._feeds = {n: self.db.changes(n) for n in self._names}
        self._beside = {n: self.beside.changes(n) for n in self._names} if self.beside is not None else {}
        self._seen: dict[str, Counter[Row]] = {n: bag(self.db[n].rows) for n in self._names}
        self._stale = set(self._columns)

    def open(self, make: Callable[..., whence.Database] | None = None) -> whence.Database:
        """An empty database with the program in it."""
        db = self.bare(make)
        db.execute(with_policy(self.sql, self.policy))
        db.execute(_POISON)
        return db

    def bare(self, make: Callable[..., whence.Database] | None = None) -> whence.Database:
        """An empty database with the functions only."""
        db = (make or whence.open)(recursion_limit=self.recursion_limit)
        for f in self.functions:
            db.create_function(f.name, f.function, args=f.args, returns=f.returns)
        if self.setup:
            self.setup(db)
        return db

    def close(self) -> None:
        self.db.close()
        if self.beside is not None:
            self.beside.close()
        self.again.con.close()

    # -- writing

    def apply(self, batch: Batch) -> None:
        """The updates as one epoch, in Whence and here, then check."""
        for db in filter(None, (self.db, self.beside)):
            with db.transaction():
                for table, row, sign in batch:
                    write(db, table, row, sign)
        for table, row, sign in batch:
            self._note(table, row, sign)
        self.check()

    def insert(self, table: str, *rows: Row) -> None:
        self.apply([(table, row, 1) for row in rows])

    def delete(self, table: str, *rows: Row) -> None:
        self.apply([(table, row, -1) for row in rows])

    def abort(self, batch: Batch) -> None:
        """The updates in an epoch that fails after the views have followed them: nothing may have changed."""
        with pytest.raises(whence.EvaluationError):
            load(self.db, [*batch, ("poison", ("not a number",), 1)])
        for name, there in self._rows.items():
            assert_rows(self.db[name].rows, there.elements(), f"table {name} after a failed epoch")
        for name in self._names:
            assert_rows(self.db[name].rows, self._seen[name].elements(), f"view {name} after a failed epoch")
            assert list(self._feeds[name]) == [], f"{name} tells of a failed epoch"

    def _note(self, table: str, row: Row, sign: int) -> None:
        rows, key = self._rows[table], self._keys[table]
        self._stale.add(table)
        if sign > 0:
            if key:
                for old in [r for r in rows if [r[k] for k in key] == [row[k] for k in key]]:
                    del rows[old]
            rows[row] += 1
        elif rows[row] > 1:
            rows[row] -= 1
        else:
            del rows[row]

    # -- checking

    @property
    def tables(self) -> Tables:
        """The base rows as they should be."""
        return {name: list(rows.elements()) for name, rows in self._rows.items()}

    def expected(self) -> dict[str, list[Row]]:
        """Every view computed from nothing."""
        tables = self.tables
        for name in self._stale:
            self.again.load(name, tables[name])
        self._stale = set()
        schemas = {n: ", ".join(f'"{c.name}" {c.type}' for c in self.db[n].schema.columns) for n in self._names}
        given = {n: list(f(tables)) for n, f in self.brute.items()}
        given |= {n: self.db[n].rows for n in self.skip}
        return self.again.run(schemas, given)

    def check(self) -> None:
        """Tables, views and changes are what they should be."""
        for name, there in self._rows.items():
            assert_rows(self.db[name].rows, there.elements(), f"table {name}")
        for name, rows in self.expected().items():
            got = self.db[name].rows
            assert_rows(got, rows, f"view {name}")
            assert len(self.db[name]) == len(rows), f"len of {name}"
        self._check_changes()

    def _check_changes(self) -> None:
        for name, feed in self._feeds.items():
            signs: dict[tuple[int, Row], int] = {}
            total = self._seen[name]
            told = list(feed)
            self._check_beside(name, told)
            for epoch, row, sign in told:
                row = tuple(plain(v) for v in row)
                assert signs.setdefault((epoch, row), sign) == sign, f"changes of {name} are not consolidated: {row}"
                total[row] += sign
            now = bag(self.db[name].rows)
            assert all(n >= 0 for n in total.values()), f"changes of {name} withdraw rows that are not there"
            self._seen[name] = +total
            assert same_rows(+total, now), f"changes of {name} do not add up"

    def _check_beside(self, name: str, told: list[tuple[int, Row, int]]) -> None:
        """The embedded database holds the same view, and tells the same of it."""
        if self.beside is None:
            return
        assert_rows(self.db[name].rows, self.beside[name].rows, f"view {name}, partitioned against embedded")
        both = [((sign, *row) for _, row, sign in changes) for changes in (told, self._beside[name])]
        assert_rows(*both, f"changes of {name}, partitioned against embedded")

    def check_splits(self, batches: Sequence[Batch], start: Batch = ()) -> None:
        """The updates in one batch, in many, one at a time, or before the views are made, end in the same views."""
        flat = [u for batch in batches for u in batch]
        for how, parts in {"many": batches, "one": [flat], "single": [[u] for u in flat]}.items():
            self._compare(self.open(), [start, *parts], f"in {how}")
        late = self.bare()
        creates = [s for s in statements(self.sql) if view_text(s) is None]
        late.execute(";\n".join(creates))
        load(late, [*start, *flat])
        late.execute(";\n".join(v.create(self.policy) for v in self.views))
        self._compare(late, [], "back-filled")

    def _compare(self, db: whence.Database, parts: Sequence[Batch], how: str) -> None:
        for part in parts:
            load(db, part)
        for name in self._names:
            assert_rows(db[name].rows, self.db[name].rows, f"view {name}, {how}")
        db.close()


def stream(
    seed: object, makers: dict[str, Callable[[random.Random], Row]], steps: int = 12, size: int = 4, start: int = 0
) -> list[list[Update]]:
    """Random batches: insertions of made rows, deletions of rows that are mostly there, updates that are both; the
    first batch may be a load of `start` rows a table."""
    rng = random.Random(f"{seed}")
    present: dict[str, list[Row]] = {t: [] for t in makers}
    batches: list[list[Update]] = []
    if start:
        batches.append([(t, make(rng), 1) for t, make in makers.items() for _ in range(start)])
    for table, row, _ in batches[0] if batches else ():
        present[table].append(row)
    for _ in range(steps):
        batch: list[Update] = []
        for _ in range(rng.randint(1, size)):
            table = rng.choice(list(makers))
            rows, dice = present[table], rng.random()
            if rows and dice < 0.5:
                gone = rows.pop(rng.randrange(len(rows)))
                batch.append((table, gone, -1))
            elif dice > 0.95:
                batch.append((table, makers[table](rng), -1))
            if dice > 0.35 and dice <= 0.95:
                rows.append(makers[table](rng))
                batch.append((table, rows[-1], 1))
        batches.append(batch)
    return batches


def drive(twin: Twin, batches: Sequence[Batch]) -> None:
    """Apply the batches, each checked, and each after a failed attempt; then the same updates split otherwise."""
    for batch in batches:
        twin.abort(batch)
        twin.apply(batch)
    twin.check_splits(batches)


def write(db: whence.Database, table: str, row: Row, sign: int) -> None:
    """One update."""
    if sign > 0:
        db.insert(table, [row])
    else:
        db.delete(table, [row])


def load(db: whence.Database, batch: Batch) -> None:
    """The updates as one epoch."""
    if batch:
        with db.transaction():
            for table, row, sign in batch:
                write(db, table, row, sign)
