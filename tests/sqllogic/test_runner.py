"""The runner of sqllogictest files: what it reads, and that it tells right from wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence
from tests.sqllogic.__main__ import main
from tests.sqllogic.answers import matches
from tests.sqllogic.reader import read_lines
from tests.sqllogic.run import FAILED, PASSED, REFUSED, FileRunner, Report

FILES = Path(__file__).parent / "files"
TABLE = ["statement ok", "CREATE TABLE t (a INT, b TEXT)", "", "statement ok", "INSERT INTO t VALUES (1, 'x')", ""]


def run(*lines: str) -> Report:
    """Run some lines after those that make a table of one row."""
    report = Report()
    FileRunner(Path("lines"), report).run(read_lines([*TABLE, *lines]))
    return report


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda p: p.name)
def test_file_of_each_style_passes_in_every_way(path: Path) -> None:
    report = Report()
    FileRunner(path, report).run()
    assert report.findings == []
    asked = report.counts["query", PASSED]
    assert asked > 1
    assert (report.counts["view", PASSED], report.counts["maintained view", PASSED]) == (asked, asked)


@pytest.mark.parametrize(
    ("lines", "verdict", "reason"),
    [
        (["query I", "SELECT a FROM t", "----", "2"], FAILED, "rows differ"),
        (["query I", "SELECT a FROM t", "----", "1", "1"], FAILED, "rows differ"),
        (["query I", "VALUES (2), (1)", "----", "1", "2"], FAILED, "order differs"),
        (["query I", "SELECT a FROM t", "----", "1 values hashing to " + 32 * "0"], FAILED, "rows differ"),
        (["statement error", "SELECT a FROM t"], FAILED, "accepted what should fail"),
        (["statement ok", "CREATE UNIQUE INDEX i ON t (a)"], REFUSED, "index"),
        (["query I", "SELECT c FROM t", "----", "1"], REFUSED, "c"),
        (["require icu", "", "statement error", "SELECT 1"], REFUSED, "requires icu"),
    ],
)
def test_what_does_not_hold_is_told(lines: list[str], verdict: str, reason: str) -> None:
    report = run(*lines)
    assert report.findings[0].verdict == verdict
    assert reason in report.findings[0].reason


def test_query_that_no_view_can_keep_passes_ad_hoc_and_is_refused_as_a_view() -> None:
    report = run("query II", "SELECT a, row_number() OVER (ORDER BY a) FROM t", "----", "1", "1")
    assert report.counts["query", PASSED] == 1
    assert [(f.what, f.verdict) for f in report.findings] == [("view", REFUSED)]


def test_maintained_view_that_loses_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows come back, but the view is told of half of them only."""
    insert = whence.Database.insert
    monkeypatch.setattr(whence.Database, "insert", lambda db, name, rows: insert(db, name, rows[1:]))
    report = run("query I", "SELECT COUNT(*) FROM t", "----", "1")
    assert [(f.what, f.verdict) for f in report.findings] == [("maintained view", FAILED)]


@pytest.mark.parametrize(
    ("rows", "kinds", "sort", "wanted", "good"),
    [
        ([(2,), (1,)], "I", "nosort", ["1", "2"], False),
        ([(2,), (1,)], "I", "rowsort", ["1", "2"], True),
        ([(1, 2), (2, 1)], "II", "valuesort", ["1", "1", "2", "2"], True),
        ([(0.1 + 0.2,)], "R", "nosort", ["0.300"], True),
        ([(None, "")], "IT", "nosort", ["NULL", "(empty)"], True),
        ([], "I", "nosort", [], True),
        ([], "I", "nosort", ["1"], False),
        ([(True,)], "I", "nosort", ["1"], True),
    ],
)
def test_answers_match_as_files_write_them(
    rows: list[tuple[object, ...]], kinds: str, sort: str, wanted: list[str], good: bool
) -> None:
    assert matches(rows, kinds, sort, wanted) is good


def test_command_prints_counts_and_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.test").write_text("\n".join([*TABLE, "query I", "SELECT a FROM t", "----", "7"]))
    assert main([str(FILES)]) == 0
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "maintained view" in said
    assert "bad.test:7" in said
