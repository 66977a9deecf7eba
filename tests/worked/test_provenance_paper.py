"""Paper 000 on one node: Figure 2's provenance after every step, the deletion of link(C, B), and aggregate selection.

What is shipped between nodes is in `test_shipping.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests import inside
from tests.runtime.test_provenance import EAGER, LAZY, Witnesses, links, opened, provenance_of, sets, witnesses
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.model.codes import Codes

FIGURE_2 = "AB BC CA CB"  # p1, p2, p3, p4
BASE = {"AB": sets("AB"), "BC": sets("BC"), "CA": sets("CA"), "CB": sets("CB")}
STEP_1 = BASE | {
    "CB": sets("CB", "AB CA"),
    "AC": sets("AB BC"),
    "BA": sets("BC CA"),
    "BB": sets("BC CB"),
    "CC": sets("BC CB"),
}
STEP_2 = STEP_1 | {
    "AA": sets("AB BC CA"),
    "BB": sets("BC CB", "AB BC CA"),
    "CC": sets("BC CB", "AB BC CA"),
}


def everything(db: whence.Database) -> dict[str, Witnesses]:
    return {a + b: witnesses(db, a + b) for a, b in db["reachable"]}


def test_figure_2_the_provenance_of_all_nine_rows_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[dict[str, Witnesses]] = []
    merge = AnnotatedPolicy.merge

    def watched(self: AnnotatedPolicy, block: Codes) -> Codes:
        changed = merge(self, block)
        (reachable,) = np.flatnonzero(self.mailbox.published).tolist()
        rows = self.runner.store.live(reachable)
        said = zip(rows.tolist(), self.annotations_of(reachable, rows).tolist(), strict=True)
        text = {tuple(row): self.formulas.witnesses(handle, 9) for row, handle in said}
        steps.append({"".join(map(word, row)): {frozenset(map(link, w)) for w in ws} for row, ws in text.items()})
        return changed

    with opened(EAGER) as db:

        def word(code: int) -> str:
            return str(inside.dictionary(db).value(code))

        def link(name: int) -> str:
            return "".join(map(word, provenance_of(db).variables.rows(np.array([name]))[1][0].tolist()))

        monkeypatch.setattr(AnnotatedPolicy, "merge", watched)
        db.insert("link", links(FIGURE_2))
        assert steps == [BASE, STEP_1, STEP_2, STEP_2]
        assert everything(db) == STEP_2


@pytest.mark.parametrize("options", [EAGER, LAZY, "maintain = 'relative'"])
def test_deleting_link_c_b_removes_no_row(options: str) -> None:
    with opened(options) as db:
        db.insert("link", links(FIGURE_2))
        feed = db.changes("reachable")
        db.delete("link", links("CB"))
        assert list(feed) == []
        assert len(db["reachable"]) == 9
        # On the ring that is left there is one reason for each row.
        assert everything(db) == {row: {w for w in found if "CB" not in w} for row, found in STEP_2.items()}


def test_lazily_every_row_has_some_of_figure_2() -> None:
    with opened(LAZY) as db:
        db.insert("link", links(FIGURE_2))
        said = everything(db)
        assert said.keys() == STEP_2.keys()
        assert all(said[row] and said[row] <= STEP_2[row] for row in said)


@pytest.mark.parametrize("options", [LAZY, EAGER, "maintain = 'relative'"])
def test_algorithm_3_the_next_best_value_comes_back(options: str) -> None:
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE link (src TEXT, dst TEXT, cost INT);
            CREATE VIEW path WITH ({options}) AS
              SELECT src, dst, cost FROM link
              UNION
              SELECT link.src, path.dst, link.cost + path.cost FROM link JOIN path ON link.dst = path.src;
            CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;
        """)
        db.insert("link", [("A", "B", 1), ("B", "C", 1), ("A", "C", 3), ("A", "C", 5), ("C", "A", 9)])
        assert "aggregate selection: only rows with the MIN(cost) of their src, dst are kept" in db.explain("path")

        def cost() -> int:
            (found,) = (c for a, b, c in db["cheapest"] if a + b == "AC")
            return int(found)

        assert cost() == 2
        db.delete("link", ("B", "C", 1))
        assert cost() == 3
        db.delete("link", ("A", "C", 3))
        assert cost() == 5
        db.insert("link", ("B", "C", 2))
        assert cost() == 3
        db.delete("link", ("A", "B", 1))
        assert cost() == 5
