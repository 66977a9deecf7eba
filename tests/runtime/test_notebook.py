"""What notebooks show: HTML that is well formed, escaped, needs nothing else, and says what the text says."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from whence.io import html
from whence.io.grid import Grid

VOID = {"br", "meta", "hr", "img", "link", "input"}
TAGS = set(
    re.findall(
        r"\w+",
        "div style table thead tbody tr th td span details summary ul ol li svg g path rect text title defs marker",
    )
)
HOSTILE = "<script>alert(1)</script>&amp;\"'</td></table><img src=x onerror=y>"
GRAPH = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE VIEW reachable AS SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src
"""


class Parsed(HTMLParser):
    """The cells, text and tags of a fragment; every tag is closed, in order, and is one of ours."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href")
            assert "javascript:" not in (value or "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            assert "url(" not in data
            assert "@import" not in data
            return
        self.texts.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def shown(thing: Any) -> Parsed:
    text = thing._repr_html_()
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text
    return Parsed(text)


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as db:
        db.execute(GRAPH)
        db.insert("link", [("A", "B"), ("B", "C"), ("A", "C"), ("C", "D")])
        yield db


def test_a_database_shows_its_tables_streams_and_views(db: whence.Database) -> None:
    db.execute("CREATE STREAM s (x INT); CREATE VIEW twice AS SELECT x * 2 AS y FROM s")
    db.insert("s", [(1,), (2,)])
    found = shown(db)
    assert found.tables == [
        [
            ["name", "kind", "columns", "rows"],
            ["link", "table", "src TEXT, dst TEXT", "4"],
            ["s", "stream", "x INTEGER", "2"],
            ["reachable", "view", "src TEXT, dst TEXT", "6"],
            ["twice", "stream view", "y BIGINT", "2"],
        ]
    ]
    assert repr(db)[1:-1] in found.text


def test_a_database_in_partitions_shows_the_same(db: whence.Database) -> None:
    with whence.open(partitions=3) as parts:
        parts.execute(GRAPH)
        parts.insert("link", db["link"].rows)
        assert shown(parts).tables == shown(db).tables
        assert sorted(shown(parts["reachable"]).tables[0]) == sorted(shown(db["reachable"]).tables[0])


def test_a_followed_database_and_a_past_epoch_show_what_they_read(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", retain=5) as db:
        db.execute(GRAPH)
        db.insert("link", [("A", "B")])
        db.insert("link", [("B", "C")])
        with whence.open(tmp_path / "db", read_only=True) as reader:
            assert shown(reader).tables == shown(db).tables
        assert shown(db.at(1)).tables[0][1][-1] == "1"
        assert str(tmp_path / "db") in shown(db).text


def test_a_table_shows_some_rows_and_how_many_there_are(db: whence.Database) -> None:
    db.execute("CREATE TABLE n (x INT)")
    db.insert("n", [(i,) for i in range(5000)])
    found = shown(db["n"])
    assert len(found.tables[0]) == 21
    assert "20 of 5,000 rows" in found.text
    assert "20 of 5,000 rows" in repr(db["n"])


def test_values_are_shown_as_in_the_text(db: whence.Database) -> None:
    db.execute("CREATE TABLE v (i INT, d DECIMAL(9, 2), b BOOLEAN, s INTERVAL, t TIMESTAMP, x TEXT)")
    when = datetime.datetime(2024, 1, 2, 3, 4)
    db.insert("v", [(1, Decimal("1.50"), True, whence.Interval(0, 1, 0), when, "a"), (None,) * 6])
    text = db["v"]._repr_html_()
    rows = [["1", "1.50", "true", "P1D", "2024-01-02 03:04:00", "a"], ["NULL"] * 6]
    assert Parsed(text).tables[0][1:] == rows
    assert all(value in repr(db["v"]) for value in rows[0])
    assert text.count('<span class="dim">NULL</span>') == 6
    assert '<td class="num">1</td>' in text
    assert "<td>1.50</td>" in text
    assert shown(db.query("SELECT * FROM v ORDER BY i")).tables == Parsed(text).tables


def test_the_text_of_a_thing_displays_nothing_in_a_notebook(db: whence.Database, monkeypatch: Any) -> None:
    import rich.console

    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    assert "6 rows" in repr(db["reachable"])
    assert "6 rows" in repr(db.query("SELECT * FROM reachable"))
    assert "base rows" in repr(db.critical("reachable"))
    assert "1 gone" in repr(db.what_if(delete={"link": ("C", "D")}))


def test_a_result_without_rows_shows_its_message_and_warnings(db: whence.Database) -> None:
    result = db.execute("CREATE TABLE IF NOT EXISTS link (src TEXT)")
    found = shown(result)
    assert not found.tables
    assert result.message in found.text
    assert all(warning in found.text for warning in result.warnings)


def test_a_feed_shows_what_waits_and_keeps_it(db: whence.Database) -> None:
    changes = db.changes("reachable")
    assert "0 changes to be read" in shown(changes).text
    with db.transaction():
        db.delete("link", ("C", "D"))
        db.insert("link", [("D", f"E{i}") for i in range(30)])
    before = shown(changes)
    assert before.tables[0][0] == ["epoch", "", "src", "dst"]
    assert before.tables[0][1][:2] == ["2", "−"]
    assert "20 of 33 changes" in before.text
    first = next(iter(changes))
    assert "20 of 32 changes" in shown(changes).text
    assert [str(first.epoch), "−", *first.row] == before.tables[0][1]
    assert len(list(changes)) == 32
    assert "0 changes to be read" in shown(changes).text
    assert f"({', '.join(first.row)})" in shown(first).text


def test_what_if_shows_each_change(db: whence.Database) -> None:
    found = shown(db.what_if(delete={"link": [("C", "D")]}, insert={"link": [("D", "E")]}))
    assert found.tables[0] == [["", "src", "dst"], ["−", "C", "D"], ["+", "D", "E"]]
    assert "3 gone, 1 new" in found.text
    assert "nothing would change" in shown(db.what_if()).text
    assert shown(db.what_if(insert={"link": [("D", "E")]}).tables["link"]).tables[0][1:] == [["+", "D", "E"]]


def says_its_text(why: whence.Explanation) -> Parsed:
    """Check that every line of the text is shown; numbers of witnesses and a heading aside."""
    found = shown(why)
    for line in re.sub(r"[├└│─]", " ", str(why)).splitlines():
        wanted = re.sub(r"^\d+  |^minimal.*:$", "", line.strip())
        assert wanted in found.text, wanted
    return found


def test_an_explanation_shows_what_its_text_says(db: whence.Database) -> None:
    why = db.why("reachable", src="A", dst="D")
    found = says_its_text(why)
    assert found.tables[0][1:] == [["2", "link(A, C), link(C, D)"], ["3", "link(A, B), link(B, C), link(C, D)"]]
    assert "<svg" in why._repr_html_()


def test_an_explanation_of_a_missing_row_shows_what_its_text_says(db: whence.Database) -> None:
    assert not says_its_text(db.why("reachable", src="D", dst="A")).tables


def test_a_large_explanation_is_short(db: whence.Database) -> None:
    nodes = [f"n{i}" for i in range(12)]
    db.insert("link", [(a, b) for a in nodes for b in nodes if a != b])
    why = db.why("reachable", src="n0", dst="n11")
    text = why._repr_html_()
    assert len(text) < 60_000
    assert "<svg" not in text
    assert "more way" in Parsed(text).text


def test_answers_show_the_numbers_of_their_text(db: whence.Database) -> None:
    row = {"src": "A", "dst": "D"}
    for answer in (
        db.critical("reachable"),
        db.critical("reachable", row),
        db.resilience("reachable", row),
        db.contribution("reachable", row),
    ):
        words = repr(answer).split()
        found = " ".join([shown(answer).text, *(c for t in shown(answer).tables for r in t for c in r)])
        assert [word for word in words if not set(word) <= {"─"} and word not in found] == []
    reliability = db.reliability("reachable", row, given={"link": 0.9})
    assert str(reliability) in shown(reliability).text


def test_rows_of_streams_show_where_they_came_from_and_went() -> None:
    db = whence.open()
    db.execute("""CREATE STREAM s (x INT);
                  CREATE VIEW w WITH (provenance = 'lineage') AS
                    SELECT SUM(x) AS s FROM slide(s, rows => 2, every => 1);
                  CREATE VIEW sorted AS SELECT x FROM bsort(s, on => x, slack => 0)""")
    db.insert("s", [(5,), (7,), (1,), (8,)])
    assert "s:2(7)" in shown(db.why("w", tid=1)).text
    assert "w:1(12)" in shown(db.trace("s", 2)).text
    assert shown(db.late("sorted")).tables[0][1:] == [["1"]]


def test_annotations_show_their_witnesses() -> None:
    db = whence.open()
    db.execute("CREATE TABLE link (a INT, b INT)")
    db.execute("""CREATE VIEW reach WITH (maintain = 'absorption', propagate = 'eager') AS
                    SELECT a, b FROM link UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a""")
    db.insert("link", [(1, 2), (2, 3), (1, 3)])
    found = shown(db.annotation("reach", a=1, b=3))
    assert found.tables[0][1:] == [["1", "link(1, 3)"], ["2", "link(1, 2), link(2, 3)"]]


def test_reports_of_folders_show_their_fields(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(GRAPH)
        db.insert("link", [("A", "B")])
        assert ["epoch", "1"] in shown(db.backup(tmp_path / "copy")).tables[0]
        assert ["replayed", "0"] in shown(db.recovery).tables[0]
        assert ["views", "reachable"] in shown(db.export(tmp_path / "out")).tables[0]
    assert ["tables", "link: 1"] in shown(whence.check(tmp_path / "copy")).tables[0]
    assert ["tables", "link: 1"] in shown(whence.import_database(tmp_path / "out", tmp_path / "in")).tables[0]


@given(st.lists(st.text(st.characters(), max_size=40) | st.just(HOSTILE), min_size=1, max_size=4))
def test_no_text_is_taken_for_markup(texts: list[str]) -> None:
    found = Parsed(Grid(["text"], [(text,) for text in texts], len(texts), texts[0], texts[-1]).html())
    cells = [row[0] for row in found.tables[0][1:]]
    assert len(cells) == len(texts)
    for cell, text in zip(cells, texts, strict=True):
        assert cell.isprintable() or {c for c in cell if not c.isprintable()} <= set("\n\t\u200c\u200d\u00a0")
        if text.isprintable():
            assert cell == text


@given(st.text(st.characters(), max_size=20) | st.just(HOSTILE))
def test_no_name_or_row_is_taken_for_markup(text: str) -> None:
    whole = html.fragment(html.line(text, "dim"), html.folded(text, ""), html.tree([(0, text, "x")]))
    Parsed(whole)
    assert "<script" not in whole
    assert "\u202e" not in whole


def test_hostile_rows_stay_text_in_every_form() -> None:
    db = whence.open()
    db.execute(GRAPH)
    changes = db.changes("reachable")
    db.insert("link", [(HOSTILE, "\u202e\x1b[31m\0"), ("\u202e\x1b[31m\0", "x" * 5000)])
    what = db.what_if(delete={"link": [(HOSTILE, "\u202e\x1b[31m\0")]})
    why = db.why("reachable", src=HOSTILE, dst="x" * 5000)
    missing = db.why("reachable", src="x", dst=HOSTILE)
    answers = [db.critical("reachable"), db.contribution("reachable", src=HOSTILE, dst="x" * 5000)]
    query = db.query("SELECT * FROM reachable")
    for thing in (db["reachable"], query, changes, what, why, missing, *answers, next(iter(changes))):
        text = thing._repr_html_()
        assert "<script" not in text
        assert not set("\u202e\x1b\0") & set(text)
        assert "x" * 1000 not in text
        Parsed(text)


def test_trees_fold_below_their_first_levels() -> None:
    deep = html.tree([(i, str(i), "") for i in range(8)])
    assert (deep.count("<details open>"), deep.count("<details>")) == (4, 3)
    Parsed(deep)
