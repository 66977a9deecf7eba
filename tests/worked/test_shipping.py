"""Three nodes and four links, each node in a partition of its own: what is shipped, and why each row is there.

The example of paper 000, Figures 2 and 5. Links A->B, B->C, C->A, C->B are p1 to p4; every node ends up reaching every
node, and goes on doing so without link C->B.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

import whence
from tests import inside
from whence.annotate.absorption import Absorption
from whence.engine.exchange.kernels.routing import route
from whence.engine.recursion.fixpoint import annotated_policy
from whence.engine.recursion.iterative import has_peers
from whence.engine.recursion.policies.annotated import AnnotatedPolicy

Row = tuple[str, str]
Reasons = dict[Row, set[frozenset[int]]]

LINKS: list[Row] = [("A", "B"), ("B", "C"), ("C", "A"), ("C", "B")]  # p1, p2, p3, p4


def why(*reasons: str) -> set[frozenset[int]]:
    """Minimal witnesses, each written as the numbers of its links."""
    return {frozenset(map(int, reason)) for reason in reasons}


STEPS: list[Reasons] = [
    dict(zip(LINKS, map(why, "1234"), strict=True)),
    {
        ("A", "B"): why("1"),
        ("A", "C"): why("12"),
        ("B", "A"): why("23"),
        ("B", "B"): why("24"),
        ("B", "C"): why("2"),
        ("C", "A"): why("3"),
        ("C", "B"): why("4", "13"),
        ("C", "C"): why("24"),
    },
    {
        ("A", "A"): why("123"),
        ("A", "B"): why("1"),
        ("A", "C"): why("12"),
        ("B", "A"): why("23"),
        ("B", "B"): why("24", "123"),
        ("B", "C"): why("2"),
        ("C", "A"): why("3"),
        ("C", "B"): why("4", "13"),
        ("C", "C"): why("24", "123"),
    },
]
WITHOUT_LAST: Reasons = {row: {w for w in reasons if 4 not in w} for row, reasons in STEPS[-1].items()}

# -- the paper's own execution, on the algebra -------------------------------------------------------------------------


class Paper:
    """Figure 2: links lie at their ends, reachable rows at their starts. In each step what is new at a node is joined
    with its links, and every result goes to the node it belongs to, where alone duplicates are seen."""

    def __init__(self, annotated: bool):
        self.annotated, self.algebra, self.shipped = annotated, Absorption(), 0
        links = self.algebra.of_tid(np.arange(1, 5))
        self.links = dict(zip(LINKS, links.tolist(), strict=True))
        self.functions: dict[Row, int] = dict(self.links)

    def run(self) -> Iterator[Reasons]:
        """The functions of all rows, after the base case and after each step that changes any."""
        new = dict(self.functions)
        while new:
            yield self.reasons()
            arrived = [
                ((start, to), self._times(p, q))
                for (start, end), p in self.links.items()
                for (at, to), q in new.items()
                if end == at
            ]
            self.shipped += len(arrived)
            new = {}
            for row, function in arrived:
                old = self.functions.get(row, 0)
                merged = self._plus(old, function)
                if merged != old:
                    self.functions[row] = merged
                    if self.annotated or not old:
                        new[row] = self._plus(new.get(row, 0), function)

    def reasons(self) -> Reasons:
        return {row: set(map(frozenset, self.algebra.witnesses(f, 99))) for row, f in self.functions.items()}

    def _times(self, a: int, b: int) -> int:
        return int(self.algebra.times(np.array([a]), np.array([b]))[0])

    def _plus(self, a: int, b: int) -> int:
        return int(self.algebra.plus(np.array([a]), np.array([b]))[0])


def test_figure_2_step_by_step() -> None:
    """Bare rows take 12 messages to converge, annotated ones 4 more: derivations of rows that are there already."""
    bare, annotated = Paper(annotated=False), Paper(annotated=True)
    assert [set(step) for step in bare.run()] == [set(step) for step in STEPS]
    assert list(annotated.run()) == STEPS
    assert (bare.shipped, annotated.shipped) == (12, 12 + 4)
    algebra, rows = annotated.algebra, STEPS[-1]
    left = algebra.without(np.array([annotated.functions[row] for row in rows]), np.array([4]))
    assert [set(map(frozenset, algebra.witnesses(f, 99))) for f in left.tolist()] == [WITHOUT_LAST[r] for r in rows]


# -- ours, in three partitions -----------------------------------------------------------------------------------------


def three_nodes() -> dict[str, int]:
    """Numbers for A, B and C that live in three different partitions."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(int(route(np.array([[number]]), np.array([0]), 3)[0]), number)
        if len(found) == 3:
            return dict(zip("ABC", found.values(), strict=True))
    raise AssertionError


NODES = three_nodes()
NAMES = {number: name for name, number in NODES.items()}


