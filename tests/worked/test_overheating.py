"""The overheating network of paper 001 (Figures 1, 5, 6, 8; examples/overheating.sql), and what is behind its results.

Of Figure 5 the text tells these facts, and the input reproduces them: the first reading (1, 1, 399) is left out as an
outlier; the first average is 84.6 (its decimals cut) at time 2 in place 1; the averages of both sensors come as 7:1
to 7:6, of which the sort gives 7:4 first, as 8:1; the windows of two units of time come from {7:4, 7:5}, {7:5, 7:6}
and {7:6, 7:3}.

Ours: all other numbers; that readings go on, which brings what is in the buffer out and closes windows; a second
alarm. Our windows begin at whole multiples of `every`, so there is one before the paper's first, with 7:4 alone.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import whence

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = (EXAMPLES / "overheating.sql").read_text()
FIRST = [(1, 1, 399.0), (2, 1, 80.0), (3, 1, 84.0), (4, 1, 90.0), (5, 1, 94.0), (6, 1, 95.0)]
SECOND = [(1, 2, 97.0), (2, 2, 94.0), (3, 2, 91.0), (4, 2, 94.0), (5, 2, 91.0)]
LATER = [(time, 20.0 if time < 20 else 120.0) for time in range(7, 27)]

# Whence every row of every stage came, one step back: the tids of the stage before.
MERGED = [("mean1", 1), ("mean1", 2), ("mean1", 3), ("mean2", 1), ("mean2", 2), ("mean2", 3)]
MERGED += [(f"mean{sensor}", place) for place in range(4, 24) for sensor in (1, 2)]
SORTED = [4, 1, 5, 2, 6, 3, 8, 7, 10, 9, *range(11, 43)]
HOT = [1, 3, 5, 6, *range(37, 43)]
PLACES = [{1}, {1, 2}, {2, 3}, {3, 4}, {4}, {5, 6}, {5, 6, 7, 8}]
ALARM = [4, 6, 7]
Sets = dict[int, set[int]]
STEPS: dict[str, dict[str, Sets]] = {
    "clean1": {"sensor1": {i: {i + 1} for i in range(1, 26)}},
    "clean2": {"sensor2": {i: {i} for i in range(1, 26)}},
    "mean1": {"clean1": {i: {i, i + 1, i + 2} for i in range(1, 24)}},
    "mean2": {"clean2": {i: {i, i + 1, i + 2} for i in range(1, 24)}},
    "merged": {
        name: {tid: {place} if of == name else set() for tid, (of, place) in enumerate(MERGED, 1)}
        for name in ("mean1", "mean2")
    },
    "sorted": {"merged": {tid: {of} for tid, of in enumerate(SORTED, 1)}},
    "hot": {"sorted": {tid: {of} for tid, of in enumerate(HOT, 1)}},
    "places": {"hot": dict(enumerate(PLACES, 1))},
    "alarm": {"places": {tid: {of} for tid, of in enumerate(ALARM, 1)}},
}
STAGES = ("sensor1", "sensor2", *STEPS)
LEVELS = (("sensor1", "sensor2"), ("clean1", "clean2"), ("mean1", "mean2"), *((name,) for name in STAGES[6:-1]))


def behind(view: str, source: str) -> Sets:
    """What the definition says is behind each result, stage by stage."""
    found: Sets = {}
    for before, sets in STEPS[view].items():
        further = None if before == source else behind(before, source) if before in STEPS else {}
        for tid, rows in sets.items():
            known = found.setdefault(tid, set())
            known |= rows if further is None else {t for row in rows for t in further.get(row, ())}
    return found


def upstream(view: str) -> list[str]:
    """The streams that a view comes from."""
    found = {before for name in STEPS.get(view, ()) for before in (name, *upstream(name))}
    return [name for name in STAGES if name in found]


def opened(view: str = "alarm", mode: str = "lineage", of: list[str] | None = None, **more: str) -> whence.Database:
    """The network, with one view instrumented."""
    options = {"provenance": mode, **({"provenance_of": ", ".join(of)} if of else {}), **more}
    said = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    db = whence.open()
    for statement in SCRIPT.split(";"):
        text = statement.strip()
        if not text or "provenance(" in text:
            continue
        head, _, query = text.partition(" AS\n") if " AS\n" in text else text.partition(" AS ")
        if "CREATE VIEW" in head:
            name = head.split("CREATE VIEW ")[1].split()[0]
            head = head.split(" WITH ")[0] + (f" WITH ({said})" if name == view else "")
            text = f"{head} AS {query}"
        db.execute(text)
    return db


def feed(db: whence.Database) -> None:
    db.insert("sensor1", FIRST)
    db.insert("sensor2", SECOND)
    for time, temp in LATER:
        db.insert("sensor1", [(time, 1, temp)])
        db.insert("sensor2", [(time, 2, temp)])


def traced(db: whence.Database, view: str, source: str) -> Sets:
    """What `provenance` gives, and that nothing is given twice."""
    found: Sets = {}
    for tid, behind_it in db.query(f"SELECT tid, {source}_tid FROM provenance({view}, {source})"):
        assert behind_it not in found.setdefault(tid, set())
        found[tid].add(behind_it)
    return found


def numbered(db: whence.Database, view: str) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in db.query(f"SELECT * FROM numbered({view})")}


def test_what_figure_5_tells_of_every_stream() -> None:
    with opened() as db:
        feed(db)
        assert (1, 1, 399.0) not in list(db["clean1"])
        assert numbered(db, "mean1")[1] == (2, 1, pytest.approx(84.667, abs=1e-3))
        merged = numbered(db, "merged")
        assert [merged[tid][:2] for tid in range(1, 7)] == [(2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2)]
        assert numbered(db, "sorted")[1] == numbered(db, "hot")[1] == merged[4] == (1, 2, 94.0)
        times = [row[0] for row in numbered(db, "sorted").values()]
        assert times == sorted(times)
        assert [row[2] for row in numbered(db, "hot").values()] == [94.0, 93.0, 92.0, 93.0] + [120.0] * 6
        assert list(numbered(db, "places").values()) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (19, 2), (20, 2)]
        assert list(db["alarm"]) == [(3, 2), (19, 2), (20, 2)]


@pytest.mark.parametrize("view", list(STEPS))
def test_the_provenance_of_every_output_at_every_stream(view: str) -> None:
    for level in LEVELS:
        sources = [name for name in level if name in upstream(view)]
        if not sources:
            continue
        with opened(view, of=sources) as db:
            feed(db)
            for source in sources:
                expected = {tid: rows for tid, rows in behind(view, source).items() if rows}
                assert traced(db, view, source) == expected, source


def test_the_definition_by_hand() -> None:
    assert behind("alarm", "sensor1") == {1: {4, 5, 6}, 2: {20, 21, 22}, 3: {20, 21, 22, 23}}
    assert behind("alarm", "sensor2") == {1: {3, 4, 5}, 2: {19, 20, 21}, 3: {19, 20, 21, 22}}
    assert behind("hot", "sensor1")[4] == {4, 5, 6}
    merged = [{4}, {4, 5}, {5, 6}, {6, 3}, {3}, {37, 38}, {37, 38, 39, 40}]
    assert behind("places", "merged") == dict(enumerate(merged, 1))


@pytest.mark.parametrize("encoding", ["ids", "intervals", "deltas", "dictionary", "adaptive"])
def test_partial_instrumentation_p_8_of_5(encoding: str) -> None:
    with opened("places", of=["merged"], encoding=encoding) as db:
        feed(db)
        found = traced(db, "places", "merged")
        assert (found[2], found[3], found[4]) == ({4, 5}, {5, 6}, {6, 3})
        assert found == behind("places", "merged")
        with pytest.raises(whence.WhenceError, match="sensor1"):
            db.query("SELECT * FROM provenance(places, sensor1)")
        with pytest.raises(whence.WhenceError, match="alarm"):
            db.query("SELECT * FROM provenance(alarm, merged)")


def test_sensors_alone_if_nothing_is_said() -> None:
    with opened() as db:
        feed(db)
        for sensor in ("sensor1", "sensor2"):
            assert traced(db, "alarm", sensor) == behind("alarm", sensor)


def test_a_reading_beside_its_alarm() -> None:
    with opened() as db:
        feed(db)
        found = list(db.query("SELECT * FROM provenance(alarm, sensor1) WHERE time = 3"))
        assert found == [(1, 3, 2, tid, tid, 1, FIRST[tid - 1][2]) for tid in (4, 5, 6)]


@pytest.mark.parametrize("view", ["clean1", "mean2", "hot", "places", "alarm"])
def test_replay_under_covering_gives_the_same(view: str) -> None:
    with opened(view, "covering") as db:
        feed(db)
        for source in (name for name in upstream(view) if name.startswith("sensor")):
            expected = {tid: rows for tid, rows in behind(view, source).items() if rows}
            assert traced(db, view, source) == expected, source


REVISION = [(3, 3, 2, 92.0), (3, 4, 1, 93.0)]


def test_the_revision_query_ad_hoc_and_as_a_view() -> None:
    with whence.open() as db:
        db.execute(SCRIPT)
        feed(db)
        query = """SELECT time, merged_time, merged_location, merged_temp FROM provenance(places, merged)
                   WHERE merged_temp < 100 AND locations > 1"""
        assert sorted(db.query(query)) == REVISION
        assert sorted(db["revision"]) == REVISION
        assert traced(db, "alarm", "sensor2") == behind("alarm", "sensor2")


def test_a_revision_made_later_begins_with_what_is_kept() -> None:
    with opened("places", of=["merged"]) as db:
        feed(db)
        db.execute(SCRIPT[SCRIPT.index("CREATE VIEW revision") :])
        assert sorted(db["revision"]) == REVISION


def test_however_arrivals_are_cut() -> None:
    with opened() as one, opened() as other:
        feed(one)
        with other.transaction():
            feed(other)
        for view in STEPS:
            assert numbered(one, view) == numbered(other, view), view
        assert traced(one, "alarm", "sensor1") == traced(other, "alarm", "sensor1")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "overheating.py"), run_name="__main__")
    assert "92.0" in capsys.readouterr().out
