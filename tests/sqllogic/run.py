"""Runs sqllogictest files: each query ad hoc, as a view over the rows, and as a view whose rows went and came back.

What Whence refuses with an error of its own is *refused*; a wrong answer, an error that is not ours, and a statement
that should have failed but did not, are *failed*. A file goes on after either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import whence
from tests.oracle import bag, same_rows
from tests.sqllogic.answers import Row, matches
from tests.sqllogic.reader import Block, read, unrolled

PASSED, REFUSED, FAILED = "passed", "refused", "failed"
_KEPT = "sqllogic_query"
_SORTS = ("nosort", "rowsort", "valuesort")


@dataclass(frozen=True)
class Finding:
    """Something that did not pass."""

    path: Path
    line: int
    what: str  # statement, query, view or maintained view
    verdict: str
    reason: str


@dataclass
class Report:
    """What became of some files: how many of each kind, by verdict, and all that did not pass."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def note(self, path: Path, block: Block, what: str, verdict: str, reason: str = "") -> None:
        self.counts[what, verdict] += 1
        if verdict != PASSED:
            self.findings.append(Finding(path, block.line, what, verdict, reason))

    def of(self, verdict: str) -> int:
        return sum(count for (_, found), count in self.counts.items() if found == verdict)


@dataclass
class FileRunner:
    """One file on one database. `names` are those by which `skipif` and `onlyif` mean us; with `any_order` rows may
    come in any order where the file asks for one."""

    path: Path
    report: Report
    names: tuple[str, ...] = ("duckdb", "whence")
    any_order: bool = False
    db: whence.Database = field(default_factory=lambda: whence.open())

    def run(self, blocks: Iterable[Block] | None = None) -> None:
        """Run all blocks of the file."""
        with self.db:
            for block in unrolled(read(self.path) if blocks is None else blocks):
                if self._is_for_us(block) and not self._run(block):
                    return

    def _is_for_us(self, block: Block) -> bool:
        skipped = any(name in block.skip for name in self.names)
        return not skipped and (not block.only or any(name in block.only for name in self.names))

    def _run(self, block: Block) -> bool:
        """Run a block; return False if the rest of the file is not for us."""
        match block.words:
            case ["require", extension, *_]:
                self.report.note(self.path, block, "file", REFUSED, f"requires {extension}")
                return False
            case ["statement", "error", *_] | ["query", "error", *_]:
                self._error(block)
            case ["statement", *_]:
                self._statement(block)
            case ["query", *options]:
                self._query(block, options)
        return True

    # -- statements --------------------------------------------------------------------------------------------------

    def _statement(self, block: Block) -> None:
        verdict, reason = self._attempt(block.sql)
        self.report.note(self.path, block, "statement", verdict, reason)

    def _error(self, block: Block) -> None:
        verdict, reason = self._attempt(block.sql)
        found = {PASSED: (FAILED, "accepted what should fail"), REFUSED: (PASSED, ""), FAILED: (FAILED, reason)}
        self.report.note(self.path, block, "statement", *found[verdict])

    def _attempt(self, sql: str) -> tuple[str, str]:
        try:
            self.db.execute(sql)
        except whence.WhenceError as error:
            return REFUSED, str(error)
        except Exception as error:  # whatever it is, it is not ours: a finding
            return FAILED, f"{type(error).__name__}: {error}"
        return PASSED, ""

    # -- queries -----------------------------------------------------------------------------------------------------

    def _query(self, block: Block, options: list[str]) -> None:
        kinds = next((word for word in options if word not in _SORTS and word != "ordered"), "")
        sort = next((word for word in options if word in _SORTS), "nosort")
        sort = "rowsort" if self.any_order and sort == "nosort" else sort
        rows = self._asked(block, kinds, sort)
        self._kept(block, kinds, sort, rows)

    def _asked(self, block: Block, kinds: str, sort: str) -> list[Row] | None:
        """Ask ad hoc; return the rows if they are right."""
        try:
            rows: list[Row] = self.db.query(block.sql).rows
        except whence.WhenceError as error:
            self.report.note(self.path, block, "query", REFUSED, str(error))
            return None
        except Exception as error:
            self.report.note(self.path, block, "query", FAILED, f"{type(error).__name__}: {error}")
            return None
        if block.expects and not matches(rows, kinds, sort, block.rows):
            ordered = sort == "nosort" and matches(rows, kinds, "rowsort", block.rows)
            what = "order differs" if ordered else "rows differ"
            self.report.note(self.path, block, "query", FAILED, f"{what}: {rows[:3]}, expected {block.rows[:3]}")
            return rows if ordered else None
        self.report.note(self.path, block, "query", PASSED)
        return rows

    def _kept(self, block: Block, kinds: str, sort: str, wanted: list[Row] | None) -> None:
        """Ask as a view: made over the rows that are there, then through all of them going and coming back."""
        verdict, reason = self._attempt(f"CREATE VIEW {_KEPT} AS {_named(block.sql)}")
        if verdict != PASSED:
            self.report.note(self.path, block, "view", verdict, reason)
            return
        try:
            self._compare(block, "view", kinds, sort, wanted)
            if self.db.tables:
                self._come_and_go()
                self._compare(block, "maintained view", kinds, sort, wanted)
        except Exception as error:
            ours = isinstance(error, whence.WhenceError)
            said = str(error) if ours else f"{type(error).__name__}: {error}"
            self.report.note(self.path, block, "maintained view", REFUSED if ours else FAILED, said)
        finally:
            self.db.execute(f"DROP VIEW {_KEPT}")

    def _compare(self, block: Block, what: str, kinds: str, sort: str, wanted: list[Row] | None) -> None:
        """Compare the view with the ad-hoc answer, or else with the file; rows of a view have no order."""
        rows = self.db[_KEPT].rows
        if wanted is not None:
            good = same_rows(bag(rows), bag(wanted))
        else:
            good = not block.expects or matches(rows, kinds, "rowsort" if sort == "nosort" else sort, block.rows)
        reason = f"rows differ: {rows[:3]}, expected {(wanted or block.rows)[:3]}"
        self.report.note(self.path, block, what, PASSED if good else FAILED, "" if good else reason)

    def _come_and_go(self) -> None:
        """Take all rows of all tables away, then bring them back by halves."""
        full = {name: self.db[name].rows for name in self.db.tables}
        with self.db.transaction():
            for name, rows in full.items():
                self.db.delete(name, rows)
        for half in (0, 1):
            with self.db.transaction():
                for name, rows in full.items():
                    self.db.insert(name, rows[half::2])


def _named(sql: str) -> str:
    """Return a query without its last semicolon."""
    return re.sub(r";\s*$", "", sql)


def run_files(paths: Iterable[Path], names: tuple[str, ...] = ("duckdb", "whence"), any_order: bool = False) -> Report:
    """Run files, each on a database of its own."""
    report = Report()
    for path in paths:
        FileRunner(path, report, names, any_order).run()
    return report
