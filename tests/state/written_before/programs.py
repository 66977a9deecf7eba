"""Database folders written by earlier versions, and the programs that write them.

Each archive has a database folder, `db`, and `expected.json`: the statements and the writes that made it, its contents,
and more writes to go on with. `test_written_before.py` opens every folder with today's code. An archive is never
written again: after a change of a file format, add those of the new version beside the old ones,

    python tests/state/written_before/programs.py VERSION

which writes an archive for each of `PROGRAMS` with the `whence` that Python finds. To write with another version's
code, run this file with the Python environment that has it. Only the public API is used.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whence

HERE = Path(__file__).parent
BEGIN = 1_700_000_000  # seconds since 1970 when a program begins

# What is done to a database: ["insert" | "delete" | "hold", table, rows], ["sql", text], ["advance", stream, value,
# column], ["flush", stream], ["wait", seconds]. The writes of one list are one transaction.
Op = list[Any]
Epoch = list[Op]


class Clock:
    """Seconds since 1970, moved by the program."""

    def __init__(self, now: float = BEGIN) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def with_functions(db: whence.Database) -> None:
    """Register the Python functions that the views call."""
    db.create_function("shout", lambda text: None if text is None else f"{text}!", args=["TEXT"], returns="TEXT")
    _ = db.create_table_function("parts", args=["BIGINT"], returns="(i BIGINT, p TEXT)")(
        lambda n: [(i, f"p{i}") for i in range(n % 3)]
    )
    _ = db.create_table_function("halves", args=["BIGINT"], returns="(h BIGINT)")(
        lambda n: [(n // 2,)] if n > 1 else []
    )


def perform(db: whence.Database, clock: Clock, epoch: Epoch) -> None:
    """Do what an epoch says."""
    match epoch[0]:
        case ["sql", text]:
            db.execute(text)
        case ["wait", seconds]:
            clock.now += seconds
            db.expire()
        case ["advance", stream, value, column]:
            db.advance(stream, value, on=column)
        case ["flush", stream]:
            db.flush(stream)
        case _:
            with db.transaction():
                for kind, table, rows in epoch:
                    rows = [tuple(row) for row in rows]
                    if kind == "insert":
                        db.insert(table, rows)
                    else:
                        db.delete(table, rows, early="hold" if kind == "hold" else "ignore")


def contents(db: whence.Database, queries: Iterable[str] = ()) -> dict[str, list[str]]:
    """Read every table, stream and view, and some queries: the rows as text, sorted."""
    found = {name: sorted(map(repr, db[name].rows)) for name in (*db.tables, *db.streams, *db.views)}
    return found | {query: _answer(db, query) for query in queries}


def _answer(db: whence.Database, query: str) -> list[str]:
    try:
        return sorted(map(repr, db.query(query).rows))
    except whence.WhenceError as error:  # what is behind a result may have expired by then
        return [type(error).__name__]


def formulas(db: whence.Database, views: Iterable[str]) -> dict[str, list[str]]:
    """Read the annotation of every row of some views."""
    found = {}
    for view in views:
        columns = db[view].schema.names
        rows = sorted(db[view].rows, key=repr)
        found[view] = [f"{row}: {db.annotation(view, dict(zip(columns, row, strict=True))).formula}" for row in rows]
    return found


# -- the programs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Statements, and a function that gives the writes of the epoch with a number."""

    script: str
    epoch: Callable[[random.Random, int], Epoch]
    options: dict[str, Any] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    annotated: tuple[str, ...] = ()  # views whose annotations are read, too
    logged: tuple[str, ...] = ()  # statements after the snapshot


