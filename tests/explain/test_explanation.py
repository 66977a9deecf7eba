"""Explanations: what they say, as a tree, as JSON, as DOT, and as a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import whence
from tests.explain.graphs import build, graphs, reachable
from whence.explain.ask.witnesses import find_witnesses
from whence.explain.graph import Tally
from whence.explain.show.choose import Ways, behind, choose
from whence.explain.show.explanation import Explanation
from whence.explain.show.layout import draw
from whence.explain.show.shares import shares
from whence.explain.show.tree import TreeLimits
from whence.model.errors import WhenceError

NETWORK = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
HOSTILE = '</script><script>alert("1")</script>{{body}}&amp;\n\x1b[31m\U0001f600'


def why(*arcs: tuple[str, str], src: str = "A", dst: str = "D") -> Explanation:
    with whence.open() as db:
        db.execute(NETWORK)
        db.insert("link", list(arcs))
        return db.why("reachable", src=src, dst=dst)


RING = [("A", "B"), ("B", "C"), ("A", "C"), ("C", "D"), ("C", "A")]


def link(*names: str) -> list[tuple[str, dict[str, Any]]]:
    return [("link", {"src": name[0], "dst": name[1]}) for name in names]


def rows(found: list[tuple[str, dict[str, Any]]]) -> set[str]:
    return {row["src"] + row["dst"] for _, row in found}


def test_what_it_says() -> None:
    found = why(*RING)
    assert found.holds
    assert found
    assert rows(found.base) == {"AB", "BC", "AC", "CD", "CA"}
    assert [rows(w) for w in found.witnesses] == [{"AC", "CD"}, {"AB", "BC", "CD"}]
    assert (found.witness_count, found.complete, found.exact) == (2, True, True)
    assert found.critical == link("CD")
    assert (found.view, found.row, found.epoch) == ("reachable", {"src": "A", "dst": "D"}, 1)
    assert sorted(found.formula.split(" ∧ ")) == ["(link(A, C) ∨ link(A, B)", "link(B, C))", "link(C, D)"]
    assert found.contributing == []
    assert repr(found) == (
        "<reachable(A, D) at epoch 1: 5 base rows, 2 minimal witnesses, the smallest of 2 rows, 1 critical>"
    )


def test_the_tree_has_the_smallest_way_first_and_ends_in_circles() -> None:
    lines = str(why(*RING)).splitlines()
    steps = [re.sub(r"reachable <- .*", "reachable <- …", line) for line in lines]
    assert steps == [
        "reachable(A, D) at epoch 1: 5 base rows, 2 minimal witnesses, the smallest of 2 rows, 1 critical",
        "reachable(A, D)",
        "├─ way 1 of 2: reachable <- …",
        "│  ├─ ● link(A, C)",
        "│  └─ reachable(C, D)",
        "│     ├─ way 1 of 2: reachable <- …",
        "│     │  └─ ● link(C, D)",
        "│     └─ way 2 of 2: reachable <- …",
        "│        ├─ ● link(C, A)",
        "│        └─ reachable(A, D)  (see above)",
        "└─ way 2 of 2: reachable <- …",
        "   ├─ ● link(A, B)",
        "   └─ reachable(B, D)",
        "      └─ reachable <- …",
        "         ├─ ● link(B, C)",
        "         └─ reachable(C, D)  (see above)",
        "minimal witnesses, smallest first:",
        "  1  link(A, C), link(C, D)",
        "  2  link(A, B), link(B, C), link(C, D)",
        "critical: link(C, D)",
    ]


def test_much_is_counted_in_place_of_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.explain.show.layout.MOST", 160)
    arcs = [("A", f"m{i}") for i in range(60)] + [(f"m{i}", "D") for i in range(60)]
    found = why(*arcs)
    text = str(found)
    assert "… and 56 more ways" in text
    assert len(text.splitlines()) < 50
    assert len(found.witnesses) == 10
    assert found.witness_count == 60
    few = found.text(TreeLimits(ways=1, room=8)).plain
    assert "… and 59 more ways" in few
    assert not found.drawn.whole
    page = found.to_html()
    assert page.count('class="mark base"') == 20
    assert "too large to be drawn" in page
    assert "10 of 60" in page


def test_a_row_that_is_not_there() -> None:
    found = why(*RING, src="D", dst="A")
    assert not found.holds
    assert not found
    assert (found.base, found.witnesses, found.witness_count, found.critical) == ([], [], 0, [])
    assert (found.formula, found.contributing) == ("⊥", [])
    assert str(found).splitlines()[0] == "reachable(D, A) is not in the view at epoch 1"
    assert json.loads(found.to_json())["holds"] is False
    with pytest.raises(WhenceError, match="no derivations"):
        _ = found.graph
    assert "no reachable(D, A)" in found.to_dot()
    told = Explanation.of_missing("v", {"x": None, "y": "<i>"}, 3, ["because of <b>"])
    assert str(told).splitlines() == ["v(NULL, <i>) is not in the view at epoch 3", "  because of <b>"]
    assert "because of &lt;b&gt;" in told.to_html()
    assert "<i>" not in told.to_html().split("<style>")[0]


def test_json_says_it_all(tmp_path: Path) -> None:
    found = why(*RING)
    said = json.loads(found.to_json(tmp_path / "why.json"))
    assert json.loads((tmp_path / "why.json").read_text()) == said
    assert said["row"] == {"src": "A", "dst": "D"}
    base = [one["row"]["src"] + one["row"]["dst"] for one in said["base"]]
    assert [{base[i] for i in w} for w in said["witnesses"]["found"]] == [{"AC", "CD"}, {"AB", "BC", "CD"}]
    assert [base[i] for i in said["critical"]] == ["CD"]
    graph = said["graph"]
    there = {i for i, node in enumerate(graph["nodes"]) if node["kind"] == "base"}
    for _ in graph["nodes"]:
        there |= {d["head"] for d in graph["derivations"] if there.issuperset(d["body"])}
    assert graph["root"] in there
    assert graph["nodes"][graph["root"]] == {"kind": "view", "name": "reachable", "row": {"src": "A", "dst": "D"}}


def test_dot_has_every_row_and_step() -> None:
    found = why(*RING)
    text = found.to_dot()
    assert text.startswith("digraph why {")
    assert len(re.findall(r"^  n\d+ \[", text, re.M)) == len(found.graph)
    assert len(re.findall(r"^  d\d+ \[", text, re.M)) == len(found.graph.head)
    assert len(re.findall(r"^  d\d+ -> n\d+;", text, re.M)) == len(found.graph.body)


class Reader(HTMLParser):
    """What a browser makes of a page: its tags, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.text.append(data)


