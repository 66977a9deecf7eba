"""A program carried out in Whence and in DuckDB, compared after every step.

A step that fails in Whence with an EvaluationError must have changed nothing, and views made from nothing over the same
rows must fail as well. Anything else that differs, or any other error, is a Mismatch.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

import whence
from tests.oracle import Recompute, ViewText, bag, plain, same_rows
from tests.programs.generate import Program, Row, Step, View, Write

POISON = "CREATE TABLE poison (x TEXT); CREATE VIEW poisoned AS SELECT CAST(x AS INTEGER) AS n FROM poison"


class Mismatch(AssertionError):  # noqa: N818  # a finding
    """Whence and the oracle differ."""


class Play:
    """The state of a program on both sides."""

    def __init__(self, program: Program):
        self.program, self.views = program, program.views()
        self._folder = Path(tempfile.mkdtemp(prefix="programs-")) if program.partitions is not None else None
        self._made: list[View] = []
        self._seen: dict[str, Counter[Row]] = {}
        self.db = self._open(program.partitions)
        self.db.execute(";\n".join(table.create() for table in program.tables) + ";\n" + POISON)
        columns = {t.name: ", ".join(f"{name} {kind}" for name, kind in t.columns) for t in program.tables}
        self.duck = Recompute(columns, [], optimize=True)
        self.duck.con.execute("SET ieee_floating_point_ops = true")
        self._keys = {t.name: t.columns[0][0] for t in program.tables if t.keyed}

    def _open(self, partitions: int | None) -> whence.Database:
        if self._folder is None:
            db = whence.open()
        else:
            db = whence.open(
                self._folder / "db", durability="none", **({"partitions": partitions} if partitions else {})
            )
        self._feeds = {view.name: db.changes(view.name) for view in self._made}
        return db

    def close(self) -> None:
        with suppress(whence.WhenceError):
            self.db.close()
        self.duck.con.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self) -> int:
        """Carry out all steps; return how many epochs failed in Whence as they should."""
        failed = 0
        for number, step in enumerate(self.program.steps):
            try:
                failed += self._step(step)
            except (Mismatch, whence.WhenceError, duckdb.Error, RuntimeError, TypeError, ValueError, LookupError) as e:
                raise Mismatch(f"step {number}: {type(e).__name__}: {e}") from e
        self._check_fresh("in the end")
        return failed

    def _step(self, step: Step) -> bool:
        if step.create is not None and step.create < len(self.views):
            return self._create(self.views[step.create])
        if step.drop is not None and step.drop < len(self.views):
            self._drop(self.views[step.drop])
        elif step.reopen is not None and self._folder is not None:
            if step.snapshot:
                self.db.snapshot()
            self.db.close()
            self.db = self._open(step.reopen)
            self._check("after reopening")
        elif step.writes:
            return self._transact(step)
        return False

    # -- views -------------------------------------------------------------------------------------------------------

    def _create(self, view: View) -> bool:
        missing = {v.name for v in self.views} - {v.name for v in self._made} - {view.name}
        if view in self._made or any(re.search(rf"\b{name}\b", view.query) for name in missing):
            return False
        self._made.append(view)
        self.duck.views[view.name] = ViewText(view.name, (), "", view.oracle)
        try:
            self.db.execute(view.create())
        except (whence.EvaluationError, whence.SqlError) as error:
            if isinstance(error, whence.SqlError) and "is not a value of type" not in str(error):
                raise  # a constant that can never be cast is found when it is bound
            self._made.remove(view)
            del self.duck.views[view.name]
            self._check("after a view that failed")
            return True
        self._feeds[view.name] = self.db.changes(view.name)
        self._seen[view.name] = bag(self.db[view.name].rows)
        self._check(f"after making {view.name}")
        return False

    def _drop(self, view: View) -> None:
        if view in self._made:
            self._made.remove(view)
            self._feeds.pop(view.name)
            del self.duck.views[view.name]
            self.db.execute(f"DROP VIEW {view.name}")
            self._check(f"after dropping {view.name}")

    # -- rows --------------------------------------------------------------------------------------------------------

    def _transact(self, step: Step) -> bool:
        con = self.duck.con
        con.execute("BEGIN")
        try:
            with self._expected_to_fail(step.poisoned), self.db.transaction():
                for write in step.writes:
                    self._write(write)
                if step.poisoned:
                    self.db.insert("poison", [("no number",)])
        except whence.EvaluationError:
            self._check_fails("the same rows")
            con.execute("ROLLBACK")
            self._check("after a failed epoch")
            return True
        if step.poisoned:
            con.execute("ROLLBACK")
            self._check("after a poisoned epoch")
            return False
        con.execute("COMMIT")
        self._check("after an epoch")
        return False

    @contextmanager
    def _expected_to_fail(self, poisoned: bool) -> Iterator[None]:
        if not poisoned:
            yield
            return
        try:
            yield
        except whence.EvaluationError:
            return
        raise Mismatch("an epoch that must fail did not")

    def _write(self, write: Write) -> None:
        con, table = self.duck.con, write.table
        if write.sql:
            self.db.execute(write.sql)
            con.execute(write.sql)
            return
        row = [plain(v) for v in write.row]
        if write.sign > 0:
            self.db.insert(table, [write.row])
            if table in self._keys:
                con.execute(f"DELETE FROM {table} WHERE {self._keys[table]} = ?", row[:1])
            con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            return
        self.db.delete(table, [write.row])
        names = [name for t in self.program.tables if t.name == table for name, _ in t.columns]
        same = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in names)
        found = con.execute(f"SELECT min(rowid) FROM {table} WHERE {same}", row).fetchone()
        if found is not None and found[0] is not None:
            con.execute(f"DELETE FROM {table} WHERE rowid = {found[0]}")

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _check(self, when: str) -> None:
        for table in self.program.tables:
            self._compare(table.name, bag(self.duck.rows(f"SELECT * FROM {table.name}")), when)
        schemas = {
            v.name: ", ".join(f'"{c.name}" {c.type}' for c in self.db[v.name].schema.columns) for v in self._made
        }
        for name, rows in self.duck.run(schemas, {}).items():
            self._compare(name, bag(rows), when)
        for name, feed in self._feeds.items():
            total = self._seen[name]
            for _, row, sign in feed:
                total[tuple(plain(v) for v in row)] += sign
            if any(n < 0 for n in total.values()):
                raise Mismatch(f"{name} {when}: changes withdraw rows that are not there: {-total}")
            self._seen[name] = +total
            if not same_rows(+total, bag(self.db[name].rows)):
                raise Mismatch(f"{name} {when}: changes do not add up: {dict(+total)}")

    def _compare(self, name: str, wanted: Counter[Row], when: str) -> None:
        got = bag(self.db[name].rows)
        if not same_rows(got, wanted):
            extra, missing = list((got - wanted).elements()), list((wanted - got).elements())
            raise Mismatch(f"{name} {when}: too many {extra[:5]}, missing {missing[:5]}")

    def _fresh(self) -> whence.Database:
        """Return a new database with the rows that DuckDB's tables have, then the views."""
        db = whence.open()
        db.execute(";\n".join(table.create() for table in self.program.tables))
        for table in self.program.tables:
            if rows := self.duck.rows(f"SELECT * FROM {table.name}"):
                db.insert(table.name, rows)
        try:
            for view in self._made:
                db.execute(view.create())
        except BaseException:
            db.close()
            raise
        return db

    def _check_fresh(self, when: str) -> None:
        with self._fresh() as db:
            for view in self._made:
                if not same_rows(bag(db[view.name].rows), bag(self.db[view.name].rows)):
                    raise Mismatch(f"{view.name} {when}: made from nothing it has {db[view.name].rows[:5]}")

    def _check_fails(self, what: str) -> None:
        try:
            self._fresh().close()
        except whence.EvaluationError:
            return
        raise Mismatch(f"an epoch failed, but views made from nothing over {what} do not")


def play(program: Program) -> int:
    """Carry out a program; Mismatch if the sides differ."""
    playing = Play(program)
    try:
        return playing.run()
    finally:
        playing.close()
