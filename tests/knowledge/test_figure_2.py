"""Figure 2 of paper 004: three ticks of a domain of four values, for every subset of known ticks in every order.

Bounds are tight: they are the hull of what all completions give, not only around it.
"""

from __future__ import annotations

import itertools
from functools import cache, reduce
from typing import Any

import pytest

import whence
from tests.knowledge.worlds import SILENT, UNKNOWN, World, knowledge, program_of
from whence.plan.knowledge.bounds import Bounds, exactly
from whence.subscribe.cells import about_absent, evaluate

SCRIPT = """
CREATE STREAM s (tick INT NOT NULL CHECK (tick BETWEEN 1 AND 3), v INT NOT NULL CHECK (v BETWEEN 0 AND 3))
    WITH (ordered = 'tick strictly');
CREATE VIEW figure AS SELECT MAX(v) AS high, MIN(v) AS low, COUNT(*) AS n, SUM(v) AS s FROM s;
CREATE VIEW whole AS SELECT * FROM s;
"""
VALUES = [(v,) for v in range(4)]
STATES = list(itertools.product([UNKNOWN, SILENT, *VALUES], repeat=3))


@cache
def answer(rows: tuple[Any, ...]) -> tuple[Any, ...]:
    """The figures over some rows, from a database."""
    db = whence.open()
    db.execute(SCRIPT)
    db.insert("s", list(rows))
    ((found),) = db["figure"].rows
    return tuple(found)


def rows_of(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(World({"s": state}).rows()["s"])


@cache
def found(state: tuple[Any, ...]) -> tuple[Bounds, ...]:
    plan = knowledge(PROGRAM, "figure")
    world = World({"s": state})
    known = evaluate(plan.knowledge, answer(rows_of(state)), (), world.horizons(plan))
    assert not known.may_go
    assert known.is_final == all(bounds.is_final for bounds in known.bounds)
    return known.bounds


PROGRAM = program_of(SCRIPT)


@pytest.mark.parametrize("known", range(4))
def test_bounds_are_those_of_all_completions(known: int) -> None:
    for state in STATES:
        if sum(tick != UNKNOWN for tick in state) != known:
            continue
        finals = [answer(rows_of(done.ticks["s"])) for done in World({"s": state}).completions({"s": VALUES})]
        tight = [reduce(Bounds.hull, map(exactly, values)) for values in zip(*finals, strict=True)]
        assert list(found(state)) == tight, state


def test_knowledge_grows_in_every_order_of_arrival() -> None:
    for final in itertools.product([SILENT, *VALUES], repeat=3):
        for order in itertools.permutations(range(3)):
            state = [UNKNOWN] * 3
            before = found(tuple(state))
            for at in order:
                state[at] = final[at]
                after = found(tuple(state))
                assert all(a <= b for a, b in zip(before, after, strict=True))
                before = after
            assert all(bounds.is_final for bounds in before)


def test_numbers_of_the_paper() -> None:
    high = [
        ((SILENT, UNKNOWN, (2,)), "2–3"),  # ≥ 2, and 3 is the most there is
        ((SILENT, SILENT, (2,)), "= 2"),
        (((1,), UNKNOWN, SILENT), "1–3"),
        (((1,), (2,), (0,)), "= 2"),
        ((SILENT, SILENT, SILENT), "–"),
        ((UNKNOWN, UNKNOWN, (3,)), "= 3"),  # the most there is: final at once
        ((UNKNOWN, UNKNOWN, UNKNOWN), "0–3 or –"),
    ]
    for state, text in high:
        assert found(state)[0].text() == text
    count = [
        ((UNKNOWN, UNKNOWN, UNKNOWN), (0, 3)),
        ((UNKNOWN, (1,), UNKNOWN), (1, 3)),
        ((UNKNOWN, (1,), SILENT), (1, 2)),
    ]
    for state, pair in count:
        assert found(state)[2].pair == pair


def test_count_of_three_rows_has_ten_elements_and_four_finals() -> None:
    elements = {found(state)[2].pair for state in STATES}
    assert len(elements) == 10
    assert sorted(low for low, high in elements if low == high) == [0, 1, 2, 3]
    begin = Bounds(1, 2, null=False)
    cone = {pair for pair in elements if begin <= Bounds(*pair, null=False)}
    assert cone == {(1, 2), (1, 1), (2, 2)}


def test_tick_is_unknown_then_silent_or_a_value() -> None:
    """Figure 2a: only ? evolves."""
    plan = knowledge(PROGRAM, "whole")
    world = World({"s": (UNKNOWN, SILENT, (2,))})
    horizons = world.horizons(plan)
    assert about_absent(plan.knowledge, {0: 1}, horizons) == "may come"
    assert about_absent(plan.knowledge, {0: 2}, horizons) == "finally absent"
    row = evaluate(plan.knowledge, (3, 2), (), horizons)
    assert row.is_final
    assert not row.may_go
    for value, absence in ((-1, "finally absent"), (0, "may come"), (3, "may come"), (4, "finally absent")):
        assert about_absent(plan.knowledge, {0: 1, 1: value}, horizons) == absence