def test_the_page_needs_nothing_else_and_lights_up_witnesses(tmp_path: Path) -> None:
    found = why(*RING)
    page = Reader(found.to_html(tmp_path / "why.html"))
    assert (tmp_path / "why.html").read_text(encoding="utf-8") == found.to_html()
    assert not [attrs for _, attrs in page.tags if attrs.get("src") or attrs.get("href")]
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg", "", found.to_html())
    marks = [attrs for tag, attrs in page.tags if tag == "g" and "data-mark" in attrs]
    labels = [str(attrs["aria-label"]) for attrs in marks]
    assert sorted(label for label in labels if label.startswith("base row")) == [
        f"base row: link({a}, {b})" for a, b in sorted(RING)
    ]
    assert sum(label.startswith("row of a view") for label in labels) == 3
    assert sum(label.startswith("step") for label in labels) == len(found.graph.head)
    data = json.loads(page.scripts[0])
    lit = [{labels[[m["data-mark"] for m in marks].index(str(i))] for i in w} for w in data["witnesses"]]
    assert {label for label in lit[0] if not label.startswith("step")} == {
        "row of a view: reachable(A, D)",
        "row of a view: reachable(C, D)",
        "base row: link(A, C)",
        "base row: link(C, D)",
    }
    assert {label for label in lit[1] if label.startswith("base")} == {
        "base row: link(A, B)",
        "base row: link(B, C)",
        "base row: link(C, D)",
    }


