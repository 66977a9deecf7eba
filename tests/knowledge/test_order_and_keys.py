"""Streams that are ordered, or close keys: bounds hold for every continuation that the promises allow."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.knowledge.interpreter import rows_of
from tests.knowledge.worlds import knowledge, program_of
from whence.plan.knowledge.derive import AugmentedPlan
from whence.subscribe.cells import about_absent, evaluate
from whence.subscribe.horizons import NO_HORIZONS, KnownHorizons

PROGRAM = program_of("""
CREATE STREAM e (t INT NOT NULL CHECK (t BETWEEN 0 AND 5), g INT NOT NULL, v INT NOT NULL CHECK (v BETWEEN 0 AND 2))
    WITH (ordered = 't', closes = 'g when v = 2');
CREATE VIEW by_time AS SELECT t, COUNT(*) AS n, MAX(v) AS high FROM e GROUP BY t;
CREATE VIEW by_pair AS SELECT t // 2 AS pair, SUM(v) AS s, MIN(v) AS low FROM e GROUP BY t // 2;
CREATE VIEW backwards AS SELECT 3 - t AS left_over, COUNT(*) AS n FROM e GROUP BY 3 - t;
CREATE VIEW by_key AS SELECT g, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS mean FROM e GROUP BY g;
CREATE VIEW by_both AS SELECT g, t // 2 AS pair, MAX(v) < 2 AS low FROM e GROUP BY g, t // 2;
CREATE VIEW early AS SELECT COUNT(*) AS n FROM e WHERE t < 2;
CREATE VIEW one AS SELECT COUNT(*) AS n, MAX(v) AS high FROM e WHERE g = 1;
CREATE VIEW open_keys AS SELECT g FROM (SELECT DISTINCT g FROM e) x
    WHERE NOT EXISTS (SELECT 1 FROM (SELECT DISTINCT g FROM e WHERE v = 2) y WHERE y.g = x.g);
CREATE VIEW pairs AS SELECT x.g, x.n, y.high FROM (SELECT g, COUNT(*) AS n FROM e GROUP BY g) x
    JOIN (SELECT g, MAX(v) AS high FROM e WHERE t < 3 GROUP BY g) y ON x.g = y.g;
CREATE VIEW few AS SELECT g, COUNT(*) AS n FROM e GROUP BY g HAVING COUNT(*) < 3;
CREATE VIEW totals AS SELECT pair, COUNT(*) AS n, MAX(s) AS s FROM (SELECT g, t // 2 AS pair, SUM(v) AS s FROM e
    GROUP BY g, t // 2) GROUP BY pair;
""")
VIEWS = list(PROGRAM.views)
Row = tuple[int, int, int]
POOL: list[Row] = [(t, g, v) for t in (0, 1, 2, 3, 5) for g in (0, 1) for v in (0, 1, 2)]


@cache
def plan_of(view: str) -> AugmentedPlan:
    return knowledge(PROGRAM, view)


def horizons_of(rows: list[Row], plan: AugmentedPlan) -> KnownHorizons:
    """What rows have established."""
    uses = [use for use, source in enumerate(plan.knowledge.sources) if source.name == "e"]
    if not rows or not uses:
        return NO_HORIZONS
    closed = [(g,) for _, g, v in rows if v == 2]
    return NO_HORIZONS.moved({uses[0]: (rows[-1][0], False)}, {uses[0]: closed})


def may_follow(rows: list[Row], row: Row) -> bool:
    return (not rows or row[0] >= rows[-1][0]) and (row[1], 2) not in {(g, v) for _, g, v in rows}


def continuations(rows: list[Row]) -> Iterator[list[Row]]:
    yield rows
    for one in POOL:
        if may_follow(rows, one):
            yield [*rows, one]
            yield from ([*rows, one, two] for two in POOL if may_follow([*rows, one], two))


@pytest.mark.parametrize("view", VIEWS)
def test_every_continuation_lies_in_the_bounds(view: str) -> None:
    dice, plan = random.Random(view), plan_of(view)
    facts = plan.knowledge
    width = len(facts.columns)
    for _ in range(6):
        rows: list[Row] = []
        while len(rows) < 4 and (fits := [row for row in POOL if may_follow(rows, row) and row[0] <= len(rows)]):
            rows.append(dice.choice(fits))
        horizons = horizons_of(rows, plan)
        now = {
            tuple(row[c] for c in facts.key): evaluate(facts, row[:width], row[width:], horizons)
            for row in rows_of(plan.plan, PROGRAM, {"e": rows})
        }
        for done in itertools.islice(continuations(rows), 0, None, 3):
            finals = {tuple(row[c] for c in facts.key): row for row in rows_of(plan.plan, PROGRAM, {"e": done})}
            for key, known in now.items():
                assert key in finals or known.may_go, (rows, done, key)
                if key in finals:
                    pairs = zip(known.bounds, finals[key], strict=False)
                    assert all(bounds.allows(value) for bounds, value in pairs), (rows, done, known)
            for key in finals.keys() - now.keys():
                given: dict[int, Any] = dict(zip(facts.key, key, strict=True))
                assert about_absent(facts, given, horizons) == "may come", (rows, done, key)


def test_closed_groups_are_final() -> None:
    rows: list[Row] = [(0, 0, 1), (1, 1, 0), (1, 0, 2), (2, 1, 1)]
    final = Counter[str]()
    for view in VIEWS:
        plan = plan_of(view)
        width = len(plan.knowledge.columns)
        for row in rows_of(plan.plan, PROGRAM, {"e": rows}):
            known = evaluate(plan.knowledge, row[:width], row[width:], horizons_of(rows, plan))
            final[view] += known.is_final
    assert final == {
        "by_time": 2,
        "by_pair": 1,
        "backwards": 2,
        "by_key": 1,
        "by_both": 2,
        "early": 1,
        "one": 0,
        "open_keys": 0,
        "pairs": 1,
        "few": 1,
        "totals": 1,
    }
