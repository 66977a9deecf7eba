"""Instrumenting networks: where annotations begin, who carries them on, who drops them (paper 001, Algorithm 1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whence.model.errors import SqlError
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import Agg, Node, Project, Ref, Scan, walk
from whence.plan.algebra.program import Program, Table, View
from whence.plan.streams.instrument import instrument, traces_of, upstream_streams
from whence.plan.streams.model import (
    DEFAULT_RETENTION,
    Align,
    BSort,
    DropProvenance,
    Generate,
    Lookup,
    Merge,
    Retain,
    Span,
    Stream,
    StreamToRelation,
    Window,
    with_at,
)

SCHEMA = Schema((Column("x", BIGINT), Column("y", BIGINT)))
ROWS = with_at(SCHEMA)


def window(input: Node, owner: str) -> Node:
    aggs = (Agg("avg", 1),)
    schema = with_at(Schema((Column("x", BIGINT), Column("y", BIGINT))))
    return Window(schema, input, Span(3, 1, by=(0,)), (0,), aggs, owner)


def program(**views: tuple[Node, dict[str, str]]) -> Program:
    """Two base streams, a table, and views, each a network and its options."""
    found = Program()
    for name in ("left", "right"):
        found.tables[name] = Table(name, SCHEMA, stream=DEFAULT_RETENTION)
    found.tables["fixed"] = Table("fixed", SCHEMA)
    for name, (node, options) in views.items():
        query = Retain(node.schema, node, DEFAULT_RETENTION, name) if node.schema == ROWS else node
        found.views[name] = View(name, node.schema, query, tuple(options.items()))
    return found


LINEAGE = {"provenance": "lineage"}
COVERING = {"provenance": "covering"}
LEFT, RIGHT = Stream(ROWS, "left"), Stream(ROWS, "right")


def generated(node: Node) -> list[tuple[str | None, str]]:
    """Where annotations begin: the source, and what is under it."""
    found = [n for n in walk(node) if isinstance(n, Generate)]
    return [(n.source, n.input.stream if isinstance(n.input, Stream) else n.input.view) for n in found]  # type: ignore[attr-defined]  # one of the two


def test_a_program_without_traced_views_is_left_alone() -> None:
    given = program(a=(window(LEFT, "a"), {}), b=(Merge(ROWS, (Ref(ROWS, "a"), RIGHT)), {"provenance": "none"}))
    assert instrument(given) is given


def test_generators_stand_at_the_base_streams() -> None:
    given = program(a=(window(Merge(ROWS, (LEFT, RIGHT)), "a"), LINEAGE))
    assert generated(instrument(given).views["a"].query) == [("left", "left"), ("right", "right")]


def test_of_some_streams_only_the_others_come_from_nowhere() -> None:
    given = program(a=(Merge(ROWS, (LEFT, RIGHT)), {**LINEAGE, "provenance_of": "right"}))
    assert generated(instrument(given).views["a"].query) == [(None, "left"), ("right", "right")]


def test_views_in_between_are_copied_for_the_traced_one_and_pay_nothing() -> None:
    given = program(a=(window(LEFT, "a"), {}), b=(BSort(ROWS, Ref(ROWS, "a"), 0, 3, "b"), LINEAGE))
    found = instrument(given)
    assert found.views["a"] is given.views["a"]
    query = found.views["b"].query
    assert generated(query) == [("left", "left")]
    assert [n.owner for n in walk(query) if isinstance(n, (Window, BSort))] == ["b", "b/a"]


def test_a_view_in_between_that_is_traced_alike_is_shared() -> None:
    given = program(
        a=(window(LEFT, "a"), LINEAGE),
        b=(Merge(ROWS, (Ref(ROWS, "a"), RIGHT)), LINEAGE),
        c=(BSort(ROWS, Ref(ROWS, "a"), 0, 3, "c"), LINEAGE),
    )
    found = instrument(given)
    assert generated(found.views["b"].query) == [("right", "right")]
    assert Ref(ROWS, "a") in list(walk(found.views["b"].query))
    assert generated(found.views["c"].query) == []


@pytest.mark.parametrize("other", [COVERING, {**LINEAGE, "encoding": "ids"}])
def test_one_that_is_traced_in_another_way_is_not(other: dict[str, str]) -> None:
    given = program(a=(window(LEFT, "a"), other), b=(BSort(ROWS, Ref(ROWS, "a"), 0, 3, "b"), LINEAGE))
    assert generated(instrument(given).views["b"].query) == [("left", "left")]


def test_partial_instrumentation_begins_at_a_view() -> None:
    """P(8, {5}): the averages behind a result, not the readings behind those."""
    given = program(
        five=(window(LEFT, "five"), LINEAGE),
        eight=(window(BSort(ROWS, Ref(ROWS, "five"), 0, 1, "eight"), "eight"), {**LINEAGE, "provenance_of": "five"}),
    )
    assert generated(instrument(given).views["eight"].query) == [("five", "five")]


def test_readers_that_ask_for_nothing_drop_annotations() -> None:
    given = program(
        a=(window(LEFT, "a"), LINEAGE),
        b=(BSort(ROWS, Ref(ROWS, "a"), 0, 3, "b"), {}),
        c=(StreamToRelation(SCHEMA, Ref(ROWS, "a")), {}),
    )
    found = instrument(given)
    query = found.views["b"].query
    assert isinstance(query, Retain)
    assert query.input == BSort(ROWS, DropProvenance(ROWS, Ref(ROWS, "a")), 0, 3, "b")
    assert found.views["c"] is given.views["c"], "a relation has no annotations anyway"


def test_covering_intervals_are_laid_out_anew_where_more_streams_are_traced() -> None:
    given = program(a=(window(LEFT, "a"), COVERING), b=(Merge(ROWS, (Ref(ROWS, "a"), RIGHT)), COVERING))
    query = instrument(given).views["b"].query
    (align,) = (n for n in walk(query) if isinstance(n, Align))
    assert align.before.sources == ("left",)
    assert align.after.sources == ("left", "right")


def test_relations_that_are_looked_up_are_not_traced() -> None:
    node = Project(ROWS, Lookup(with_at(Schema(SCHEMA.columns * 2)), LEFT, Scan(SCHEMA, "fixed"), "inner"), ())
    exprs = tuple(Col(BIGINT, i) for i in (0, 1, 4))
    given = program(a=(replace(node, exprs=exprs), LINEAGE))
    assert generated(instrument(given).views["a"].query) == [("left", "left")]
    with pytest.raises(SqlError, match="cannot be replayed"):
        instrument(program(a=(replace(node, exprs=exprs), COVERING)))


def test_upstream_has_base_streams_and_views_nearest_first() -> None:
    given = program(a=(window(LEFT, "a"), {}), b=(Merge(ROWS, (Ref(ROWS, "a"), RIGHT)), {}))
    assert upstream_streams("b", given) == ("a", "right", "left")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**LINEAGE, "provenance_of": "fixed"}, 'provenance_of names "fixed", which "a" is not made of; it is of left'),
        ({"provenance_of": "left"}, "provenance_of of \"a\" says how it is traced; add provenance = 'lineage'"),
        ({**COVERING, "encoding": "ids"}, "covering intervals have only one form"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(SqlError, match=message.replace("(", "\\(")):
        traces_of("a", program(a=(window(LEFT, "a"), options)))


def test_a_source_behind_another_is_refused() -> None:
    """Sets begin at the nearest source, so that nothing of the one behind it would ever come through."""
    views = {"a": (window(LEFT, "a"), {}), "b": (BSort(ROWS, Ref(ROWS, "a"), 0, 3, "b"), {"provenance": "lineage"})}
    both = {**LINEAGE, "provenance_of": "a, left"}
    with pytest.raises(SqlError, match='reaches "b" only through others'):
        traces_of("b", program(**{**views, "b": (views["b"][0], both)}))
    twice = Merge(ROWS, (Ref(ROWS, "a"), LEFT))
    found = traces_of("b", program(a=views["a"], b=(twice, both)))
    assert found is not None
    assert found.sources == ("a", "left"), "here it also comes by itself"


def test_a_relation_is_not_traced() -> None:
    with pytest.raises(SqlError, match="is a relation"):
        traces_of("a", program(a=(StreamToRelation(SCHEMA, LEFT), LINEAGE)))
