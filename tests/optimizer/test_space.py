"""The search space: what `split` gives, how many entries and alternatives there are, and implied equalities."""

from __future__ import annotations

import pytest

from tests.optimizer.queries import clique, q3s, q5
from whence.adapt.optimizer import GivenCosts, JoinGraph
from whence.model.errors import DataError
from whence.plan.optimizer.bottom_up import BottomUp
from whence.plan.optimizer.kernels.costs import LEFT
from whence.plan.optimizer.physical import NESTED_LOOP, SORT_MERGE, SORTED_PIPE_HASH
from whence.plan.optimizer.plans import PlanReader

Row = tuple[str, ...]


def table_1() -> JoinGraph:
    def pair(left: str, right: str) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(left), frozenset(right)

    return JoinGraph(
        {"C": 100, "O": 100, "L": 100},
        {("C.custkey", "O.custkey"): 0.01, ("O.orderkey", "L.orderkey"): 0.01},
        orders={"C": "custkey", "O": "custkey"},
        indexes={"L": ("orderkey",)},
        only={
            pair("C", "OL"): (SORT_MERGE,),
            pair("L", "CO"): (NESTED_LOOP,),
            pair("O", "L"): (SORTED_PIPE_HASH,),
            pair("C", "O"): (SORTED_PIPE_HASH, SORT_MERGE),
        },
        sorts=False,
    )


def test_table_1_comes_out_of_split() -> None:
    search = table_1().optimizer("bottom_up").search
    model, reader = search.model, PlanReader(search)

    def named(number: int) -> tuple[str, str]:
        if number < 0:
            return "-", "-"
        entry = model.names[number]
        return "".join(model.graph.members(entry.expression)), reader.property_name(entry) or "-"

    rows = [
        (*named(entry), model.operators[operator], *named(left), *named(right))
        for entry, operator, left, right in model.alternatives.tolist()
    ]
    none = ("-",) * 4
    assert sorted(rows) == sorted(
        [
            ("COL", "-", "sort-merge", "C", "C.custkey order", "OL", "O.custkey order"),
            ("COL", "-", "nested-loop", "L", "L.orderkey index", "CO", "-"),
            ("OL", "O.custkey order", "pipe-hash", "O", "-", "L", "-"),
            ("CO", "-", "pipe-hash", "C", "-", "O", "-"),
            ("CO", "-", "sort-merge", "C", "C.custkey order", "O", "O.custkey order"),
            ("O", "O.custkey order", "local scan", *none),
            ("O", "-", "local scan", *none),
            ("L", "L.orderkey index", "index scan", *none),
            ("L", "-", "local scan", *none),
            ("C", "C.custkey order", "local scan", *none),
            ("C", "-", "local scan", *none),
        ]
    )


def test_ordered_orders_and_lineitems_are_read_once_in_table_1() -> None:
    model = table_1().optimizer("bottom_up").search.model
    (number,) = [n for n, entry in enumerate(model.names) if entry.property.kind and entry.expression == 0b110]
    assert (model.alternatives[:, [2, 3]] == number).sum() == 1


def test_q3s_has_6_entries_and_4_joins() -> None:
    search = q3s().optimizer("bottom_up").search
    assert len(search.model.names) == 6
    assert (search.model.alternatives[:, LEFT] >= 0).sum() == 4


def test_q5_is_closed_over_nation_keys() -> None:
    """Customers and nations are joined though no predicate says so: 36 entries, not 30."""
    plan = q5().optimizer("bottom_up")
    assert plan.recomputed == (36, 190)
    assert ("customer", "nation") in [entry.relations for entry in plan.entries]


@pytest.mark.parametrize("count", [3, 6, 10])
def test_clique_has_all_subsets_and_splits(count: int) -> None:
    plan = clique(count).optimizer("bottom_up")
    assert plan.recomputed == (2**count - 1, 3**count + 1 - 2 ** (count + 1))