TABLES = """
    CREATE TABLE link (src INT, dst INT, cost INT);
    CREATE TABLE node (id INT PRIMARY KEY, name TEXT, region TEXT);
    CREATE TABLE price (item TEXT, day DATE, amount DECIMAL(10, 2), weight DOUBLE, big DECIMAL(30, 4), ok BOOLEAN,
                        at TIMESTAMP, PRIMARY KEY (item, day));
    CREATE TABLE beacon (name TEXT PRIMARY KEY, seen TIMESTAMP) WITH (ttl = '1 hour', ttl_column = 'seen');
    CREATE TABLE ping (node INT, n INT) WITH (ttl = '60 s');
    CREATE TABLE closed (node INT);
"""
RELATIONAL = """
    CREATE VIEW joined AS SELECT l.src, n.name, l.cost FROM link AS l JOIN node AS n ON n.id = l.dst WHERE l.cost > 2;
    CREATE VIEW unequal AS SELECT a.src, b.dst FROM link AS a JOIN link AS b ON a.cost < b.cost AND a.dst = b.src;
    CREATE VIEW triangle AS SELECT a.src, b.src AS mid, c.src AS last FROM link AS a, link AS b, link AS c
      WHERE a.dst = b.src AND b.dst = c.src AND c.dst = a.src;
    CREATE VIEW crossed AS SELECT c.node, p.n FROM closed AS c CROSS JOIN ping AS p;
    CREATE VIEW left_of AS SELECT l.src, l.dst, n.name FROM link AS l LEFT JOIN node AS n ON n.id = l.dst;
    CREATE VIEW right_of AS SELECT l.cost, n.name FROM link AS l RIGHT JOIN node AS n ON n.id = l.dst AND l.cost > 4;
    CREATE VIEW full_of AS SELECT b.name, n.id FROM beacon AS b FULL JOIN node AS n ON n.name = b.name;
    CREATE VIEW semi AS SELECT id FROM node WHERE EXISTS (SELECT 1 FROM link WHERE link.src = node.id AND cost > 3);
    CREATE VIEW anti AS SELECT id FROM node WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.dst = node.id);
    CREATE VIEW marked AS SELECT id, id NOT IN (SELECT node FROM closed) AS apart FROM node;
    CREATE VIEW scalar AS SELECT src, cost, (SELECT COUNT(*) FROM node WHERE node.id = link.src) AS known FROM link
      WHERE cost >= (SELECT AVG(cost) FROM link);
    CREATE VIEW totals AS SELECT src, COUNT(*) AS n, COUNT(cost) AS c, COUNT(DISTINCT dst) AS d, SUM(cost) AS s,
      SUM(DISTINCT cost) AS sd, AVG(cost) AS a, MIN(cost) AS low, MAX(cost) AS high, COUNT_IF(cost > 3) AS many,
      BOOL_AND(cost > 1) AS every_one, BOOL_OR(cost > 8) AS some, MIN(dst) FILTER (WHERE cost > 2) AS first
      FROM link GROUP BY src HAVING COUNT(*) > 1;
    CREATE VIEW money AS SELECT item, SUM(amount) AS s, SUM(weight) AS w, SUM(big) AS b, AVG(weight) AS aw,
      MIN(amount) AS low, MAX(big) AS high, MAX(at) AS newest, MIN(item || 'x') AS text, BOOL_AND(ok) AS ok
      FROM price GROUP BY item;
    CREATE VIEW whole AS SELECT COUNT(*) AS n, SUM(weight) AS w, SUM(amount) AS s, MAX(day) AS last FROM price;
    CREATE VIEW chosen AS SELECT region, ANY_VALUE(region) AS one FROM node GROUP BY region;
    CREATE VIEW distinct_of AS SELECT DISTINCT src, cost FROM link;
    CREATE VIEW one_of AS SELECT src AS x FROM link UNION SELECT node FROM closed;
    CREATE VIEW all_of AS SELECT src AS x FROM link UNION ALL SELECT node FROM closed;
    CREATE VIEW both AS SELECT src AS x FROM link INTERSECT SELECT dst FROM link;
    CREATE VIEW both_all AS SELECT src AS x FROM link INTERSECT ALL SELECT dst FROM link;
    CREATE VIEW but AS SELECT src AS x FROM link EXCEPT SELECT dst FROM link;
    CREATE VIEW but_all AS SELECT src AS x FROM link EXCEPT ALL SELECT dst FROM link;
    CREATE VIEW top AS SELECT src, dst, cost FROM link ORDER BY cost DESC, dst LIMIT 3;
    CREATE VIEW top_text AS SELECT item, day FROM price ORDER BY item DESC NULLS FIRST, day LIMIT 2 OFFSET 1;
    CREATE VIEW lateral_of AS SELECT l.src, x.i, x.p FROM link AS l, parts(l.cost) AS x;
    CREATE VIEW constants AS SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, t);
    CREATE VIEW called AS SELECT shout(name) AS name, UPPER(region) AS region, TRIM(name) AS t FROM node;
    CREATE VIEW expressed AS SELECT item, CASE WHEN ok THEN amount * 2 ELSE -amount END AS x, day + 3 AS later,
      at - INTERVAL '1 month 2 hours' AS earlier, EXTRACT(year FROM day) AS y, TRY_CAST(item AS INT) AS n,
      CAST(weight AS DECIMAL(25, 1)) AS w, item LIKE 'a%' AND NOT ok IS NULL AS liked, big % 7 AS rest,
      COALESCE(weight, 0.5) / 3 AS third, GREATEST(day, DATE '2024-02-01') AS d, item IN ('ab', 'b') AS listed,
      at - TIMESTAMP '2024-01-01' AS since, SUBSTRING(item, 1, 1) || LENGTH(item) AS s, ROUND(weight, 1) AS r
      FROM price WHERE amount BETWEEN -50 AND 90 OR ok;
    CREATE VIEW stacked AS SELECT region, SUM(s) AS s FROM totals JOIN node ON node.id = totals.src GROUP BY region;
"""
RECURSIVE = """
    CREATE VIEW reach AS SELECT src, dst FROM link
      UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
    CREATE VIEW reach_dred WITH (policy = 'dred') AS SELECT src, dst FROM link
      UNION SELECT r.src, link.dst FROM reach_dred AS r JOIN link ON r.dst = link.src;
    CREATE VIEW pairs (a, b) AS SELECT src, dst FROM link
      UNION SELECT x.a, y.b FROM pairs AS x JOIN pairs AS y ON x.b = y.a;
    CREATE VIEW odd AS SELECT src, dst FROM link
      UNION SELECT e.src, link.dst FROM even AS e JOIN link ON e.dst = link.src;
    CREATE VIEW even AS SELECT o.src, link.dst FROM odd AS o JOIN link ON o.dst = link.src;
    CREATE VIEW open_path AS SELECT src, dst FROM link
      UNION SELECT p.src, link.dst FROM open_path AS p JOIN link ON p.dst = link.src
      WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
    CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW widest AS SELECT src, dst, MAX(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, w.dst, LEAST(link.cost, w.cost) FROM link JOIN widest AS w ON link.dst = w.src) AS q
      GROUP BY src, dst;
    CREATE VIEW path AS SELECT src, dst, cost, 1 AS hops FROM link
      UNION SELECT path.src, link.dst, path.cost + link.cost, path.hops + 1 FROM path JOIN link ON path.dst = link.src;
    CREATE VIEW fewest AS SELECT src, dst, MIN(hops) AS hops FROM path GROUP BY src, dst;
    CREATE VIEW route WITH (aggregate_selection = 'one') AS
      SELECT src, dst, src || '.' || dst AS vec, cost AS bw FROM link
      UNION SELECT link.src, route.dst, link.src || '.' || vec, LEAST(link.cost, route.bw)
            FROM link JOIN route ON link.dst = route.src;
    CREATE VIEW highest AS SELECT src, dst, MAX(bw) AS bw FROM route GROUP BY src, dst;
    CREATE VIEW highest_route AS SELECT route.src, route.dst, vec, route.bw FROM route
      JOIN highest ON route.src = highest.src AND route.dst = highest.dst AND route.bw = highest.bw;
    CREATE VIEW divided AS SELECT cost AS n FROM link UNION SELECT x.h FROM divided, halves(divided.n) AS x;
    CREATE VIEW upto AS
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT i FROM n;
"""
ANNOTATED = """
    CREATE VIEW kept_{name} WITH ({options}) AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_{name} AS k ON link.dst = k.src WHERE link.cost > 2;
"""
WAYS = {
    "auto": "maintain = 'absorption'",
    "witnesses": "maintain = 'absorption', provenance = 'witnesses', propagate = 'eager'",
    "bdd": "maintain = 'absorption', provenance = 'bdd'",
    "bdd_eager": "maintain = 'absorption', provenance = 'bdd', propagate = 'eager'",
    "often": "maintain = 'absorption', propagate = '2 epochs'",
    "relative": "maintain = 'relative'",
    "relative_eager": "maintain = 'relative', propagate = 'eager'",
}
KEPT = "".join(ANNOTATED.format(name=name, options=options) for name, options in WAYS.items())
KEPT += """
    CREATE VIEW kept_cheapest WITH (maintain = 'absorption') AS
      SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN kept_cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW kept_safe WITH (maintain = 'relative') AS
      SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst)
      UNION SELECT link.src, s.dst FROM link JOIN kept_safe AS s ON link.dst = s.src
            WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
    CREATE VIEW kept_union WITH (maintain = 'absorption') AS SELECT src AS x FROM link UNION SELECT node FROM closed;
    CREATE VIEW kept_distinct WITH (maintain = 'relative') AS SELECT DISTINCT src FROM link WHERE cost > 3;
    CREATE VIEW kept_but WITH (maintain = 'absorption') AS SELECT src FROM link EXCEPT SELECT node FROM closed;
"""
LOGGED = (
    "CREATE VIEW new AS SELECT region, COUNT(*) AS n FROM node GROUP BY region",
    "CREATE OR REPLACE VIEW semi AS SELECT id, name FROM node WHERE EXISTS (SELECT 1 FROM link WHERE src = node.id)",
    "DROP VIEW crossed",
)


