"""Bounds hold for every completion that the promises allow, and only shrink: for each operator of plans.

Two streams with three ticks each, of which any may be unknown; every completion is enumerated, with an interpreter of
plans that is compared with databases.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.knowledge.interpreter import rows_of
from tests.knowledge.worlds import SILENT, UNKNOWN, World, knowledge, program_of
from whence.plan.knowledge.derive import AugmentedPlan
from whence.subscribe.cells import RowKnowledge, about_absent, evaluate

TABLES = """
CREATE STREAM a (
    t INT NOT NULL CHECK (t BETWEEN 1 AND 3), k INT CHECK (k BETWEEN 0 AND 1), v INT CHECK (v BETWEEN -1 AND 2)
) {ordered};
CREATE STREAM b (
    t INT NOT NULL CHECK (t BETWEEN 1 AND 2), k INT CHECK (k BETWEEN 0 AND 1), v INT CHECK (v BETWEEN 0 AND 1)
) {ordered};
"""
DOMAINS = {
    "a": [(0, -1), (0, 2), (1, 1), (None, 2), (1, None)],
    "b": [(0, 0), (1, 1), (0, 1)],
}
STATEMENTS = Path(__file__).with_name("views.sql").read_text(encoding="utf-8")
VIEWS = re.findall(r"CREATE VIEW (\w+) AS", STATEMENTS)
PROGRAM = program_of(TABLES.format(ordered="WITH (ordered = 't strictly')") + STATEMENTS)


@cache
def plan_of(view: str) -> AugmentedPlan:
    return knowledge(PROGRAM, view)


def rows_in(view: str, world: World) -> list[tuple[Any, ...]]:
    """The rows of a view, with the columns behind them, over the rows of a world."""
    return rows_of(plan_of(view).plan, PROGRAM, world.rows())


def known(view: str, world: World) -> list[tuple[tuple[Any, ...], RowKnowledge]]:
    """The rows of a view, and what is known of each."""
    plan = plan_of(view)
    width, horizons = len(plan.knowledge.columns), world.horizons(plan)
    return [
        (row, evaluate(plan.knowledge, row[:width], row[width:], horizons))
        for row in sorted(rows_in(view, world), key=repr)
    ]


def a_world(dice: random.Random, unknown: int) -> World:
    ticks: dict[str, list[Any]] = {
        "a": [dice.choice([SILENT, *DOMAINS["a"]]) for _ in range(3)],
        "b": [dice.choice([SILENT, *DOMAINS["b"]]) for _ in range(2)],
    }
    for name, at in dice.sample([("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)], unknown):
        ticks[name][at] = UNKNOWN
    return World(ticks)


def check(view: str, world: World, done: World) -> None:
    """A completion lies in what was known of a world."""
    facts = plan_of(view).knowledge
    width, horizons = len(facts.columns), world.horizons(plan_of(view))
    finals, now = rows_in(view, done), known(view, world)
    left = Counter(row[:width] for row in finals)
    for row, knows in now:
        if knows.is_final:
            assert left[row[:width]] > 0, f"{row} was final, of {view} in {world}: {finals} in {done}"
            left[row[:width]] -= 1
    by_key = all(term.__class__.__name__ == "Shown" for at, term in enumerate(facts.cells) if at in facts.key)
    keys = Counter(tuple(row[c] for c in facts.key) for row, _ in now)
    for row, knows in now:
        key = tuple(row[c] for c in facts.key)
        same = [final for final in finals if tuple(final[c] for c in facts.key) == key] if by_key else finals
        fits = [final for final in same if all(b.allows(v) for b, v in zip(knows.bounds, final, strict=False))]
        if not knows.may_go:
            assert fits, f"{row} must stay within {knows}, of {view} in {world}: {finals} in {done}"
        if by_key and facts.key and keys[key] == 1 and len(same) == 1:
            assert fits, f"{row} must be within {knows}, of {view} in {world}: {finals} in {done}"
    if by_key:
        for final in finals:
            key = tuple(final[c] for c in facts.key)
            if key not in keys:
                given = dict(zip(facts.key, key, strict=True))
                absent = about_absent(facts, given, horizons)
                assert absent == "may come", f"{final} was to be absent, of {view} in {world}, came in {done}"


@pytest.mark.parametrize("view", VIEWS)
def test_every_completion_lies_in_the_bounds(view: str) -> None:
    dice = random.Random(view)
    for number in range(14):
        world = a_world(dice, unknown=number % 4)
        for done in world.completions(DOMAINS):
            check(view, world, done)


@pytest.mark.parametrize("argument", ["every", "a", "b"])
@pytest.mark.parametrize("view", VIEWS)
def test_knowledge_only_grows(view: str, argument: str) -> None:
    """Ticks become known in any order: v <= v' implies F(v) <= F(v'), and what went for good stays away. In each
    argument by itself, too, while more or less is known of the others."""
    dice = random.Random(view)
    facts = plan_of(view).knowledge
    for _ in range(40 if argument == "every" else 15):
        final = a_world(dice, 0)
        ticks: dict[str, list[Any]] = {
            name: [UNKNOWN if argument in ("every", name) or dice.random() < 0.5 else tick for tick in each]
            for name, each in final.ticks.items()
        }
        places = [(n, at) for n, each in final.ticks.items() for at in range(len(each)) if argument in ("every", n)]
        dice.shuffle(places)
        before: dict[Any, RowKnowledge] = {}
        gone: set[Any] = set()
        for name, at in places:
            ticks[name][at] = final.ticks[name][at]
            world = World(ticks)
            rows = known(view, world)
            keys = Counter(tuple(row[c] for c in facts.key) for row, _ in rows)
            now = {key: knows for row, knows in rows if keys[key := tuple(row[c] for c in facts.key)] == 1}
            for key, knows in now.items():
                if key in before and facts.key:
                    assert before[key] <= knows, f"{key} of {view}: {before[key]} became {knows} in {world}"
                assert key not in gone, f"{key} of {view} went for good and is there again in {world}"
            horizons = world.horizons(plan_of(view))
            for key in before.keys() - keys.keys():
                assert before[key].may_go, f"{key} of {view} went, which it could not, in {world}"
                given = dict(zip(facts.key, key, strict=True))
                if about_absent(facts, given, horizons, was_there=True) == "finally absent":
                    gone.add(key)
            before = now
        for row, knows in rows if argument == "every" else ():
            assert knows.is_final, f"{row} of {view} is not final when everything is known: {knows}"


def test_interpreter_agrees_with_databases() -> None:
    dice = random.Random(7)
    for _ in range(6):
        world = a_world(dice, 0)
        db = whence.open()
        db.execute(TABLES.format(ordered="") + STATEMENTS)
        for name, rows in world.rows().items():
            db.insert(name, rows)
        for view in VIEWS:
            width = len(plan_of(view).knowledge.columns)
            assert Counter(row[:width] for row in rows_in(view, world)) == Counter(map(tuple, db[view].rows)), view
