"""Images of state: a database restored from them is the database that gave them, in every epoch to come.

A `Pair` runs one database, dumps all its parts, and restores another from them; from then on both get the same epochs,
and both are compared with a third that computes the views from the tables.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from whence.engine.core.image import Image, StaleImage
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.core.relation import Relation
from whence.engine.recursion.fixpoint import Fixpoint
from whence.model.codes import Dictionary
from whence.model.types import TEXT
from whence.runtime.coordinator import Coordinator
from whence.sql.parse import parse

Row = tuple[Any, ...]
Update = tuple[str, Row, int]

TABLES = """
    CREATE TABLE t (a INT, b BIGINT, s TEXT, f DOUBLE);
    CREATE TABLE u (a INT, c INT, s TEXT);
    CREATE TABLE w (c INT PRIMARY KEY, e INT);
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
"""
POISON = "CREATE TABLE poison (x TEXT); CREATE VIEW poisoned AS SELECT CAST(x AS INT) AS n FROM poison;"

REACHABLE = """CREATE VIEW reachable {options} AS SELECT src, dst FROM link
    UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;"""
CHEAPEST = """CREATE VIEW cheapest {options} AS
    SELECT src, dst, MIN(cost) AS cost FROM (
      SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, cheapest.dst, link.cost + cheapest.cost
                FROM link JOIN cheapest ON link.dst = cheapest.src) GROUP BY src, dst;"""

SHAPES = {
    "select": "CREATE VIEW v AS SELECT a + 1 AS a, upper(s) AS s FROM t WHERE b > 1;",
    "values": "CREATE VIEW v AS SELECT t.a, k.name FROM t JOIN (VALUES (1, 'one'), (2, NULL)) k(n, name) ON k.n = t.a;",
    "union": "CREATE VIEW v AS SELECT a FROM t UNION ALL SELECT c FROM u;",
    "join": "CREATE VIEW v AS SELECT t.a, t.s, u.c FROM t JOIN u ON t.a = u.a AND t.b < u.c;",
    "join of four": """CREATE VIEW v AS SELECT t.a, t2.b, u.c, w.e FROM t, t t2, u, w
        WHERE w.e = t.b AND u.a = t2.a AND t2.b = w.c;""",
    "cross join": "CREATE VIEW v AS SELECT t.a, w.c FROM t, w WHERE t.a < w.c;",
    "left join": "CREATE VIEW v AS SELECT t.a, u.c FROM t LEFT JOIN u ON t.a = u.a AND u.c > t.b;",
    "right join": "CREATE VIEW v AS SELECT t.a, u.c FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 1;",
    "full join": "CREATE VIEW v AS SELECT t.a, t.s, u.c FROM t FULL JOIN u ON t.a = u.a AND t.s = u.s;",
    "semi": "CREATE VIEW v AS SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.b);",
    "anti": "CREATE VIEW v AS SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.b);",
    "not in": "CREATE VIEW v AS SELECT * FROM t WHERE a NOT IN (SELECT c FROM u WHERE u.s = t.s);",
    "mark": "CREATE VIEW v AS SELECT a, a IN (SELECT c FROM u) AS x, b > 2 OR EXISTS (SELECT 1 FROM w) AS y FROM t;",
    "any row": "CREATE VIEW v AS SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE c > 3);",
    "distinct": "CREATE VIEW v AS SELECT DISTINCT a, s FROM t;",
    "intersect": "CREATE VIEW v AS SELECT a FROM t INTERSECT SELECT c FROM u;",
    "intersect all": "CREATE VIEW v AS SELECT a FROM t INTERSECT ALL SELECT c FROM u;",
    "except": "CREATE VIEW v AS SELECT a FROM t EXCEPT SELECT c FROM u;",
    "except all": "CREATE VIEW v AS SELECT a FROM t EXCEPT ALL SELECT c FROM u;",
    "aggregate": """CREATE VIEW v AS SELECT a, count(*) AS n, count(b) AS m, sum(b) AS total, avg(b) AS mean,
        sum(f) AS f, avg(f) AS g FROM t GROUP BY a;""",
    "distinct aggregates": """CREATE VIEW v AS SELECT s, count(DISTINCT a) AS n, sum(DISTINCT b) AS m,
        avg(DISTINCT f) AS k FROM t GROUP BY s;""",
    "best": """CREATE VIEW v AS SELECT a, min(b) AS b, max(b) AS bb, min(s) AS s, max(s) AS ss,
        min(f) AS f, max(f) AS ff FROM t GROUP BY a;""",
    "one group": """CREATE VIEW v AS SELECT count(*) AS n, sum(b) AS m, min(s) AS s, max(f) AS f, count(DISTINCT s) AS k
        FROM t;""",
    "top": "CREATE VIEW v AS SELECT a, s FROM t ORDER BY s DESC, a LIMIT 4 OFFSET 2;",
    "top by text": "CREATE VIEW v AS SELECT s, f FROM t ORDER BY s NULLS FIRST LIMIT 3;",
    "rest": "CREATE VIEW v AS SELECT b, s FROM t ORDER BY b, s DESC OFFSET 3;",
    "scalar subqueries": """CREATE VIEW v AS SELECT a, (SELECT max(c) FROM u WHERE u.a = t.a) AS m,
        (SELECT count(*) FROM u WHERE u.s = t.s) AS n FROM t WHERE b > (SELECT avg(c) FROM u);""",
    "functions": """CREATE VIEW v AS SELECT twice(a) AS a, k.n FROM t, LATERAL upto(t.b) AS k(n);
        CREATE VIEW x AS SELECT n, count(*) AS m FROM v GROUP BY n;""",
    "shared": """CREATE VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a;
        CREATE VIEW x AS SELECT v.a, v.n, u.c FROM v JOIN u ON v.a = u.a;
        CREATE VIEW y AS SELECT n, max(a) AS a FROM v GROUP BY n;""",
    "support": REACHABLE.format(options=""),
    "dred": REACHABLE.format(options="WITH (policy = 'dred')"),
    "minimum": CHEAPEST.format(options=""),
    "minimum by dred": CHEAPEST.format(options="WITH (policy = 'dred')"),
    "over recursion": REACHABLE.format(options="")
    + """CREATE VIEW v AS SELECT r.src, count(*) AS n, max(r.dst) AS last FROM reachable r GROUP BY r.src;
        CREATE VIEW x AS SELECT r.src, u.c FROM reachable r JOIN u ON r.dst = u.s;
        CREATE VIEW y AS SELECT a.src FROM reachable a JOIN reachable b ON a.src = b.dst AND a.dst = b.src;""",
    "mutual recursion": """
        CREATE VIEW odd AS SELECT src, dst FROM link
          UNION SELECT link.src, even.dst FROM link JOIN even ON link.dst = even.src;
        CREATE VIEW even AS SELECT link.src, odd.dst FROM link JOIN odd ON link.dst = odd.src;""",
    "absence": """CREATE VIEW v AS SELECT src, dst FROM link
        UNION SELECT v.src, link.dst FROM v JOIN link ON v.dst = link.src
              WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.s = link.dst);""",
    "recursion through functions": """CREATE VIEW v AS SELECT a AS n, s FROM t WHERE a IS NOT NULL
        UNION SELECT twice(n), lower(s) || 'x' FROM v WHERE n < 9 AND n > 0;
        CREATE VIEW x AS SELECT a AS n FROM t UNION SELECT k.n FROM x, LATERAL upto(x.n) AS k(n);""",
    "selected aggregate": """CREATE VIEW path AS SELECT src, dst, cost FROM link
        UNION SELECT link.src, path.dst, link.cost + path.cost FROM link JOIN path ON link.dst = path.src;
        CREATE VIEW best AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;""",
}


def row_of(table: str, rng: random.Random) -> Row:
    def some(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    word = some(rng.choice(["a", "B", "ab", "c", "", f"w{rng.randint(0, 40)}"]))
    match table:
        case "t":
            return some(rng.randint(-1, 5)), some(rng.randint(0, 5)), word, some(rng.randint(-8, 8) / 4)
        case "u":
            return some(rng.randint(0, 5)), some(rng.randint(0, 6)), word
        case "w":
            return rng.randint(0, 6), some(rng.randint(0, 4))
    return rng.choice("abcdefg"), rng.choice("abcdefg"), rng.randint(1, 9)


class Pair:
    """A database, and from `fork` on another that was restored from its images; the tables in plain Python."""

    def __init__(self, views: str, seed: object):
        self.script = TABLES + views + POISON
        self.rng = random.Random(f"{seed}")
        self.tables: dict[str, Counter[Row]] = {name: Counter() for name in ("t", "u", "w", "link")}
        self.one = database(self.script)
        self.two: whence.Database | None = None

    def fork(self, spoil: Callable[[dict[str, Image]], None] | None = None) -> Coordinator:
        images = dump(self.one)
        if spoil is not None:
            spoil(images)
        self.two = restored(self.script, runtime(self.one).dictionary.since(0), images)
        self.compare()
        return runtime(self.two)

    def epoch(self, size: int) -> list[Update]:
        updates: list[Update] = []
        for _ in range(size):
            table = self.rng.choice(list(self.tables))
            rows = self.tables[table]
            there = list(rows.elements())
            gone = [r for n, r, sign in updates if n == table and sign < 0]
            row = self.rng.choice(there) if there else None
            if row is not None and row not in gone and self.rng.random() < 0.45:
                updates.append((table, row, -1))
            else:
                updates.append((table, row_of(table, self.rng), 1))
        return updates

    def run(self, updates: list[Update], fails: bool = False) -> None:
        for db in filter(None, (self.one, self.two)):
            write(db, [*updates, ("poison", ("no number",), 1)] if fails else updates)
        if not fails:
            self.tables = {name: Counter(self.one[name].rows) for name in self.tables}

    def compare(self) -> None:
        with database(TABLES) as again:
            write(again, [(name, row, 1) for name, rows in self.tables.items() for row in rows.elements()])
            functions(again)
            again.execute(self.script.removeprefix(TABLES))
            for db in filter(None, (self.one, self.two)):
                for name in [*self.tables, *runtime(again).reader.views()]:
                    assert Counter(db[name].rows) == Counter(again[name].rows), name
                    assert len(db[name]) == len(again[name])


def write(db: whence.Database, updates: list[Update]) -> None:
    """One epoch; one that meets the poison fails after the other views have followed it."""
    try:
        with db.transaction():
            for table, row, sign in updates:
                (db.insert if sign > 0 else db.delete)(table, [row])
    except whence.EvaluationError:
        assert any(table == "poison" for table, _, _ in updates)


def functions(db: whence.Database) -> None:
    db.create_function("twice", lambda n: None if n is None else 2 * n, args=["INT"], returns="INT")
    db.create_table_function(
        "upto", lambda n: [(i,) for i in range(min(n or 0, 9))], args=["BIGINT"], returns="(n INT)"
    )


def database(script: str) -> whence.Database:
    db = whence.open()
    functions(db)
    db.execute(script)
    return db


def runtime(db: whence.Database) -> Coordinator:
    found = inside.coordinator(db)
    assert isinstance(found, Coordinator)
    return found


def dump(db: whence.Database) -> dict[str, Image]:
    """All parts, read-only as those of a file would be."""
    images = {}
    for key, _, image in runtime(db).catalog.flow.parts():
        assert key not in images
        images[key] = {name: np.copy(array) for name, array in image().items()}
        for array in images[key].values():
            assert array.flags.c_contiguous
            assert array.dtype == np.int64
            array.flags.writeable = False
    return images


def restored(script: str, words: list[Any], images: dict[str, Image]) -> whence.Database:
    db = whence.open()
    functions(db)
    inner = runtime(db)
    assert inner.dictionary.extend(0, words)
    inner.catalog.restore(parse(script), images)  # type: ignore[arg-type]  # a script of CREATEs only
    return db


@pytest.mark.parametrize("shape", SHAPES)
def test_a_restored_database_goes_on_as_the_one_that_gave_its_images(shape: str) -> None:
    pair = Pair(SHAPES[shape], shape)
    pair.run([("link", row_of("link", pair.rng), 1) for _ in range(6)])
    for size in (30, 12, 9, 7):
        pair.run(pair.epoch(size))
    inner = pair.fork()
    assert inner.catalog.flow.primed == 0
    assert inner.catalog.flow.restored == sum(
        op.arranged is not None or bool(op.image()) for op in inner.catalog.flow.order
    )
    for _ in range(6):
        pair.run(pair.epoch(9), fails=True)
        pair.compare()
        pair.run(pair.epoch(pair.rng.choice((1, 4, 12))))
        pair.compare()
    pair.run([(name, row, -1) for name, rows in pair.tables.items() for row in rows.elements()])
    pair.compare()


def _without_everything(images: dict[str, Image]) -> None:
    for key in [k for k in images if not k.startswith("table/")]:
        del images[key]


def _without_states(images: dict[str, Image]) -> None:
    for key in [k for k in images if k.startswith("op/")]:
        del images[key]


def _without_arrangements(images: dict[str, Image]) -> None:
    for key in [k for k in images if k.startswith("arranged/")]:
        del images[key]


def _without_some(images: dict[str, Image]) -> None:
    for key in [k for k in sorted(images) if not k.startswith("table/")][::2]:
        del images[key]


def _stale(images: dict[str, Image]) -> None:
    """The last array of every image is of another length; whatever stands before it must not have been taken."""
    for key in [k for k in images if not k.startswith("table/")]:
        image = images[key]
        last = list(image)[-1]
        image[last] = image[last][:-1] if len(image[last]) else np.zeros((3, *image[last].shape[1:]), np.int64)


@pytest.mark.parametrize("spoil", [_without_everything, _without_states, _without_arrangements, _without_some, _stale])
@pytest.mark.parametrize(
    "shape", ["full join", "best", "distinct aggregates", "top", "functions", "shared", "over recursion", "minimum"]
)
def test_without_an_image_that_fits_an_operator_is_primed(
    shape: str, spoil: Callable[[dict[str, Image]], None]
) -> None:
    pair = Pair(SHAPES[shape], f"{shape} spoilt")
    pair.run([("link", row_of("link", pair.rng), 1) for _ in range(6)])
    pair.run(pair.epoch(30))
    inner = pair.fork(spoil)
    assert inner.catalog.flow.primed > 0
    for _ in range(2):
        pair.run(pair.epoch(8), fails=True)
        pair.run(pair.epoch(8))
        pair.compare()


def test_a_table_whose_image_is_of_another_table_is_refused() -> None:
    with database(TABLES) as db:
        images = dump(db)
    images["table/t"] = images["table/u"]
    with pytest.raises(StaleImage, match="rows is int64"):
        restored(TABLES, [], images)


def test_a_long_recursion_is_restored_with_its_dead_rows_and_compacts_as_before() -> None:
    pair = Pair(SHAPES["support"] + SHAPES["absence"].replace(" v", " cut"), "long")
    ring: list[Update] = [("link", (f"n{i}", f"n{(i + 1) % 70}", 1), 1) for i in range(70)]
    pair.run(ring)
    pair.run([("link", ("n3", "n4", 1), -1)])
    pair.fork()
    assert pair.two is not None
    assert slots(pair.one) == slots(pair.two)
    pair.run([("link", (f"n{i}", f"n{i + 1}", 1), -1) for i in range(5, 60)])
    pair.compare()
    assert slots(pair.one) == slots(pair.two)
    kept = [op.store._witnesses for op in runtime(pair.two).catalog.flow.order if isinstance(op, Fixpoint)]
    assert any(kept), "nothing was compacted"
    pair.fork()
    pair.run(ring)
    pair.compare()
    assert slots(pair.one) == slots(pair.two)


def slots(db: whence.Database) -> list[tuple[list[list[int]], list[int]]]:
    """Every slot of every fixpoint; and how many are in use, dead, indexed and kept although dead."""
    images = [op.image() for op in runtime(db).catalog.flow.order if isinstance(op, Fixpoint)]
    return [(image["cells"].tolist(), np.delete(image["counters"], 3).tolist()) for image in images]


# -- what changes, and when one is told --------------------------------------------------------------------------------


def test_before_is_told_of_every_operator_while_its_state_is_still_the_old_one() -> None:
    pair = Pair(SHAPES["shared"] + SHAPES["support"], "before")
    pair.run(pair.epoch(30))
    flow = runtime(pair.one).catalog.flow
    old, first = dump(pair.one), dict[str, Image]()
    told: list[Operator] = []

    def before(op: Operator) -> None:
        told.append(op)
        for key, owner, image in flow.parts():
            if owner is op:
                first[key] = {name: np.copy(array) for name, array in image().items()}

    for _, op, _ in flow.parts():
        op.changed = False
    flow.before = before
    pair.run([("t", (9, 9, "nine", 9.0), 1), ("link", ("y", "z", 1), 1)])
    flow.before = None
    assert first.keys() > {"table/t", "table/link"}
    for key, image in first.items():
        assert all(np.array_equal(array, old[key][name]) for name, array in image.items()), key
    changed = [key for key, image in dump(pair.one).items() if not _same(image, old[key])]
    assert set(changed) <= set(first)
    assert {op for _, op, _ in flow.parts() if op.changed} == {op for _, op, _ in flow.parts() if op in told}
    assert not runtime(pair.one).catalog.flow.tables["w"].changed


def _same(one: Image, two: Image) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_what_is_restored_counts_as_unchanged_until_an_epoch_reaches_it() -> None:
    pair = Pair(SHAPES["shared"] + SHAPES["support"], "unchanged")
    pair.run(pair.epoch(30))
    flow = pair.fork().catalog.flow
    assert not any(op.changed for _, op, _ in flow.parts())
    pair.run([("link", ("y", "z", 1), 1)])
    changed = {key for key, op, _ in flow.parts() if op.changed}
    assert "table/link" in changed
    assert "table/t" not in changed


# -- fingerprints ------------------------------------------------------------------------------------------------------

_PRINTER = """
from tests.state.test_images import SHAPES, TABLES, database, runtime
for shape, views in SHAPES.items():
    with database(TABLES + views) as db:
        print(shape, sorted(op.fingerprint for op in runtime(db).catalog.flow.order))
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    def printed(seed: str) -> str:
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", _PRINTER], env=env, check=True, capture_output=True, text=True
        ).stdout

    one = printed("1")
    assert one.count("\n") == len(SHAPES)
    assert one == printed("2")