def of_tables(rng: random.Random, number: int) -> Epoch:
    """Write to the tables: rows come and go, some deletions come early, time passes."""
    if number % 4 == 3:
        return [["wait", rng.choice((5, 40, 2000))]]
    there = random.Random(number)  # so that deletions find some of the rows

    def links(some: random.Random, count: int) -> list[list[Any]]:
        return [[some.randrange(5), some.randrange(5), some.randrange(1, 10)] for _ in range(count)]

    def prices(count: int) -> list[list[Any]]:
        found = {}
        for _ in range(count):
            item, day = rng.choice(("ab", "b", "17")), f"2024-0{rng.randint(1, 3)}-1{rng.randint(0, 3)}"
            amount = f"{rng.randint(-9000, 9900) / 100:.2f}"
            big = rng.choice((None, f"{rng.randint(-9, 9)}{'0' * 20}.25", f"{rng.randint(0, 99)}.5"))
            weight = rng.choice((None, 0.1, 1e16, -1e16, rng.random()))
            at = f"2024-01-0{rng.randint(1, 9)} 0{rng.randint(0, 9)}:30:00.5"
            found[item, day] = [item, day, amount, weight, big, rng.choice((True, False, None)), at]
        return list(found.values())

    seen = rng.choice((None, f"2023-11-14 2{rng.randint(1, 3)}:00:00"))
    epoch: Epoch = [
        ["insert", "link", links(there, 2)],
        ["insert", "node", [[rng.randrange(8), rng.choice(("ann", " bo", "cy")), rng.choice(("west", None))]]],
        ["insert", "price", prices(3)],
        ["insert", "beacon", [[rng.choice(("ann", "cy")), seen]]],
        ["insert", "ping", [[rng.randrange(4), rng.randrange(3)]]],
        ["insert", "closed", [[rng.randrange(9)]]],
        ["delete", "closed", [[rng.randrange(9)]]],
        ["hold", "closed", [[rng.randrange(9)]]],
    ]
    if number > 2:
        epoch.append(["delete", "link", links(random.Random(number - rng.randint(1, 3)), 2)])
    return epoch