def test_hostile_values_stay_values() -> None:
    with whence.open() as db:
        db.execute(
            'CREATE TABLE t ("<b>" TEXT, n INT); CREATE VIEW v AS SELECT "<b>", SUM(n) AS s FROM t GROUP BY "<b>"'
        )
        db.insert("t", [(HOSTILE, 1), (HOSTILE, 2)])
        found = db.why("v", row=(HOSTILE, 3))
        what = db.what_if(delete={"t": [(HOSTILE, 1)]})
        supposed = what.to_html()
    page = Reader(found.to_html())
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in {tag for tag, attrs in page.tags if "data-mark" in attrs}
    assert any("alert" in text and "{{body}}" in text for text in page.text)
    assert "\x1b" not in found.to_html()
    assert "\x1b" not in str(found) + str(what) + supposed
    assert len(str(found).splitlines()) == 6
    assert [tag for tag, _ in Reader(supposed).tags].count("script") == 2
    assert '\\"1\\"' in found.to_dot()


def test_rows_of_a_group_have_their_share() -> None:
    with whence.open() as db:
        db.execute(
            """CREATE TABLE sale (item TEXT, price INT);
               CREATE VIEW total AS SELECT item, SUM(price) AS s, COUNT(*) AS n, MIN(price) AS least,
                                           COUNT(DISTINCT price) AS kinds FROM sale GROUP BY item"""
        )
        db.insert("sale", [("tea", 3), ("tea", 3), ("tea", 4), ("tea", None), ("cake", 9)])
        found = db.why("total", item="tea")
    by = {one.row["price"]: one for one in found.contributing}
    assert {price: one.copies for price, one in by.items()} == {3: 2, 4: 1, None: 1}
    parts = {price: [share.part for share in one.shares] for price, one in by.items()}
    assert parts[3] == [0.6, 0.5, None, 0.5]
    assert parts[4] == [0.4, 0.25, None, 0.5]
    assert parts[None] == [None, 0.25, None, None]
    assert {price: one.shares[2].best for price, one in by.items()} == {3: True, 4: False, None: False}
    assert "● sale(tea, 4)  4: 40 % of SUM, 25 % of COUNT, 4: not the MIN, 4: 50 % of COUNT" in str(found) or (
        "4: 40 % of SUM" in str(found)
    )
    assert "Rows of the group" in found.to_html()
    assert len(json.loads(found.to_json())["contributing"]) == 3


def test_shares_add_up_to_the_whole() -> None:
    tally = Tally((("sum", False), ("avg", False), ("count", False)), np.array([1, 2]), ((6, 6, 1), (2, 2, 1)))
    graph = build(2, [(2, [0, 1])], [2], tallies={2: tally})
    assert [sum(share.part or 0 for share in column) for column in shares(graph, 2)] == [1, 1, 1]


@given(graphs(tallies=True))
def test_every_graph_can_be_told_and_drawn(graph: Any) -> None:
    found = Explanation(graph, "v", {"n": 0}, 1)
    assert str(found).splitlines()[1] == graph.label(found.root)
    marks = draw(graph, found.drawn).marks
    for layer in {m.layer for m in marks}:
        across = sorted((m.x, m.wide) for m in marks if m.layer == layer)
        assert all(a + w / 2 <= b - v / 2 + 1e-6 for (a, w), (b, v) in pairwise(across))
    assert found.to_html().endswith("</html>\n")
    json.loads(found.to_json())