def test_operators_of_one_dataflow_have_fingerprints_of_their_own() -> None:
    twins = """
        CREATE VIEW n1 AS SELECT a, 1 AS x FROM t;
        CREATE VIEW n2 AS SELECT a, 1.0 AS x FROM t;
        CREATE VIEW n3 AS SELECT a, '1' AS x FROM t;
        CREATE VIEW n4 AS SELECT a, TRUE AS x FROM t;
        CREATE VIEW n5 AS SELECT a, CAST('nan' AS DOUBLE) AS x FROM t;
        CREATE VIEW n6 AS SELECT a, CAST('nan' AS DOUBLE) AS x FROM t;
        CREATE VIEW f1 AS SELECT twice(a) AS a FROM t;
        CREATE VIEW f2 AS SELECT thrice(a) AS a FROM t;
        CREATE VIEW l1 AS SELECT k.n FROM t, LATERAL upto(t.b) AS k(n);
        CREATE VIEW l2 AS SELECT k.n FROM t, LATERAL downto(t.b) AS k(n);
        CREATE VIEW r1 AS SELECT src, dst FROM link
            UNION SELECT r1.src, link.dst FROM r1 JOIN link ON r1.dst = link.src;
        CREATE VIEW r2 AS SELECT src, dst FROM link
            UNION SELECT r2.src, link.dst FROM r2 JOIN link ON r2.dst = link.src;
        CREATE VIEW i1 AS SELECT a + INTERVAL '1 day' AS d FROM (SELECT DATE '2020-01-01' + a AS a FROM t);
        CREATE VIEW i2 AS SELECT a + INTERVAL '24 hours' AS d FROM (SELECT DATE '2020-01-01' + a AS a FROM t);
    """
    taken = ("full join", "left join", "right join", "anti", "semi", "mark", "join", "aggregate", "best", "top")
    views = "".join(SHAPES[shape].replace(" v ", f" v{i} ") for i, shape in enumerate(taken))
    views += SHAPES["support"] + SHAPES["minimum"] + SHAPES["mutual recursion"]
    with whence.open() as db:
        functions(db)
        db.create_function("thrice", lambda n: 3 * n, args=["INT"], returns="INT")
        db.create_table_function("downto", lambda n: [], args=["BIGINT"], returns="(n INT)")
        db.execute(TABLES + twins + views)
        flow = runtime(db).catalog.flow
        prints = [op.fingerprint for op in [*flow.order, *flow.tables.values()]]
        assert all(prints)
        assert len(set(prints)) == len(prints)
        assert flow.views["n5"] is flow.views["n6"]
        unlike = ["n1", "n2", "n3", "n4", "n5", "f1", "f2", "l1", "l2", "r1", "r2", "i1", "i2"]
        assert len({flow.views[name].fingerprint for name in unlike}) == len(unlike)