STREAMS = """
    CREATE STREAM a (k INT, name TEXT, v INT, t INT) WITH (retain = '{a}');
    CREATE STREAM b (k INT, w DOUBLE, t INT) WITH (retain = 'all');
    CREATE STREAM c (at TIMESTAMP, v DECIMAL(9, 2));
    CREATE TABLE place (k INT, city TEXT);
    CREATE VIEW rows_by AS SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(name) AS m
      FROM slide(a, rows => 3, every => 2, by => k) GROUP BY k;
    CREATE VIEW timed_by AS SELECT k, name, MIN(v) AS low, window_end
      FROM slide(a, on => t, width => 20, every => 5, by => k) GROUP BY k, name, window_end;
    CREATE VIEW minutes AS SELECT window_start, AVG(v) AS m, COUNT(DISTINCT v) AS d
      FROM slide(c, on => at, width => '5 min', every => '1 min') GROUP BY window_start;
    CREATE VIEW pairs AS SELECT x.k, x.v, y.w FROM slide(a, rows => 4, by => k) AS x
      JOIN slide(b, rows => 3, by => k) AS y ON x.k = y.k;
    CREATE VIEW near AS SELECT x.k, x.v, y.w FROM slide(a, on => t, width => 9, by => k) AS x
      JOIN slide(b, on => t, width => 9, by => k) AS y ON x.k = y.k;
    CREATE VIEW counts AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY k;
    CREATE VIEW newest AS SELECT k, v FROM latest(a, rows => 2, by => k);
    CREATE VIEW names AS SELECT DISTINCT name FROM a;
    CREATE VIEW placed AS SELECT a.k, a.v, place.city FROM a JOIN place ON place.k = a.k;
    CREATE VIEW traced_by WITH (provenance = 'lineage') AS
      SELECT k, SUM(v) AS s FROM slide(a, rows => 3, every => 1, by => k) GROUP BY k;
"""
ORDERED = """
    CREATE VIEW every_row AS SELECT COUNT(*) AS n, AVG(v) AS m, LAST(name) AS l, FIRST(k) AS f, STDDEV(v) AS sd,
      MEDIAN(v) AS md, QUANTILE(v, 0.9) AS q, COUNT(DISTINCT name) AS d FROM slide(a, rows => 5, every => 3);
    CREATE VIEW landmark AS SELECT COUNT(*) AS n, SUM(v) AS s FROM slide(a, every => 7);
    CREATE VIEW late_ones AS SELECT window_start, SUM(w) AS s, MAX(w) AS high
      FROM slide(b, on => t, width => 10, every => 5, lateness => 3) GROUP BY window_start;
    CREATE VIEW from_first AS SELECT window_start, COUNT(*) AS n, MIN(w) AS low
      FROM slide(b, on => t, width => 8, every => 8, origin => 'first') GROUP BY window_start;
    CREATE VIEW ordered WITH (retain = '5 rows') AS SELECT k, v, t FROM bsort(a, on => t, slack => 4);
    CREATE VIEW within AS SELECT k, w, t FROM bsort(b, on => t, within => 2);
    CREATE VIEW merged AS SELECT k, v AS x FROM a WHERE v > 3 UNION ALL SELECT k, t FROM b;
    CREATE VIEW over AS SELECT k, COUNT(*) AS n FROM slide(merged, rows => 6, every => 4) GROUP BY k;
    CREATE VIEW crossed AS SELECT x.k, x.v, y.w FROM slide(a, rows => 4) AS x JOIN slide(b, rows => 3) AS y
      ON x.k = y.k;
    CREATE VIEW lately AS SELECT k, w FROM latest(b, on => t, width => 12);
    CREATE VIEW split AS SELECT a.k, x.i FROM a, parts(a.v) AS x;
    CREATE VIEW traced WITH (provenance = 'lineage') AS
      SELECT SUM(v) AS s, MAX(t) AS t FROM slide(a, rows => 6, every => 2);
    CREATE VIEW traced_ids WITH (provenance = 'lineage', encoding = 'ids') AS
      SELECT window_start, COUNT(*) AS n FROM slide(b, on => t, width => 10, every => 5) GROUP BY window_start;
    CREATE VIEW traced_intervals WITH (provenance = 'lineage', encoding = 'intervals', retain = '7 rows') AS
      SELECT MAX(v) AS high FROM slide(a, rows => 4, every => 2);
    CREATE VIEW traced_deltas WITH (provenance = 'lineage', encoding = 'deltas') AS
      SELECT MIN(v) AS low, MEDIAN(v) AS mid FROM slide(a, rows => 5, every => 1);
    CREATE VIEW traced_words WITH (provenance = 'lineage', encoding = 'dictionary') AS
      SELECT x.v, y.w FROM slide(a, rows => 2) AS x JOIN slide(b, rows => 2) AS y ON x.k = y.k;
    CREATE VIEW traced_over WITH (provenance = 'lineage', provenance_of = 'merged') AS
      SELECT SUM(n) AS n FROM slide(over, rows => 2, every => 1);
    CREATE VIEW covered WITH (provenance = 'covering') AS
      SELECT MAX(t) AS t, AVG(v) AS m FROM slide(a, rows => 4, every => 2);
    CREATE VIEW covered_sorted WITH (provenance = 'covering') AS
      SELECT SUM(v) AS s FROM slide((SELECT * FROM bsort(a, on => t, slack => 2)), rows => 3, every => 2);
    CREATE VIEW covered_join WITH (provenance = 'covering') AS
      SELECT x.v, y.w FROM slide(a, rows => 3) AS x JOIN slide(b, rows => 2) AS y ON x.k = y.k;
    CREATE VIEW behind AS SELECT t, m, a_tid, a_v FROM provenance(covered, a) WHERE m > 3;
    CREATE VIEW behind_traced AS SELECT s, a_tid FROM provenance(traced, a);
"""


