"""Held views: every read is of the last epoch, whatever waits; feeds, questions, conditions, errors and reopening."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.oracle import on_partitions
from whence.runtime.held_views import HeldView, HeldViews

TABLES = "CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT, c INT);"
VIEW = "CREATE VIEW v WITH (respond_within = '1 hour') AS SELECT a, c FROM r JOIN s ON r.b = s.b"

both = pytest.mark.parametrize("partitions", [None, 3])


@pytest.fixture(autouse=True)
def _never_recompute(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock not decide: only tests of recomputing recompute."""
    if "recomput" not in request.node.name:
        estimate = HeldViews._costs_of
        monkeypatch.setattr(
            HeldViews, "_costs_of", lambda self, view: replace(estimate(self, view), recompute=math.inf)
        )


@pytest.fixture
def db(request: pytest.FixtureRequest) -> whence.Database:
    count = request.node.callspec.params.get("partitions") if hasattr(request.node, "callspec") else None
    with on_partitions(count):
        found = whence.open()
    found.execute(TABLES)
    found.execute(VIEW)
    return found


def _pending(db: whence.Database) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = db._coordinator.catalog.backend.pending()
    return found


def _learn(db: whence.Database, *views: str) -> None:
    """Let the costs of all tables be known, so that nothing is released only to learn them."""
    for name in ("r", "s"):
        db.insert(name, [(0, 0)])
        db.delete(name, [(0, 0)])
    for view in views or ("v",):
        list(db[view])


def _held(db: whence.Database, name: str = "v") -> HeldView:
    return db._coordinator.held._views[name]


@both
def test_read_is_exact_and_says_what_it_took(db: whence.Database, partitions: int | None) -> None:
    _learn(db)
    db.insert("r", [(1, 1), (2, 2), (3, 3)])
    db.insert("s", [(1, 10)])
    db.insert("s", [(3, 30)])
    db.delete("r", [(2, 2)])
    assert _pending(db) == {("v", "r"): 4 if partitions is None else _pending(db)["v", "r"], ("v", "s"): 2}
    assert Counter(db["v"].rows) == Counter([(1, 10), (3, 30)])
    assert _pending(db) == {}
    refreshed = db["v"].refreshed
    assert refreshed is not None
    assert refreshed.epoch == db.epoch
    assert set(refreshed.tables) == {"r", "s"}
    assert refreshed.rows == sum(refreshed.tables.values()) >= 5
    assert not refreshed.recomputed
    figures = db.metrics()["held"]["v"]
    assert figures["misses"] == 0
    assert figures["pending"] == 0
    assert figures["reads"] >= 2


@both
def test_every_way_to_read_is_of_the_last_epoch(db: whence.Database, partitions: int | None) -> None:
    db.execute("CREATE VIEW over AS SELECT a, COUNT(*) AS n FROM v GROUP BY a")
    _learn(db)
    reads: list[Any] = [
        lambda: sorted(db["v"].rows),
        lambda: sorted(map(tuple, db.execute("SELECT * FROM v"))),
        lambda: sorted((row["a"], row["c"]) for row in db["v"].to_dicts()),
        lambda: sorted((a, c) for a in range(60) for (_, c) in db["v"].where(a=a)),
        lambda: sorted((a, a) for a in range(60) if (a, a) in db["v"]),
        lambda: sorted(zip(*db["v"].to_arrow().to_pydict().values(), strict=True)),
        lambda: sorted((a, a) for a, n in db["over"].rows for _ in range(n)),
    ]
    for i, read in enumerate(reads * 2):
        db.insert("r", [(i, i)])
        db.insert("s", [(i, i)])
        assert _pending(db)
        assert read() == sorted((j, j) for j in range(i + 1))
    db.insert("r", [(99, 99)])
    assert len(db["v"]) == len(reads) * 2


def test_transaction_reads_views_as_committed(db: whence.Database) -> None:
    _learn(db)
    db.insert("r", [(1, 1)])
    with db.transaction():
        db.insert("s", [(1, 5)])
        assert db["v"].rows == []
    assert db["v"].rows == [(1, 5)]