def test_left_deep_plans_have_a_relation_on_the_right() -> None:
    search = q5().optimizer("bottom_up", shape="left").search
    inputs = {search.model.names[n].expression for n in search.model.alternatives[:, 3].tolist() if n >= 0}
    assert all(expression.bit_count() == 1 for expression in inputs)
    assert search.best_of(search.model.roots[0]) >= q5().optimizer("bottom_up").cost


@pytest.mark.parametrize("kind", ["declarative", "bottom_up", "top_down"])
def test_aggregate_over_one_relation(kind: str) -> None:
    """Q1 and Q6: one leaf under an aggregate."""
    graph = JoinGraph({"lineitem": 1_000}, {}, aggregate=4)
    plan = graph.optimizer(kind)  # type: ignore[arg-type]  # by its name
    assert plan.tree == ("hash aggregate", ("local scan", "lineitem"))
    assert plan.cost == 10 * 1_000 + 25 * 1_000 + 10 * 4
    assert plan.change(rows={"lineitem": 2_000}).cost == 10 * 2_000 + 25 * 2_000 + 10 * 4


def test_aggregate_that_sorts_is_an_alternative() -> None:
    """An order that a merge join leaves is worth more under the aggregate than a cheaper join."""
    graph = JoinGraph(
        {"a": 1_000, "b": 1_000},
        {("a.k", "b.k"): 0.01},
        joins=["hash", "sort-merge"],
        orders={"a": "k", "b": "k"},
        aggregate=10,
        aggregate_by="a.k",
    )
    plan = graph.optimizer("bottom_up")
    assert plan.tree == ("sort aggregate", ("sort-merge", ("local scan", "a"), ("local scan", "b")))
    assert plan.alternative(("a", "b"), 0).whole_plan > plan.cost


def test_implied_equality_is_as_selective_as_the_sharpest_on_its_way() -> None:
    graph = JoinGraph({"a": 10, "b": 20, "c": 30}, {("a.x", "b.x"): 1 / 20, ("b.x", "c.x"): 1 / 30}).graph
    (each,) = graph.classes
    assert each.pairs[0, 2] == each.pairs[1, 2]
    assert graph.log_selectivity(0b111) == each.pairs[0, 1] + each.pairs[1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JoinGraph({"a": 1, "b": 1}, {}), "not connected"),
        (lambda: JoinGraph({"a": 1}, {("a", "c"): 1}), 'no relation "c"'),
        (lambda: JoinGraph({"a": 1}, {("a.x", "a.y"): 1}), "with itself"),
        (lambda: JoinGraph({"a": 0}, {}), "positive"),
        (lambda: q3s().optimizer("volcano"), "one of declarative"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: q3s().optimizer(memo="some"), "memo"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: q3s().optimizer(prune=["count"]), "only with aggregate"),
        (lambda: q3s().optimizer("bottom_up", costs=GivenCosts(scan={"C": 1})), "no cost of scanning"),
        (lambda: q3s().optimizer("bottom_up").change(local={("C", "L"): 1}), "no plan joins"),
        (lambda: q3s().optimizer("bottom_up").change(selectivity={"C": 2}), "one relation"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()  # type: ignore[operator]  # a call


def test_a_memo_remembers_what_it_says() -> None:
    """All against best: 6.8 times at 5 relations, 56.7 at 10 (the paper says 472)."""

    def remembered(count: int, memo: str) -> int:
        search = clique(count).optimizer("bottom_up", memo=memo).search  # type: ignore[arg-type]  # by its name
        assert isinstance(search, BottomUp)
        return search.remembered

    assert remembered(5, "all") / remembered(5, "best") == pytest.approx(6.8, abs=0.01)
    assert remembered(10, "all") / remembered(10, "best") == pytest.approx(56.7, abs=0.03)
    assert remembered(5, "none") == 0
    assert remembered(5, "best") < remembered(5, "likely") < remembered(5, "all")