def of_streams(rng: random.Random, number: int) -> Epoch:
    """Write to the streams; rows are late at times, and promises are made."""
    now = 5 * number
    if number % 5 == 4:
        return [["advance", "b", now, "t"]] if number % 2 else [["flush", "c"]]
    epoch: Epoch = []
    for _ in range(rng.randint(2, 6)):
        t = now + rng.randint(0, 4) - rng.choice((0, 0, 0, 6))
        k = rng.choice((None, 0, 1, 2))
        if rng.random() < 0.6:
            epoch.append(["insert", "a", [[k, rng.choice(("x", "y", None)), rng.randrange(12), t]]])
        else:
            epoch.append(["insert", "b", [[k, rng.randrange(40) / 4, t]]])
    minute = min(number, 59)
    epoch.append(
        ["insert", "c", [[f"2024-01-01 10:{minute:02}:0{rng.randint(0, 9)}", f"{rng.randrange(900) / 100:.2f}"]]]
    )
    epoch.append([rng.choice(("insert", "delete")), "place", [[rng.randrange(3), rng.choice(("Rome", "Oslo"))]]])
    return epoch


EXCHANGED = """
    CREATE VIEW spread_{way} WITH (partition = '{way}') AS SELECT src, dst FROM link
      UNION SELECT link.src, s.dst FROM link JOIN spread_{way} AS s ON link.dst = s.src;
"""
PARTED = "".join(EXCHANGED.format(way=way) for way in ("exchange", "broadcast", "one"))
PARTED += "".join(
    ANNOTATED.format(name=f"{name}_there", options=f"{WAYS[name]}, partition = 'exchange'")
    for name in ("auto", "witnesses", "bdd", "relative")
)
PARTED += """
    CREATE VIEW spread_pairs (a, b) WITH (partition = 'exchange') AS SELECT src, dst FROM link
      UNION SELECT x.a, y.b FROM spread_pairs AS x JOIN spread_pairs AS y ON x.b = y.a;
    CREATE VIEW spread_cheapest WITH (partition = 'exchange') AS
      SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN spread_cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW spread_safe WITH (partition = 'exchange', maintain = 'absorption') AS
      SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst)
      UNION SELECT link.src, s.dst FROM link JOIN spread_safe AS s ON link.dst = s.src
            WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
"""
PARTED_RELATIONAL = ";".join(
    statement
    for statement in (RELATIONAL + RECURSIVE).split(";")
    if not any(f" {name} " in statement for name in ("VIEW crossed", "VIEW pairs", "VIEW expressed", "reach_dred"))
)
LINEAGE = ("SELECT * FROM provenance(traced_by, a) WHERE tid > 32", "SELECT * FROM numbered(b)")
PROGRAMS = {
    "relations": Program(
        TABLES + RELATIONAL + RECURSIVE + KEPT,
        of_tables,
        {"retain": 100},
        queries=("SELECT * FROM owed(closed)",),
        annotated=("kept_witnesses", "kept_bdd_eager", "kept_union"),
        logged=LOGGED,
    ),
    "streams": Program(
        STREAMS.format(a="30 rows") + ORDERED,
        of_streams,
        queries=(
            *LINEAGE,
            *(f"SELECT * FROM provenance({v}, a) WHERE tid > 32" for v in ("traced_deltas",)),
            *(f"SELECT * FROM provenance({v}, a) WHERE tid > 16" for v in ("traced", "traced_intervals", "covered")),
            *(f"SELECT * FROM provenance({v}, b)" for v in ("traced_ids", "traced_words")),
            "SELECT * FROM provenance(traced_over, merged)",
            "SELECT * FROM late(late_ones)",
        ),
    ),
    "partitions": Program(
        TABLES + PARTED_RELATIONAL + PARTED,
        of_tables,
        {"partitions": 3},
        queries=("SELECT * FROM owed(closed)",),
        logged=(LOGGED[0],),
    ),
    "partitioned-streams": Program(
        STREAMS.format(a="64 MB"),
        of_streams,
        {"partitions": 3},
        queries=LINEAGE,
    ),
}