@both
def test_failed_epoch_leaves_nothing_pending(db: whence.Database, partitions: int | None) -> None:
    db.execute("CREATE VIEW strict AS SELECT 1 // (a - 7) AS x FROM r")
    _learn(db)
    db.insert("r", [(1, 1)])
    before = _pending(db)
    with pytest.raises(whence.WhenceError):
        db.insert("r", [(7, 1), (8, 1)])
    assert _pending(db) == before
    db.insert("s", [(1, 2)])
    assert db["v"].rows == [(1, 2)]


def test_error_is_the_readers_and_rows_stay_pending(db: whence.Database) -> None:
    """Writers are not hurt by a held view that cannot follow; when the row is gone nothing ever saw it."""
    db.execute("CREATE VIEW q WITH (respond_within = '1 hour') AS SELECT a, 10 // b AS x FROM r")
    _learn(db, "q")
    db.insert("r", [(1, 5)])
    db.insert("r", [(2, 0)])
    for _ in range(2):
        with pytest.raises(whence.WhenceError, match="zero"):
            list(db["q"])
    assert _pending(db)["q", "r"] == 2
    db.delete("r", [(2, 0)])
    assert db["q"].rows == [(1, 2)]


def test_release_that_a_schedule_asks_for_fails_quietly(db: whence.Database) -> None:
    db.execute("CREATE VIEW q WITH (respond_within = '1 microsecond') AS SELECT a, 10 // b AS x FROM r")
    for row in [(1, 5), (2, 0), (3, 2)]:
        db.insert("r", [row])
    assert db.metrics()["held"]["q"]["failed"] == 2
    db.delete("r", [(2, 0)])
    assert Counter(db["q"].rows) == Counter([(1, 2), (3, 5)])


@both
def test_bound_of_nothing_is_refreshed_with_every_epoch(db: whence.Database, partitions: int | None) -> None:
    db.execute("CREATE VIEW now WITH (respond_within = '1 microsecond') AS SELECT a FROM r")
    for i in range(5):
        db.insert("r", [(i, i)])
        assert ("now", "r") not in _pending(db)
    figures = db.metrics()["held"]["now"]
    assert figures["releases"] == 5


@pytest.mark.parametrize("schedule", ["naive", "online", "planned", "planned for 3 epochs"])
def test_schedules_keep_the_estimate_within_the_bound(schedule: str) -> None:
    """With costs that are given, what is pending after an epoch always fits."""
    db = whence.open()
    db.execute(TABLES)
    db.execute(VIEW.replace("'1 hour'", f"'40 ms', refresh = '{schedule}'"))
    view = _look(db)
    for table, (fixed, each) in zip(view.model.tables, [(0.0, 0.001), (0.02, 0.0001)], strict=True):
        for rows in (1, 10, 100, 1000):
            table.observe(rows, fixed + each * rows)
        table.observe = lambda rows, seconds: None  # type: ignore[method-assign]  # the clock has no say here
    model = view.model
    model.observe_refresh = lambda estimated, seconds: None  # type: ignore[method-assign]
    model.margin = 1.0
    for i in range(120):
        with db.transaction():
            db.insert("r", [(i, i % 7)])
            db.insert("s", [(i % 7, i)])
        pending = _pending(db)
        counts = [pending.get(hold, 0) for hold in view.holds]
        assert model.costs(()).incremental(counts) <= 0.040001
    assert view.releases > 2
    assert len(db["v"]) == sum(1 for a in range(120) for b in range(120) if a % 7 == b % 7)


def _look(db: whence.Database) -> HeldView:
    db.metrics()
    return _held(db)


@both
def test_change_feed_tells_the_net_change_when_nothing_is_pending(db: whence.Database, partitions: int | None) -> None:
    _learn(db)
    feed = db.changes("v")
    db.insert("r", [(1, 1), (2, 1)])
    db.insert("s", [(1, 5)])
    db.delete("r", [(2, 1)])
    assert [(c.epoch, c.row, c.sign) for c in feed] == [(db.epoch, (1, 5), 1)]
    coordinator = db._coordinator
    db.insert("r", [(3, 1)])
    db.insert("s", [(1, 6)])
    with coordinator.state:  # of one table only: a state that no epoch had
        told = coordinator.held._release([("v", "r")], _pending(db))
    assert told == {}
    assert sorted((c.row, c.sign) for c in feed) == [((1, 6), 1), ((3, 5), 1), ((3, 6), 1)]


