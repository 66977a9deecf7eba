"""Hockey (paper 004, 1.2.2): two games that are not synchronised, and the refined query that is exact all the same.

A board that shows 4-2 beside 5-3 says nothing about who was ahead when. What was known at each tick does: at which
ticks was Boston's score as of t greater than Detroit's, and at how many. The scores and times are ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import whence
from tests.depth import seeds
from tests.streams.test_tick_time import Hands, at

PROGRAM = """
    CREATE STREAM goal (game TEXT, team TEXT, at TIMESTAMP DEFAULT tick_time());
    CREATE VIEW board AS SELECT game, team, COUNT(*) AS score FROM goal GROUP BY game, team;
    CREATE VIEW tick AS SELECT DISTINCT tick_time() AS at FROM goal;
    CREATE VIEW scored AS SELECT tick_time() AS at, team, COUNT(*) AS goals FROM goal GROUP BY 1, 2;
    CREATE VIEW as_of AS
      SELECT tick.at, SUM(CASE WHEN team = 'Boston' THEN goals ELSE 0 END) AS boston,
             SUM(CASE WHEN team = 'Detroit' THEN goals ELSE 0 END) AS detroit
      FROM tick JOIN scored ON scored.at <= tick.at GROUP BY tick.at;
    CREATE VIEW ahead AS SELECT at, boston, detroit FROM as_of WHERE boston > detroit;
    CREATE VIEW ticks_ahead AS SELECT COUNT(*) AS ticks FROM ahead;
"""
GAMES = {"NY": "NY-Detroit", "Detroit": "NY-Detroit", "Chicago": "Chicago-Boston", "Boston": "Chicago-Boston"}
Goals = Sequence[tuple[float, Sequence[str]]]  # at a second, the teams that scored then


def definition(goals: Goals) -> tuple[list[tuple[float, int, int]], int]:
    """Return the ticks at which Boston was ahead, with both scores as of then, and how many there were."""
    boston = detroit = 0
    found = []
    for second, teams in goals:
        boston, detroit = boston + teams.count("Boston"), detroit + teams.count("Detroit")
        if boston > detroit:
            found.append((second, boston, detroit))
    return found, len(found)


def compare(db: whence.Database, goals: Goals) -> None:
    ahead, ticks = definition(goals)
    assert sorted(db["ahead"].rows) == [(at(second), boston, detroit) for second, boston, detroit in ahead]
    assert db["ticks_ahead"].rows == [(ticks,)]


@pytest.fixture(params=[None, 2], ids=["embedded", "partitions"])
def played(request: pytest.FixtureRequest) -> Iterator[tuple[whence.Database, Hands]]:
    clock = Hands()
    with whence.open(clock=clock, partitions=request.param) as db:
        db.execute(PROGRAM)
        yield db, clock


def play(db: whence.Database, clock: Hands, goals: Goals) -> None:
    for second, teams in goals:
        clock.now = second
        db.insert("goal", [(GAMES[team], team) for team in teams])


def test_boston_never_led_detroit_although_it_has_more_goals(played: tuple[whence.Database, Hands]) -> None:
    """NY 4, Detroit 2 and Chicago 5, Boston 3: Boston's third comes when Detroit's game has not been over for long."""
    db, clock = played
    goals: Goals = [
        (1000, ["Detroit"]), (1010, ["Boston", "Chicago"]), (1020, ["Detroit", "NY"]), (1030, ["Boston"]),
        (1040, ["NY", "NY"]), (1050, ["Chicago", "Chicago"]), (1060, ["NY"]), (1070, ["Chicago", "Chicago"]),
    ]  # fmt: skip
    play(db, clock, goals)
    compare(db, goals)
    assert db["ticks_ahead"].rows == [(0,)]
    play(db, clock, [(1080, ["Boston"])])
    assert db["ahead"].rows == [(at(1080), 3, 2)]
    assert sorted(db["board"].rows) == [
        ("Chicago-Boston", "Boston", 3), ("Chicago-Boston", "Chicago", 5),
        ("NY-Detroit", "Detroit", 2), ("NY-Detroit", "NY", 4),
    ]  # fmt: skip


def test_a_lead_that_is_lost_again_is_not_forgotten(played: tuple[whence.Database, Hands]) -> None:
    db, clock = played
    goals: Goals = [(1001, ["Boston"]), (1002, ["Chicago"]), (1003, ["Detroit", "Detroit"]), (1004, ["NY"])]
    for count in range(1, len(goals) + 1):
        play(db, clock, goals[count - 1 : count])
        compare(db, goals[:count])
    assert [row[0] for row in sorted(db["ahead"].rows)] == [at(1001), at(1002)]


@pytest.mark.parametrize("seed", seeds(6))
def test_the_refined_query_is_exact(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    clock, goals = Hands(), list[tuple[float, list[str]]]()
    db = whence.open(tmp_path / "a", clock=clock)
    try:
        db.execute(PROGRAM)
        for _ in range(20):
            goals.append((clock.now + rng.randrange(1, 90), rng.choices(list(GAMES), k=rng.randrange(1, 4))))
            play(db, clock, goals[-1:])
            if rng.random() < 0.2:
                db.close()
                db = whence.open(tmp_path / "a", clock=clock)
            compare(db, goals)
    finally:
        db.close()
