"""Words that nothing refers to any more are forgotten, and no answer changes."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import examples, some
from tests.oracle import with_provenance
from tests.programs.generate import make_program
from tests.programs.play import play
from tests.property.test_random_programs import Case, cases
from whence.model.codes import FORGOTTEN, Dictionary
from whence.runtime import word_collector
from whence.runtime.word_collector import WordCollector
from whence.state.disk import Disk
from whence.state.info import look

PATHS = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE VIEW path AS
  SELECT src, dst, cost, src || '>' || dst AS via FROM link
  UNION ALL
  SELECT path.src, link.dst, path.cost + link.cost, path.via || '>' || link.dst
  FROM path JOIN link ON path.dst = link.src;
CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;
CREATE VIEW best AS
  SELECT path.* FROM path JOIN cheapest USING (src, dst, cost);
"""

SCRIPT = """
CREATE TABLE item (id INT PRIMARY KEY, name TEXT, kind TEXT, price DECIMAL(38, 2), span INTERVAL);
CREATE TABLE link (src TEXT, dst TEXT);
CREATE STREAM said (who TEXT, what TEXT, at INT) WITH (retain = '20 rows');
CREATE VIEW extremes AS
  SELECT kind, MIN(name) AS low, MAX(name) AS high, COUNT(DISTINCT name) AS names, MAX(price) AS price,
         SUM(price) AS total, MIN(span) AS span FROM item GROUP BY kind;
CREATE VIEW first_names AS SELECT name, price FROM item ORDER BY name DESC, id LIMIT 3;
CREATE VIEW loud AS SELECT UPPER(name) || '!' AS name, 'constant of a view' AS why FROM item WHERE kind <> 'kept out';
CREATE VIEW alone AS SELECT name, kind FROM item WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.src = item.name);
CREATE VIEW padded AS SELECT item.name, link.dst FROM item LEFT JOIN link ON link.src = item.name;
CREATE VIEW both_sides AS SELECT name FROM item INTERSECT SELECT src FROM link;
CREATE VIEW reach AS
  SELECT src, dst, 'by ' || dst AS label FROM link
  UNION SELECT link.src, reach.dst, 'by ' || reach.label FROM link JOIN reach ON link.dst = reach.src
  WHERE LENGTH(reach.label) < 20;
CREATE VIEW windows AS
  SELECT who, COUNT(*) AS n, FIRST(what) AS first, LAST(what) AS last, MIN(what) AS low, COUNT(DISTINCT what) AS words
  FROM slide(said, on => at, width => 4, every => 2, lateness => 2) GROUP BY who;
CREATE VIEW latest_said AS SELECT who, what FROM latest(said, rows => 2, by => who);
CREATE VIEW pairs AS
  SELECT a.what AS one, b.what AS other
  FROM slide(said, rows => 3) AS a JOIN slide(said, rows => 2) AS b ON a.who = b.who;
"""
NAMES = ["ada", "bob", "cy", "dee", "eve", "fay", "gus"]


def collect(db: whence.Database) -> int:
    """Forget now what nothing refers to; return how many words were forgotten."""
    return inside.coordinator(db).words.collect(asked=True)