# -- writing -----------------------------------------------------------------------------------------------------------


def write(name: str, program: Program, version: str) -> None:
    """Write a folder: two snapshots, the second on top of the first, and epochs in the log after them."""
    rng, clock, done = random.Random(name), Clock(), list[Epoch]()
    with tempfile.TemporaryDirectory() as place:
        folder, root = Path(place) / name, Path(place) / "archive"
        with whence.open(folder, clock=clock, setup=with_functions, **program.options) as db:

            def do(epoch: Epoch) -> None:
                done.append(epoch)
                perform(db, clock, epoch)

            do([["sql", program.script]])
            for number in range(24):
                do(program.epoch(rng, number))
                if number in (1, 17):
                    db.snapshot()
            for statement in program.logged:
                do([["sql", statement]])
            for number in range(24, 28):
                do(program.epoch(rng, number))
            later = [program.epoch(rng, number) for number in range(28, 40)]
            db.sync()
            shutil.copytree(folder, root / "db")  # of a database that is not closed: the log goes on after the image
            expected = contents(db, program.queries)
            annotations = formulas(db, program.annotated)
        told = {
            "options": program.options,
            "done": done,
            "now": clock.now,
            "contents": expected,
            "formulas": annotations,
            "queries": program.queries,
            "later": later,
        }
        (root / "expected.json").write_text(json.dumps(told), encoding="utf-8")
        with tarfile.open(HERE / f"{version}-{name}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(root, ".")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, program in PROGRAMS.items():
        write(name, program, sys.argv[1])
        print(f"{sys.argv[1]}-{name}")
