"""Runs `tests/sql/*.slt`; `tests/sql/README.md` says how they are written."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.oracle import (
    POLICIES,
    Recompute,
    Row,
    assert_rows,
    on_partitions,
    statements,
    view_text,
    with_policy,
    with_provenance,
)
from tests.sqllogic.reader import Block, read

FILES = sorted((Path(__file__).parent / "sql").glob("*.slt"))
RUNS = [*((None, policy) for policy in POLICIES), (1, "dred"), (2, "support"), (5, "dred")]  # None: embedded
ANNOTATED = ("maintain = 'absorption'", "maintain = 'absorption', propagate = 'eager'", "maintain = 'relative'")


# -- values ------------------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value as it is written in the files."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            text = f"{value:.12g}"
            return text if re.search(r"[.einf]", text) else text + ".0"
        case Decimal() | int() | dt.date():
            return str(value)
        case whence.Interval():
            return _interval(value)
    return f"'{value}'" if not value or value != value.strip() or value == "NULL" or "|" in value else str(value)


def _interval(value: whence.Interval) -> str:
    parts = [f"{n} {unit}{'s' * (n != 1)}" for n, unit in ((value.months, "month"), (value.days, "day")) if n]
    if value.micros or not parts:
        sign, clock = "-" * (value.micros < 0), dt.timedelta(microseconds=abs(value.micros))
        parts.append(f"{sign}{clock}".rjust(8, "0"))
    return " ".join(parts)


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass
class Runner:
    """A database and its twin in DuckDB, which sees the same statements."""

    policy: str  # of recursive views, or how their provenance is maintained
    db: whence.Database = field(default_factory=lambda: whence.open())
    again: Recompute = field(default_factory=lambda: Recompute({}, []))
    ours: set[str] = field(default_factory=set)

    def run(self, block: Block) -> None:
        match block.words:
            case ["statement", "ok", *_]:
                self._execute(block)
            case ["statement", "count", count, *_]:
                assert self._execute(block).count == int(count)
            case ["statement", "error", *pattern]:
                with pytest.raises(whence.WhenceError) as failed:
                    self.db.execute(block.sql)
                said = str(failed.value)
                if "does not end" in said and inside.is_partitioned(self.db):
                    pattern = [" ".join(pattern).split(".*")[0]]  # partitions may name another row on the way
                assert re.search(" ".join(pattern), said, re.DOTALL), f"it says: {said}"
            case ["query", *flags]:
                self._query(block, "ordered" in flags)
            case ["view", name, *_]:
                rows = self.db[name].rows
                self._expect(block, rows)
                if not block.ours and name not in self.ours:
                    self._compare(rows, f"SELECT * FROM {name}")
            case ["columns", name]:
                columns = [f"{c.name} {c.type}" for c in self.db[name].schema.columns]
                assert columns == block.rows
            case _:
                raise AssertionError(f"a block begins with {' '.join(block.words)!r}")

    def _execute(self, block: Block) -> whence.Result:
        result = self.db.execute(under(self.policy, block.sql) if view_text(block.sql) else block.sql)
        for statement in statements(block.sql):
            self._repeat(statement, block.ours)
        return result

    def _repeat(self, statement: str, ours: bool) -> None:
        """The statement in DuckDB, whose tables must be the same afterwards."""
        view = view_text(statement)
        if view is not None:
            self.again.views[view.name] = view
            self.ours = self.ours | {view.name} if ours else self.ours - {view.name}
            return
        self.again.views = {n: v for n, v in self.again.views.items() if n in self.db}
        if re.match(r"(EXPLAIN|DESCRIBE|SHOW|DROP\s+VIEW)\b", statement, re.IGNORECASE):
            return
        if not ours:
            statement = re.sub(r"^INSERT INTO (\w+)", self._insert, statement, flags=re.IGNORECASE)
            statement = re.sub(r"\bPRIMARY KEY WITH\b.*", "PRIMARY KEY", statement)
            self.again.con.execute(statement)
        for (name,) in self.again.rows("SELECT table_name FROM duckdb_tables() WHERE NOT temporary"):
            if ours and name not in self.db:
                self.again.con.execute(f"DROP TABLE {name}")
        for name in self.db.tables:
            if ours:
                self._tables_of_ours(name)
            assert_rows(self.db[name].rows, self.again.rows(f"SELECT * FROM {name}"), f"table {name}")

    def _tables_of_ours(self, name: str) -> None:
        columns = ", ".join(f'"{c.name}" {c.type}' for c in self.db[name].schema.columns)
        self.again.con.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        self.again.load(name, self.db[name].rows)

    def _insert(self, found: re.Match[str]) -> str:
        keyed = self.again.rows(
            f"SELECT 1 FROM duckdb_constraints() WHERE table_name = '{found[1].lower()}' "
            "AND constraint_type = 'PRIMARY KEY'"
        )
        return f"INSERT OR REPLACE INTO {found[1]}" if keyed else found[0]

    def _query(self, block: Block, ordered: bool) -> None:
        kept = "kept_query"
        options = f"policy = '{self.policy}'" if self.policy in POLICIES else ""
        if not options and re.match(r"WITH\s+RECURSIVE\b", block.sql, re.IGNORECASE):
            options = self.policy
        self.db.execute(f"CREATE VIEW {kept} {options and f'WITH ({options})'} AS {block.sql}")
        try:
            rows = self.db[kept].rows
            if block.ours:
                self._expect(block, rows)
            else:
                answer = self.db.query(block.sql).rows
                self._expect(block, answer, ordered)
                assert_rows(rows, answer, "the query as a view")
                self._compare(rows, block.sql)
            if re.search(r"\bFROM\b", block.sql, re.IGNORECASE):
                self._come_and_go(block, kept, rows)
        finally:
            self.db.execute(f"DROP VIEW {kept}")

    def _come_and_go(self, block: Block, kept: str, rows: list[Row]) -> None:
        """Take half of the base rows away and bring them back; the view must follow."""
        full = {name: self.db[name].rows for name in self.db.tables}
        with self.db.transaction():
            for name, there in full.items():
                self.db.delete(name, there[::2])
        if not block.ours:
            for name, there in full.items():
                self.again.load(name, there[1::2])
            self._compare(self.db[kept].rows, block.sql)
        with self.db.transaction():
            for name, there in full.items():
                self.db.insert(name, there[::2])
        for name, there in full.items():
            self.again.load(name, there)
        assert_rows(self.db[kept].rows, rows, "the query as a view, its rows gone and come back")

    def _compare(self, rows: list[Row], query: str) -> None:
        schemas = {n: ", ".join(f'"{c.name}" {c.type}' for c in self.db[n].schema.columns) for n in self.again.views}
        self.again.run(schemas, {n: self.db[n].rows for n in self.ours if n in self.db})
        assert_rows(rows, self.again.rows(query), "Whence against DuckDB")

    def _expect(self, block: Block, rows: list[Row], ordered: bool = False) -> None:
        got = [" | ".join(map(shown, row)) for row in rows]
        wanted = [row.strip() for row in block.rows]
        assert (got if ordered else sorted(got)) == (wanted if ordered else sorted(wanted))


def under(policy: str, sql: str) -> str:
    """Return a script whose recursive views go by a policy, or maintain provenance."""
    return with_provenance(sql, policy) if policy in ANNOTATED else with_policy(sql, policy)


def recurses(path: Path) -> bool:
    """Tell whether a file has a recursive view."""
    views = (f"CREATE VIEW q AS {b.sql}" if b.words[0] == "query" else b.sql for b in read(path))
    return any("maintain" in under(ANNOTATED[0], sql) != sql for sql in views if view_text(sql) is not None)


@pytest.mark.parametrize("path", [path for path in FILES if recurses(path)], ids=lambda p: p.stem)
@pytest.mark.parametrize("options", ANNOTATED)
def test_sql_with_provenance(path: Path, options: str) -> None:
    run_file(path, Runner(options))


@pytest.mark.parametrize(("partitions", "policy"), RUNS)
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_sql(path: Path, partitions: int | None, policy: str) -> None:
    with on_partitions(partitions):
        run_file(path, Runner(policy))


def run_file(path: Path, runner: Runner) -> None:
    for block in read(path):
        try:
            runner.run(block)
        except Exception as error:
            where = f"{path.name}, line {block.line} ({' '.join(block.words)}): {block.sql}"
            raise AssertionError(f"{where}\n{type(error).__name__}: {error}") from error
    runner.db.close()
