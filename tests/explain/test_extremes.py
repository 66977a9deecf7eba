"""Questions at the edges: very long derivations, values that mean something elsewhere, and what cannot be meant."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import whence
from whence.explain.ask.contribution import compute_contribution
from whence.explain.ask.evaluate import Evaluator
from whence.model.errors import CatalogError, DataError

LONG = 3_000
CHAIN = """
    CREATE TABLE link (src INT, dst INT); CREATE TABLE start (x INT);
    CREATE VIEW reach AS SELECT x FROM start UNION SELECT link.dst FROM link JOIN reach ON link.src = reach.x;
    CREATE VIEW many AS SELECT COUNT(*) AS n FROM reach;
    CREATE VIEW middle AS SELECT AVG(x) AS x FROM reach;
"""


@pytest.fixture(scope="module")
def chain() -> whence.Database:
    db = whence.open()
    db.execute(CHAIN)
    db.insert("link", [(i, i + 1) for i in range(LONG)])
    db.insert("start", [(0,)])
    return db


def test_a_long_chain_has_one_witness_and_a_page_of_some_size(chain: whence.Database) -> None:
    why = chain.why("reach", x=LONG)
    assert (why.witness_count, why.complete, len(why.witnesses[0])) == (1, True, LONG + 1)
    begin = time.perf_counter()
    page = why.to_html()
    assert time.perf_counter() - begin < 15  # going through all of it again and again took 107 s for 5,000 links
    assert len(page) < 2_000_000
    assert len(why.to_dot()) < 1_000_000
    assert not why.drawn.whole
    assert "reach(3000)" in page
    assert json.loads(why.to_json())["witnesses"]["count"] == 1


def test_what_is_drawn_of_long_groups_is_bounded(chain: whence.Database) -> None:
    why = chain.why("middle", row=(LONG / 2,))
    assert len(why.drawn.nodes) + len(why.drawn.derivations) < 5_000
    assert not why.drawn.whole
    assert "more way" in str(why) or "more row" in str(why)


def test_one_critical_row_is_a_least_loss(chain: whence.Database) -> None:
    begin = time.perf_counter()
    assert chain.resilience("many", n=LONG + 1).count == 1
    assert time.perf_counter() - begin < 3  # simplifying first took 33 s for 5,000 links


def test_fewer_samples_are_drawn_of_very_many_base_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    db = whence.open()
    db.execute(CHAIN)
    db.insert("link", [(i, j) for i in range(6) for j in range(6)])
    db.insert("start", [(0,)])
    graph = db.why("reach", x=5).graph
    monkeypatch.setattr("whence.explain.ask.contribution.WORK", 50_000)
    assert compute_contribution(graph, limit=1).samples == 50_000 // len(Evaluator(graph).graph.base)
    assert compute_contribution(graph, limit=1, samples=70).samples == 70


@pytest.mark.parametrize("text", ["[/bold]", "[red]x", "</script><script>alert(1)</script>", "a\nb\x1b[2J"])
def test_values_mean_nothing_to_what_shows_them(text: str) -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a TEXT); CREATE VIEW v AS SELECT DISTINCT a FROM t")
    db.insert("t", [(text,)])
    shown = [repr(ask("v", a=text)) for ask in (db.critical, db.resilience, db.contribution)]
    for one in shown:
        assert "\x1b" not in one
        assert text.isprintable() is False or text in one
    assert "<script>alert" not in db.why("v", a=text).to_html()
    json.loads(db.why("v", a=text).to_json())


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (None, DataError, "given is a dict"),
        (0.5, DataError, "given is a dict"),
        ({"t": [1]}, DataError, "from 0 to 1"),
        ({"t": {"a": 1}}, DataError, "from 0 to 1"),
        ({3: 0.5}, CatalogError, 'no table "3"'),
        ({"v": 0.5}, CatalogError, "is a view"),
        ({"elsewhere": "nope"}, CatalogError, 'no column "nope"'),
    ],
)
def test_what_cannot_be_given(given: Any, error: type[Exception], says: str) -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT DISTINCT a FROM t; CREATE TABLE elsewhere (p DOUBLE)")
    db.insert("t", [(1,)])
    with pytest.raises(error, match=says):
        db.reliability("v", a=1, given=given)


def test_samples_and_confidence_and_columns_that_are_none() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT DISTINCT a FROM t")
    db.insert("t", [(1,)])
    with pytest.raises(DataError, match="samples is a whole number"):
        db.contribution("v", a=1, samples=0)
    with pytest.raises(DataError, match="samples is a whole number"):
        db.reliability("v", a=1, given={}, samples=0)
    with pytest.raises(DataError, match="confidence lies between"):
        db.reliability("v", a=1, given={}, confidence=2)
    with pytest.raises(CatalogError, match='no column "1"'):
        db.why("v", row={1: 2})  # type: ignore[dict-item]