def network(options: str) -> whence.Database:
    """Links are placed by their ends, where the rule wants them: so links are not shipped, but the rows of `reachable`
    that they are go from their ends to their starts."""
    db = whence.open(partitions=3)
    db.execute(
        f"""CREATE TABLE link (src INT, dst INT);
        CREATE VIEW reachable (src, dst) WITH (partition = 'exchange', {options}) AS
          SELECT src, dst FROM link
          UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src"""
    )
    db.insert("link", [(NODES[a], NODES[b]) for a, b in LINKS])
    assert reachable(db) == set(STEPS[-1])
    return db


def reachable(db: whence.Database) -> set[Row]:
    return {(NAMES[a], NAMES[b]) for a, b in db["reachable"].rows}


def shipped(db: whence.Database) -> tuple[int, int]:
    """Messages and rows of the last epoch."""
    epoch = db.metrics()["shipped"]["reachable"]["epoch"]
    return epoch["messages"], epoch["rows"]


def reasons(db: whence.Database) -> Reasons:
    """Why each row is there, as its home says."""
    found: Reasons = {}
    runner = inside.driver(db).runner  # type: ignore[attr-defined]
    for partition in range(3):
        (op,) = filter(has_peers, runner._here(partition).partition.flow.order)
        policy = annotated_policy(op)
        assert policy is not None
        relation = op.program.outputs["reachable"]
        rows = op.live(relation)
        for (a, b), function in zip(rows.tolist(), policy.annotations_of(relation, rows).tolist(), strict=True):
            witnesses = policy.formulas.witnesses(function, 99)
            found[NAMES[a], NAMES[b]] = {frozenset(map(link_of, [policy] * len(w), w)) for w in witnesses}
    return found


def link_of(policy: AnnotatedPolicy, variable: int) -> int:
    _, ((a, b, *_),) = policy.variables.rows(np.array([variable]))
    return 1 + LINKS.index((NAMES[a], NAMES[b]))


def test_bare_rows() -> None:
    """12 rows: the 4 that are links, where the paper ships links, and 8 more. Its other 4 a node of ours does not send
    a second time: it knows what it has derived before."""
    with network("policy = 'dred'") as db:
        assert shipped(db)[1] == 12


def test_annotated_rows() -> None:
    """Eagerly one row more, (B, B) from C once more for p1 p2 p3. The paper's other three are absorbed before they are
    sent, by what their sender has for the same row: (A, B) and (C, B) at B by p1 and p4, (B, C) at C by p2. Lazily that
    one, too, is held back. Either way each home knows why its rows are there, as far as it was told."""
    with network("maintain = 'absorption', propagate = 'eager'") as db:
        assert shipped(db)[1] == 13
        assert reasons(db) == STEPS[-1]
    with network("maintain = 'absorption'") as db:
        assert shipped(db)[1] == 12
        assert reasons(db) == STEPS[-1] | {("B", "B"): why("24")}
    with network("maintain = 'relative', propagate = 'eager'") as db:
        assert reasons(db) == STEPS[-1]


def cut(db: whence.Database) -> None:
    """Delete link C->B: no row is removed, whatever keeps the view."""
    changes = db.changes("reachable")
    db.delete("link", [(NODES["C"], NODES["B"])])
    assert reachable(db) == set(STEPS[-1])
    assert list(changes) == []


def test_figure_5_bare_rows() -> None:
    """DRed deletes all it has and derives it again. The paper counts 16 rows; ours takes back the 12 that were sent,
    and sends the 9 of a network of three links: its 3 links and the 6 rows that follow."""
    with network("policy = 'dred'") as db:
        cut(db)
        assert shipped(db)[1] == 12 + 9


def test_figure_5_annotated_rows() -> None:
    """B says to both others that p4 is gone, and that is all."""
    with network("maintain = 'absorption', propagate = 'eager'") as db:
        cut(db)
        assert shipped(db) == (2, 0)
        assert reasons(db) == WITHOUT_LAST


def test_figure_5_annotated_rows_held_back() -> None:
    """The same, and C sends B the other reason for (B, B), which was not known there."""
    with network("maintain = 'absorption'") as db:
        cut(db)
        assert shipped(db) == (2 + 1, 1)
        assert reasons(db) == WITHOUT_LAST


def test_traffic_is_counted_by_operator_and_said() -> None:
    """The partitions' own counts add up to what the driver has carried."""
    with network("maintain = 'absorption'") as db:
        cut(db)
        runner = inside.driver(db).runner  # type: ignore[attr-defined]
        own = [op.shipped for p in range(3) for op in filter(has_peers, runner._here(p).partition.flow.order)]
        said = db.metrics()["shipped"]["reachable"]
        for which in ("epoch", "total"):
            parts = [getattr(shipped, which) for shipped in own]
            assert said[which] == {name: sum(getattr(p, name) for p in parts) for name in said[which]}
        assert said["total"]["rows"] == 13
        assert "14 messages, 13 rows" in db.explain("reachable")