def test_a_fingerprint_follows_the_inputs_and_the_policy() -> None:
    def of(script: str, view: str) -> str:
        with database(script) as db:
            return runtime(db).catalog.flow.views[view].fingerprint

    select = "CREATE VIEW v AS SELECT a FROM t WHERE a > 1;"
    assert of(TABLES + select, "v") == of(TABLES + SHAPES["support"] + select, "v")
    assert of(TABLES + select, "v") != of(TABLES.replace("t (a INT", "t (a BIGINT") + select, "v")
    assert of(TABLES + select, "v") != of(TABLES.replace("b BIGINT", "b INT") + select, "v")
    assert of(TABLES + SHAPES["support"], "reachable") != of(TABLES + SHAPES["dred"], "reachable")


# -- the parts that states are made of ---------------------------------------------------------------------------------


def copied(image: Image) -> Image:
    return {name: np.copy(array) for name, array in image.items()}


@pytest.mark.parametrize("width", [0, 1, 3])
def test_a_relation_keeps_ids_accumulators_and_free_ids(width: int) -> None:
    rng = np.random.default_rng(width)
    one, two = Relation(width, 2), Relation(width, 2)
    for relation in (one, two):
        for cols in [(), (0,), (2, 1)]:
            if all(c < width for c in cols):
                relation.index(cols)
    rows = np.unique(rng.integers(0, 9, (300, width)), axis=0).copy("C") if width else np.empty((1, 0), np.int64)
    ids, _, _ = one.apply(Batch(rows, np.ones(len(rows), np.int64), True))
    one.acc[ids] = np.arange(2 * len(ids)).reshape(-1, 2)
    gone = rows[::3].copy() if width else rows[:0]
    one.apply(Batch(gone, np.full(len(gone), -1, np.int64), True))
    one.commit()
    two.restore(copied(one.image()))
    for batch in (gone, np.concatenate((gone, gone + 10)), rows):
        both = [r.apply(Batch(batch, np.ones(len(batch), np.int64), True)) for r in (one, two)]
        for mine, its in zip(*both, strict=True):
            assert np.array_equal(mine, its)
        assert _same(one.image(), two.image())
        for relation in (one, two):
            relation.undo()
        assert len(one) == len(two)
        assert np.array_equal(one.lookup(rows), two.lookup(rows))
        for cols in one.indexes:
            found = [
                {tuple(p) for p in np.column_stack(r.probe(cols, rows[:, cols].copy("C"))).tolist()} for r in (one, two)
            ]
            assert found[0] == found[1]
            assert one.indexes[cols].keys[0] == two.indexes[cols].keys[0]