@both
def test_view_over_held_view_waits_with_it(db: whence.Database, partitions: int | None) -> None:
    """What reads a held view is told, and read, with it; what is held itself answers for both."""
    db.execute("CREATE VIEW over AS SELECT v.a, r.b FROM v JOIN r ON r.a = v.a")
    db.execute("CREATE VIEW both WITH (respond_within = '1 hour') AS SELECT v.a, s.b FROM v JOIN s ON s.c = v.c")
    _learn(db, "v", "both")
    feed = db.changes("over")
    db.insert("r", [(1, 1)])
    db.insert("s", [(1, 5)])
    assert set(_held(db, "both").holds) == {("v", "r"), ("v", "s"), ("both", "s")}
    assert set(_pending(db)) == {("v", "r"), ("v", "s"), ("both", "s")}
    assert db["over"].rows == [(1, 1)]
    assert [(c.row, c.sign) for c in feed] == [((1, 1), 1)]
    assert set(_pending(db)) == {("both", "s")}
    assert db["both"].rows == [(1, 1)]


@both
def test_what_if_sees_through_held_views(db: whence.Database, partitions: int | None) -> None:
    _learn(db)
    db.insert("r", [(1, 1)])
    found = db.what_if(insert={"s": [(1, 5)]})
    assert "v  0 gone, 1 new" in str(found)
    assert db["v"].rows == []
    db.insert("s", [(1, 6)])
    assert db["v"].rows == [(1, 6)]


@both
def test_why_and_critical_are_of_the_last_epoch(db: whence.Database, partitions: int | None) -> None:
    db.execute("CREATE VIEW n WITH (respond_within = '1 hour') AS SELECT b, COUNT(*) AS n FROM r GROUP BY b")
    _learn(db, "v", "n")
    db.insert("r", [(1, 1), (2, 1)])
    db.insert("s", [(1, 5)])
    why = str(db.why("v", a=1, c=5))
    assert "r(1, 1)" in why.replace(" a=", "").replace("b=", "") or "1" in why
    db.insert("r", [(3, 1)])
    assert db["n"].rows == [(1, 3)]
    assert db.critical("v", a=2, c=5) is not None
    assert db.critical("n", b=1, n=3) is not None  # tried on a copy, in which nothing waits
    assert "no row" in str(db.why("v", a=9, c=5)).lower() or db.why("v", a=9, c=5) is not None


@both
@pytest.mark.parametrize("image", [False, True])
def test_pending_rows_survive_reopening(tmp_path: Path, image: bool, partitions: int | None) -> None:
    path = tmp_path / "held.db"
    with on_partitions(partitions):
        with whence.open(path) as db:
            db.execute(TABLES)
            db.execute(VIEW)
            db.execute("CREATE VIEW plain AS SELECT a, c FROM r JOIN s ON r.b = s.b")
            _learn(db)
            db.insert("r", [(1, 1), (2, 2)])
            if image:
                assert db.snapshot()
            db.insert("s", [(1, 5), (2, 6)])
            assert set(_pending(db)) == {("v", "r"), ("v", "s")}
        with whence.open(path, read_only=True) as db:
            if partitions is None:
                assert set(_pending(db)) == {("v", "r"), ("v", "s")}
            assert Counter(db["v"].rows) == Counter([(1, 5), (2, 6)])
        with whence.open(path) as db:  # a writer's costs are learnt anew, so what is pending is released
            assert _pending(db) == {}
            db.insert("s", [(2, 7)])
            assert Counter(db["v"].rows) == Counter(db["plain"].rows) == Counter([(1, 5), (2, 6), (2, 7)])
            assert Counter(db.at(db.epoch - 1)["v"].rows) == Counter([(1, 5), (2, 6)])
    assert whence.check(path).ok


