"""An auditor's questions (examples/audit.sql): by what right somebody sees a document, and what would change it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import whence

EXAMPLES = Path(__file__).parents[2] / "examples"
SUPER = {"holds": [("board", "super_admin")]}


@pytest.fixture(params=[None, 2], ids=["embedded", "2 partitions"])
def db(request: pytest.FixtureRequest) -> whence.Database:
    db = whence.open(partitions=request.param)
    db.execute((EXAMPLES / "audit.sql").read_text())
    with db.transaction():
        db.insert("person", [("ada",), ("bob",), ("eve",)])
        db.insert("member", [("ada", "board"), ("ada", "audit"), ("bob", "audit"), ("eve", "board"), ("eve", "guests")])
        db.insert("holds", [("board", "super_admin"), ("audit", "reader")])
        db.insert("implies", [("super_admin", "owner"), ("owner", "reader")])
        db.insert("granted", [("reader", "reports"), ("super_admin", "secrets")])
        db.insert("folder", [("reports", None), ("reports/2026", "reports"), ("secrets", None)])
        db.insert("document", [("budget", "reports/2026"), ("keys", "secrets")])
    return db


def facts(rows: Any) -> set[tuple[str, tuple[Any, ...]]]:
    return {(table, tuple(row.values())) for table, row in rows}


def test_all_the_independent_ways(db: whence.Database) -> None:
    why = db.why("sees", person="ada", document="budget")
    common = {
        ("person", ("ada",)),
        ("granted", ("reader", "reports")),
        ("folder", ("reports", None)),
        ("folder", ("reports/2026", "reports")),
        ("document", ("budget", "reports/2026")),
    }
    by_audit = {("member", ("ada", "audit")), ("holds", ("audit", "reader"))}
    by_board = {
        ("member", ("ada", "board")),
        ("holds", ("board", "super_admin")),
        ("implies", ("super_admin", "owner")),
        ("implies", ("owner", "reader")),
    }
    assert [facts(w) for w in why.witnesses] == [common | by_audit, common | by_board]
    assert why.complete
    assert why.witness_count == 2
    assert facts(why.critical) == facts(db.critical("sees", person="ada", document="budget")) == common
    assert facts(why.base) == common | by_audit | by_board


def test_super_admin_alone_or_not(db: whence.Database) -> None:
    alone = {row: not db.why("sees", row=row).holds_without(SUPER) for row in db["sees"]}
    assert alone == {
        ("ada", "budget"): False,
        ("ada", "keys"): True,
        ("bob", "budget"): False,
        ("eve", "budget"): True,
        ("eve", "keys"): True,
    }


def test_what_if_the_board_loses_the_role(db: whence.Database) -> None:
    before = sorted(db["sees"])
    found = db.what_if(delete=SUPER)
    assert found["sees"].deleted == [("ada", "keys"), ("eve", "budget"), ("eve", "keys")]
    assert not found["sees"].inserted
    assert sorted(db["sees"]) == before
    db.delete("holds", SUPER["holds"])
    assert sorted(db["sees"]) == [("ada", "budget"), ("bob", "budget")]


def test_critical_grants(db: whence.Database) -> None:
    counts = {fact: count for base, count in db.critical("sees").items() for fact in facts([base])}
    assert counts["granted", ("reader", "reports")] == 3
    assert counts["holds", ("board", "super_admin")] == 3
    assert counts["holds", ("audit", "reader")] == 1
    assert ("member", ("ada", "audit")) not in counts  # ada sees the budget through the board, too
    assert db.resilience("sees", person="ada", document="keys").count == 1


def test_what_a_denial_takes_away(db: whence.Database) -> None:
    assert db.what_if(insert={"denied": [("guests", "reports")]})["sees"].deleted == [("eve", "budget")]
    db.insert("denied", [("guests", "reports")])
    missing = db.why("sees", person="eve", document="budget")
    assert not missing.holds
    assert "forbidden" in " ".join(missing.reasons)
    assert db.what_if(delete={"denied": [("guests", "reports")]})["sees"].inserted == [("eve", "budget")]


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "audit.py"))
    said = capsys.readouterr().out
    assert "eve sees budget through super_admin alone" in said
    assert "ada sees budget also without super_admin" in said