def test_an_order_of_words_is_restored_under_other_labels() -> None:
    ranks = [Rank(1, TEXT, descending=True), Rank(0), Rank(2, TEXT)]
    mine, its = Dictionary(), Dictionary()
    one = Ordered(ranks, mine)
    rng = random.Random(5)
    for size in (5, 300, 7, 900):
        rows = [(rng.randint(0, 3), f"w{rng.randint(0, size)}", rng.choice("xyz")) for _ in range(size)]
        codes = np.array([[n, mine.intern(a), mine.intern(b)] for n, a, b in rows], np.int64)
        one.add(codes, np.ones(size, np.int64))
        one.add(codes[::2], np.full(len(codes[::2]), -1, np.int64))
    one.commit()
    assert its.extend(0, mine.since(0))
    two = Ordered(ranks, its)
    two.restore(copied(one.image()))
    more = np.array([[1, mine.intern("w55x"), 1], [0, mine.intern("v"), 2]], np.int64)
    its.extend(0, mine.since(0))
    for ordered in (one, two):
        ordered.add(more, np.ones(2, np.int64))
    for limit in (1, 50, -1):
        assert all(np.array_equal(a, b) for a, b in zip(one.head(limit), two.head(limit), strict=True))
    for ordered in (one, two):
        ordered.undo()
    assert all(np.array_equal(a, b) for a, b in zip(one.head(-1), two.head(-1), strict=True))