def test_lost_pending_rows_are_not_taken_for_released(tmp_path: Path) -> None:
    """Where the image of a hold is damaged, all that lies behind it is computed anew."""
    from whence.engine.core.image import SoundImages

    path = tmp_path / "lost.db"
    with whence.open(path) as db:
        db.execute(TABLES)
        db.execute(VIEW)
        _learn(db)
        db.insert("r", [(1, 1)])
        db.insert("s", [(1, 5)])
        holds = {op.fingerprint for op in db._coordinator.catalog.flow.order if op.describe() == "hold r"}
        assert db.snapshot()
    real = SoundImages.get
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SoundImages, "get", lambda self, key: None if key[3:] in holds else real(self, key))
        with whence.open(path) as db:
            assert db["v"].rows == [(1, 5)]
            db.delete("s", [(1, 5)])
            assert db["v"].rows == []


def test_redefined_and_dropped_views_take_their_rows_along(db: whence.Database) -> None:
    _learn(db)
    feed = db.changes("v")
    db.insert("r", [(1, 1)])
    db.insert("s", [(1, 5)])
    db.execute(VIEW.replace("CREATE", "CREATE OR REPLACE").replace("= s.b", "= s.b AND c < 7"))
    db.insert("s", [(1, 6)])
    assert Counter(db["v"].rows) == Counter([(1, 5), (1, 6)])
    assert sum(c.sign for c in feed) == 2
    db.execute("CREATE OR REPLACE VIEW v AS SELECT a, c FROM r NATURAL JOIN s")
    db.insert("s", [(1, 8)])
    assert _pending(db) == {}
    assert len(db["v"]) == 3
    with pytest.raises(whence.WhenceError, match="is not held"):
        _ = db["v"].refreshed
    db.execute("DROP VIEW v")
    assert db.metrics()["held"] == {}


@both
def test_recomputed_view_is_its_definition(db: whence.Database, partitions: int | None) -> None:
    db.execute("CREATE VIEW over AS SELECT a, COUNT(*) AS n FROM v GROUP BY a")
    db.execute("CREATE VIEW other AS SELECT a FROM r")
    _learn(db)
    feed, counts = db.changes("v"), db.changes("over")
    db.insert("r", [(i, i) for i in range(20)])
    db.insert("s", [(i, 1) for i in range(10)])
    coordinator = db._coordinator
    with coordinator.paused():
        told = coordinator.held._recompute(_held(db))
        coordinator.push(told)
    assert _pending(db) == {}
    assert Counter(db["v"].rows) == Counter((i, 1) for i in range(10))
    assert sorted(c.row for c in feed) == [(i, 1) for i in range(10)]
    assert sorted(c.row for c in counts) == [(i, 1) for i in range(10)]
    db.insert("s", [(15, 2)])
    db.delete("r", [(0, 0)])
    assert Counter(db["v"].rows) == Counter([*((i, 1) for i in range(1, 10)), (15, 2)])
    assert len(db["over"]) == 10
    assert len(db["other"]) == 19
    assert db.metrics()["held"]["v"]["recomputed"] >= 1


def test_recomputing_is_chosen_where_it_is_cheaper(db: whence.Database) -> None:
    _learn(db)
    view = _held(db)
    for table in view.model.tables:
        for rows in (1, 4, 16, 64):
            table.observe(rows, 1.0 * rows)
    view.model.observe_recomputing((10, 10), 1e-6)
    db.insert("r", [(i, i) for i in range(20)])
    db.insert("s", [(i, 1) for i in range(20)])
    assert len(db["v"]) == 20
    refreshed = db["v"].refreshed
    assert db.metrics()["held"]["v"]["recomputed"] >= 1
    assert refreshed is not None


@both
def test_subscription_is_told_with_every_epoch(db: whence.Database, partitions: int | None) -> None:
    """Who subscribes without a condition reads the view at every epoch: it does not wait then."""
    _learn(db)
    with db.subscribe("v", every_change=True) as subscription:
        list(subscription)
        db.insert("r", [(1, 1), (2, 1)])
        db.insert("s", [(1, 5)])
        db.insert("s", [(1, 6)])
        assert _pending(db) == {}
        assert [sorted(update.came) for update in subscription] == [[(1, 5), (2, 5)], [(1, 6), (2, 6)]]
    db._coordinator.hub.sweep(0.0)
    db.insert("s", [(1, 7)])
    assert _pending(db) == {("v", "s"): 1}