@given(graphs())
def test_what_is_chosen_derives_the_row(graph: Any) -> None:
    """With however little room; and from each witness alone where the witnesses are what is chosen."""
    root = int(graph.roots[0])
    ways, found = Ways(graph), find_witnesses(graph, 5).found
    for chosen, leaves in [
        *((choose(ways, root, room), graph.base) for room in (1, 6, 20)),
        *((behind(graph, root, [w], 1000), w) for w in found),
    ]:
        there = {n for n in chosen.nodes if graph.kind(n) == "absence"} | {int(n) for n in leaves}
        for _ in chosen.nodes:
            there |= {int(graph.head[d]) for d, body in chosen.derivations.items() if there.issuperset(body)}
        assert root in there
        assert set(chosen.nodes) >= {n for d, body in chosen.derivations.items() for n in (int(graph.head[d]), *body)}
    assert choose(ways, root, 10_000).whole


def test_a_large_graph_is_told_at_once() -> None:
    rng = np.random.default_rng(1)
    arcs = sorted({(int(a), int(b)) for a, b in rng.integers(0, 120, (900, 2)) if a != b})
    graph = reachable(arcs, arcs[0][0], arcs[-1][1])
    found = Explanation(graph, "v", {"n": 0}, 1)
    assert len(str(found).splitlines()) < 130
    assert found.to_html().count('class="mark') < 200


# -- what would be left ------------------------------------------------------------------------------------------------


def test_it_holds_without_rows_that_others_stand_in_for() -> None:
    found = why(*RING)
    assert found.holds_without({})
    assert found.holds_without({"link": [("A", "C")]})
    assert found.holds_without({"LINK": [{"src": "A", "dst": "B"}, ("C", "A")]})
    assert not found.holds_without({"link": [("A", "C"), {"dst": "C", "src": "B"}]})
    assert not found.holds_without({"link": [("C", "D")]})
    assert found.holds_without({"link": [("X", "Y"), ("D", "C"), (None, "D")]})  # not behind it
    assert not why(*RING, dst="X").holds_without({})


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"lnik": [("A", "C")]}, 'there is no table "lnik"; there are link, other'),
        ({"reachable": [("A", "D")]}, 'there is no table "reachable"'),
        ({"link": [("A",)]}, "table link, row 1: 1 values for the 2 columns"),
        ({"link": [{"from": "A"}]}, "table link, row 1: no column from"),
        ({"other": [("A", "B")]}, "table other, row 1: 2 values for the 1 columns"),
        ({"other": [("A",)]}, "table other, row 1, column n: 'A'"),
    ],
)
def test_what_cannot_be_lost_is_an_error(lost: dict[str, list[Any]], said: str) -> None:
    with whence.open() as db:
        db.execute(f"{NETWORK} CREATE TABLE other (n INT)")
        db.insert("link", RING)
        found = db.why("reachable", src="A", dst="D")
        words = len(found.graph.dictionary)
        with pytest.raises(WhenceError, match=re.escape(said)):
            found.holds_without(lost)
        assert found.holds_without({"other": [(1,)], "link": [("new", "words")]})
        assert len(found.graph.dictionary) == words


def test_lost_values_are_taken_as_an_insert_takes_them() -> None:
    with whence.open() as db:
        db.execute("""CREATE TABLE t (w DOUBLE, p DECIMAL(5, 2), d DATE, n INT);
            CREATE VIEW v AS SELECT COUNT(*) AS n FROM t""")
        day = "2024-02-29"
        db.insert("t", [(float("nan"), 1.5, day, None), (2, None, None, 7)])
        found = db.why("v", n=2)
        assert found.holds_without({"t": [(float("nan"), 1.5, day, 0)]})
        assert not found.holds_without({"t": (float("nan"), 1.5, day, None)})
        assert not found.holds_without({"t": [{"w": 2.0, "p": None, "d": None, "n": 7}]})
        with pytest.raises(WhenceError, match="table t, row 1: no values for columns p, d"):
            found.holds_without({"t": [{"w": 2.0, "n": 7}]})