def contents(db: whence.Database) -> dict[str, Counter[Any]]:
    return {name: Counter(db[name].rows) for name in (*db.tables, *db.streams, *db.views)}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget words after every transaction, in memory and in folders."""

    def consider(self: WordCollector) -> None:
        if not self._coordinator.storage.read_only:
            self.collect(asked=True)

    monkeypatch.setattr(WordCollector, "consider", consider)


# -- how many there are ------------------------------------------------------------------------------------------------


def cut_links(db: whence.Database, cuts: int, seed: int = 1) -> Iterator[int]:
    """Cut links of a ring with shortcuts, and lay each again at another cost."""
    rng = random.Random(seed)
    size = 24
    links = [(f"n{i}", f"n{(i + step) % size}", rng.randint(1, 9)) for i in range(size) for step in (1, 5)]
    db.insert("link", links)
    for number in range(cuts):
        at = rng.randrange(len(links))
        db.delete("link", [links[at]])
        links[at] = (*links[at][:2], rng.randint(1, 9))
        db.insert("link", [links[at]])
        yield number


@pytest.mark.parametrize("durable", [False, True])
def test_words_of_paths_stay_in_proportion_to_those_in_use(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_collector, "FEW", 64)
    db, plain = whence.open(tmp_path / "db") if durable else whence.open(), whence.open()
    monkeypatch.setattr(inside.coordinator(plain).words, "consider", lambda: None)
    db.execute(PATHS)
    plain.execute(PATHS)
    others, most = cut_links(plain, 300), 0.0
    for number in cut_links(db, 300):
        next(others)
        if durable and number % 20 == 19:
            db.snapshot()
        if number % 20 == 19:
            assert Counter(db["best"].rows) == Counter(plain["best"].rows)
            used = {value for name in ("link", "path", "best") for row in db[name] for value in row}
            most = max(most, db.metrics()["dictionary"] / sum(isinstance(value, str) for value in used))
    assert most < 3
    found = db.metrics()
    assert plain.metrics()["dictionary"] > 4 * found["dictionary"]
    assert found["words_forgotten"] > 2 * found["dictionary"]
    assert plain.metrics()["words_forgotten"] == 0
    rows = contents(db)
    db.close()
    if durable:
        with whence.open(tmp_path / "db") as db:
            assert contents(db) == rows
            again = db.metrics()
            assert [again[n] for n in ("dictionary", "words_forgotten")] == [
                found[n] for n in ("dictionary", "words_forgotten")
            ]


def test_nothing_is_looked_for_until_words_have_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_collector, "FEW", 10)
    db = whence.open()
    db.execute("CREATE TABLE t (x TEXT)")
    looked = []
    words = inside.coordinator(db).words
    plain = inside.dataflow(db).mark_words
    monkeypatch.setattr(inside.dataflow(db), "mark_words", lambda marks: (looked.append(0), plain(marks)))
    for number in range(80):
        db.insert("t", [(f"word {number}",)])
    assert len(looked) == 4, "at 10, 20, 40 and 80 words"
    assert db.metrics()["dictionary"] == 80
    assert words.collect() == 0


# -- what must stay ----------------------------------------------------------------------------------------------------


def test_word_that_comes_again_is_found_by_constants_of_views(eager: None) -> None:
    db = whence.open()
    db.execute(
        "CREATE TABLE t (x TEXT);CREATE VIEW v AS SELECT x, 'sure' AS y FROM t WHERE x = 'wanted' OR x IN ('b', 'c')"
    )
    for _ in range(3):
        db.insert("t", [("wanted",), ("other",), ("b",)])
        assert Counter(db["v"].rows) == Counter([("wanted", "sure"), ("b", "sure")])
        db.execute("DELETE FROM t")
        assert collect(db) == 0
    assert db.metrics()["dictionary"] <= 4
    db.execute("DROP VIEW v")
    db.insert("t", [("last",)])
    assert db.metrics()["dictionary"] == 1


def test_feed_reports_changes_whose_words_are_forgotten_before_it_is_read() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (x TEXT); CREATE VIEW v AS SELECT x || '!' AS x FROM t")
    feed = db.changes("v")
    db.insert("t", [("a",), ("b",)])
    db.delete("t", [("a",)])
    assert collect(db) > 0
    db.delete("t", [("b",)])
    assert collect(db) > 0
    told = [(change.epoch, change.row, change.sign) for change in feed]
    assert told == [(1, ("a!",), 1), (1, ("b!",), 1), (2, ("a!",), -1), (3, ("b!",), -1)]


def test_answer_is_readable_after_its_words_are_forgotten() -> None:
    db = whence.open()
    db.execute(PATHS)
    db.insert("link", [("a", "b", 1), ("b", "c", 1)])
    why, critical = db.why("best", src="a", dst="c"), db.critical("best", src="a", dst="c")
    before = str(why), str(critical)
    db.execute("DELETE FROM link")
    assert collect(db) > 0
    assert (str(why), str(critical)) == before


def test_reader_without_a_lock_decodes_rows_of_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.io import rows

    db = whence.open()
    db.execute("CREATE TABLE t (x TEXT)")
    db.insert("t", [("a",)])
    decode = rows.to_tuples

    def slowly(*args: Any) -> Any:
        db.execute("DELETE FROM t")
        assert collect(db) == 1
        monkeypatch.setattr(rows, "to_tuples", decode)
        return decode(*args)

    monkeypatch.setattr(rows, "to_tuples", slowly)
    assert db["t"].rows == [("a",)]


def test_readers_in_other_threads_see_whole_words(eager: None) -> None:
    db = whence.open()
    db.execute(
        "CREATE TABLE link (src TEXT, dst TEXT);"
        "CREATE VIEW reach AS SELECT src, dst, src || '>' || dst AS way FROM link "
        "UNION SELECT l.src, r.dst, l.src || '>' || r.dst FROM link l JOIN reach r ON l.dst = r.src"
    )
    done, faults, feed = threading.Event(), list[str](), db.changes("reach")

    def reader(read: Callable[[], Iterable[tuple[str, str, str]]]) -> None:
        while not done.is_set() and not faults:
            try:
                faults.extend(str(row) for row in read() if row[2] != f"{row[0]}>{row[1]}")
            except whence.WhenceError as error:
                faults.append(str(error))

    reads: list[Callable[[], Any]] = [
        lambda: db["reach"].rows,
        lambda: db["reach"].where(src="a1").rows,
        lambda: db.query("SELECT * FROM reach").rows,
        lambda: [change.row for change in feed],
    ]
    threads = [threading.Thread(target=reader, args=(read,)) for read in reads]
    for thread in threads:
        thread.start()
    rng = random.Random(5)
    for number in range(60):
        db.insert("link", [(f"a{rng.randrange(5)}", f"a{rng.randrange(5)}"), (f"a{rng.randrange(5)}", f"x{number}")])
        db.execute(f"DELETE FROM link WHERE dst IN ('x{number - 3}', 'a{rng.randrange(5)}')")
    done.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert db.metrics()["words_forgotten"] > 50


def test_nothing_is_forgotten_while_a_transaction_is_open() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (x TEXT)")
    with db.transaction():
        db.insert("t", [("pending",)])
        assert collect(db) == 0
    assert db["t"].rows == [("pending",)]


def test_what_if_and_a_failed_epoch_after_forgetting(eager: None) -> None:
    db = whence.open()
    db.execute(SCRIPT)
    db.insert("item", [(1, "ada", "x", Decimal("10") ** 30, timedelta(days=1)), (2, "bob", "x", Decimal(1), None)])
    db.delete("item", key=2)
    before = contents(db)
    found = db.what_if(insert={"item": [(3, "bob", "y", Decimal("10") ** 31, timedelta(days=2))]})
    assert sorted(found.tables) == ["item"]
    assert contents(db) == before
    with suppress(RuntimeError), db.transaction():
        db.insert("item", [(4, "bob", "y", Decimal("10") ** 31, timedelta(days=2))])
        raise RuntimeError
    assert contents(db) == before
    db.insert("item", [(5, "bob", "y", Decimal("10") ** 31, timedelta(days=2))])
    assert db["extremes"].rows[-1][0] in ("x", "y")


def test_code_of_a_forgotten_word_is_an_error_and_never_another_word() -> None:
    words = Dictionary()
    words.intern_all(["a", "b"])
    words.forget(np.array([0]))
    assert words.intern("c") == 2
    with pytest.raises(whence.WhenceError, match="forgotten"):
        words.value(0)
    with pytest.raises(whence.WhenceError, match="forgotten"):
        words.values(np.array([1, 0]))
    assert words.since(0) == [FORGOTTEN, "b", "c"]
    assert not words.extend(3, ["b"]), "it has another code"


def test_order_of_texts_after_some_are_forgotten() -> None:
    words = Dictionary()
    codes = words.intern_all([f"{n:03d}" for n in range(200)])
    words.order_of(codes)
    words.forget(codes[::2])
    more = words.intern_all([f"{n:03d}" for n in range(0, 200, 2)])
    both = np.concatenate((codes[1::2], more))
    assert words.values(both[np.argsort(words.order_of(both))]) == [f"{n:03d}" for n in range(200)]
    fresh = Dictionary()
    assert fresh.extend(0, words.since(0))
    assert fresh.values(both[np.argsort(fresh.order_of(both))]) == [f"{n:03d}" for n in range(200)]
    assert (fresh.words, fresh.holes) == (words.words, words.holes) == (200, 100)


def test_snapshot_says_how_many_words_it_forgot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with whence.open(tmp_path / "db") as db, caplog.at_level(logging.INFO, "whence"):
        db.execute("CREATE TABLE t (x TEXT)")
        db.insert("t", [("a",), ("b",), ("c",)])
        db.delete("t", [("a",), ("b",)])
        assert db.snapshot()
        assert "2 unused words forgotten" in caplog.text
        assert not db.snapshot()
    found = look(tmp_path / "db", Disk())
    assert (found.words, found.words_forgotten) == (1, 2)


# -- a twin that forgets nothing ---------------------------------------------------------------------------------------


def random_step(rng: random.Random, number: int) -> Any:
    """Return what a step does to a database, the same to each."""
    name, word = rng.choice(NAMES), f"{rng.choice(NAMES)} {number // 3}"
    price = Decimal(rng.randint(-9, 9)) * Decimal(10) ** rng.choice([0, 20, 30])
    key, span = rng.randint(1, 12), rng.choice([None, timedelta(days=rng.randint(0, 5), seconds=number)])
    link = (rng.choice(NAMES), rng.choice([word, *NAMES]))
    said, at, kind = (name, f"{word} said", number - rng.randint(0, 5)), rng.random(), rng.choice("xyz")

    def step(db: whence.Database) -> None:
        if at < 0.35:
            db.insert("item", [(key, word, kind, price, span)])
        elif at < 0.5:
            db.delete("item", key=key)
        elif at < 0.65:
            db.insert("link", [link])
        elif at < 0.8:
            db.execute(f"DELETE FROM link WHERE src = '{name}'")
        elif at < 0.85:
            db.delete("link", [(word, name)], early="hold")
        else:
            db.insert("said", [said])

    return step


@pytest.mark.parametrize(
    "options", some(["", "maintain = 'absorption'", "policy = 'dred'", "maintain = 'relative'"], 2)
)
@settings(max_examples=examples(4), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), often=st.integers(1, 7))
def test_database_that_forgets_answers_like_one_that_does_not(
    options: str, seed: int, often: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, rng = tmp_path_factory.mktemp("words") / "db", random.Random(seed)
    script = with_provenance(SCRIPT, options) if options else SCRIPT
    plain, db = whence.open(), whence.open(path, retain=10_000)
    plain.execute(script)
    db.execute(script)
    follower = whence.open(path, read_only=True)
    feed, followed = db.changes("reach", snapshot=True), follower.changes("extremes", snapshot=True)
    other, others = plain.changes("reach", snapshot=True), plain.changes("extremes", snapshot=True)
    past: dict[int, dict[str, Counter[Any]]] = {}
    for number in range(40):
        step = random_step(rng, number)
        step(plain)
        step(db)
        if number % often == 0:
            collect(db)
        if number % 11 == 10:
            db.snapshot()
        if number % 10 == 9:
            past[db.epoch] = contents(plain)
            assert contents(db) == past[db.epoch]
            assert contents(follower) == past[db.epoch]
            assert list(feed) == list(other)
            db.close()
            db = whence.open(path)
            assert contents(db) == past[db.epoch]
            feed, other = db.changes("reach"), plain.changes("reach")
    assert list(followed) == list(others)
    for epoch, wanted in past.items():
        with db.at(epoch) as then:
            assert contents(then) == wanted
    assert db.metrics()["words_forgotten"] > 0
    db.close()
    assert whence.check(path).ok
    for partitions in (3, None):  # a folder with holes, spread out and back
        with whence.open(path, partitions=partitions) as db:
            assert contents(db) == contents(plain)
            db.insert("link", [("ada", "again")])
            plain.insert("link", [("ada", "again")])
            assert contents(db) == contents(plain)


@settings(max_examples=examples(25), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(case=cases(recursive=False))
def test_random_queries_are_what_duckdb_computes_when_words_are_forgotten(case: Case, eager: None) -> None:
    case.run()


@settings(max_examples=examples(25), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(case=cases(recursive=True))
def test_random_recursion_is_what_duckdb_computes_when_words_are_forgotten(case: Case, eager: None) -> None:
    case.run()


@pytest.mark.parametrize("seed", range(100, 108))
def test_random_programs_are_what_duckdb_computes_when_words_are_forgotten(seed: int, eager: None) -> None:
    play(make_program(seed))