@both
def test_condition_tells_of_more_than_ten_cases_in_the_last_hour(partitions: int | None) -> None:
    now = [1_000_000.0]
    with on_partitions(partitions):
        db = whence.open(clock=lambda: now[0])
    db.execute("CREATE TABLE cases (id INT, place TEXT) WITH (ttl = '1 h')")
    db.execute(
        "CREATE VIEW by_place WITH (respond_within = '1 min') AS SELECT place, COUNT(*) AS n FROM cases GROUP BY place"
    )
    db.insert("cases", [(0, "x")])  # so that its cost is known
    list(db["by_place"])
    with db.subscribe("by_place", when="SELECT COUNT(*) > 10 FROM cases") as subscription:
        assert list(subscription) == []
        for i in range(1, 10):
            db.insert("cases", [(i, "x" if i % 2 else "y")])
        assert list(subscription) == []
        assert _pending(db) == {("by_place", "cases"): 9}
        db.insert("cases", [(10, "y")])  # the eleventh
        assert _pending(db) == {}
        [update] = subscription
        assert sorted(update.rows) == [("x", 6), ("y", 5)]
        db.insert("cases", [(11, "z")])  # it stays true
        assert list(subscription) == []
        assert _pending(db) != {}
        now[0] += 4000  # an hour later nothing is left
        db.insert("cases", [(i, "w") for i in range(20, 23)])
        assert list(subscription) == []
        list(db["by_place"])  # another reader: not told of
        assert list(subscription) == []
        db.insert("cases", [(i, "w") for i in range(30, 40)])
        [update] = subscription
        assert update.rows == [("w", 13)]
        assert sorted(update.went) == [("x", 6), ("y", 5)]
    db.insert("cases", [(99, "x")])
    assert _pending(db) != {}


def test_condition_that_holds_already_is_told_at_once(db: whence.Database) -> None:
    _learn(db)
    db.insert("r", [(1, 1)])
    db.insert("s", [(1, 5)])
    with db.subscribe("v", when="SELECT COUNT(*) > 0 FROM r") as subscription:
        assert [update.rows for update in subscription] == [[(1, 5)]]
    for when in ("SELECT COUNT(*) FROM r", "SELECT a > 1, a FROM r", "SELECT COUNT(*) > 0 FROM v"):
        with pytest.raises(whence.WhenceError, match="when"):
            db.subscribe("v", when=when)
    assert db._coordinator.hub.counts["channels"] <= 3


def test_streams_as_relations_are_held_and_stream_views_are_not() -> None:
    db = whence.open()
    db.execute("CREATE STREAM s (k INT, x INT) WITH (retain = '3 rows')")
    db.execute("CREATE VIEW n WITH (respond_within = '1 hour') AS SELECT k, COUNT(*) AS n FROM s GROUP BY k")
    db.insert("s", [(1, 1)])
    list(db["n"])
    for i in range(10):
        db.insert("s", [(i % 2, i)])
    assert _pending(db) == {("n", "s"): 10}
    assert Counter(db["n"].rows) == Counter([(0, 5), (1, 6)])
    with pytest.raises(whence.SqlError, match="is a stream"):
        db.execute("CREATE VIEW f WITH (respond_within = '1 hour') AS SELECT k FROM s WHERE x > 1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("respond_within = '5'", "must be a duration"),
        ("refresh = 'online'", "but not respond_within"),
        ("respond_within = '1 s', refresh = 'later'", "'planned for 500 epochs'"),
        ("respond_within = '1 s', refresh = 'planned for 0 epochs'", "above zero"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: str, message: str) -> None:
    db = whence.open()
    db.execute(TABLES)
    with pytest.raises(whence.SqlError, match=message):
        db.execute(f"CREATE VIEW v WITH ({options}) AS SELECT a FROM r")


def test_explain_shows_holds_and_what_is_pending(db: whence.Database) -> None:
    _learn(db)
    db.insert("r", [(1, 1)])
    text = db.explain("v")
    assert "hold r" in text
    assert "pending: 1 rows" in text
