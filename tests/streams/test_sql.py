"""Streams in SQL: what parses, what it is bound to, what network it becomes, and every error with its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

import whence
from whence.model.errors import CatalogError, SqlError
from whence.model.types import DOUBLE, INTEGER, TIMESTAMP, Column, Schema
from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import Agg, Aggregate, Join, Node, Project, Ref, Scan, Select, walk
from whence.plan.algebra.program import Program, TableFunction, retention_of
from whence.plan.recursion.strata import dependents
from whence.plan.rewrite import optimize
from whence.plan.streams.model import (
    AT,
    DEFAULT_RETENTION,
    BSort,
    Latest,
    Lookup,
    Merge,
    ProvenanceJoin,
    Retain,
    Retention,
    Slide,
    Span,
    Stream,
    StreamToRelation,
    Window,
    WindowJoin,
)
from whence.plan.streams.networks import is_stream, plan_networks, plan_query, streams_of
from whence.sql import statements as st
from whence.sql.bind import bind_predicate, bind_query, bind_table, bind_views
from whence.sql.parse import parse, parse_one

TABLES = """
CREATE STREAM reading (time INT, loc INT, temp DOUBLE);
CREATE STREAM report (at TIMESTAMP, day DATE, car TEXT, price DECIMAL(10, 2));
CREATE TABLE room (loc INT, name TEXT, lim DOUBLE);
"""
N = TypeVar("N", bound=Node)
OVERHEATING = Path(__file__).parents[2] / "examples" / "overheating.sql"


def bound(sql: str) -> Program:
    """The program of a script."""
    program = Program()
    found = parse(sql)
    for statement in found:
        if isinstance(statement, st.CreateTable):
            program = bind_table(statement, program)
    return bind_views([s for s in found if isinstance(s, st.CreateView)], program)


def view(query: str, options: str = "") -> Node:
    """The bound query of a view over the tables."""
    return bound(f"{TABLES} CREATE VIEW v {options} AS {query}").views["v"].query


def network(query: str, options: str = "") -> Node:
    return plan_networks(bound(f"{TABLES} CREATE VIEW v {options} AS {query}")).views["v"].query


def only(kind: type[N], node: Node) -> N:
    (found,) = (n for n in walk(node) if isinstance(n, kind))
    return found


# -- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", DEFAULT_RETENTION),
        (" WITH (retain = '1000 rows')", Retention(rows=1000, text="1000 rows")),
        (" WITH (retain = '10 min')", Retention(micros=600_000_000, text="10 min")),
        (" WITH (retain = '64 MB')", Retention(nbytes=64 << 20, text="64 MB")),
        (" WITH (retain = '1.5 kB')", Retention(nbytes=1536, text="1.5 kB")),
        (" WITH (retain = 'all')", Retention()),
    ],
)
def test_create_stream(text: str, kept: Retention) -> None:
    statement = parse_one(f"CREATE STREAM reading (time INT NOT NULL, temp DOUBLE){text}")
    assert isinstance(statement, st.CreateTable)
    schema = Schema((Column("time", INTEGER, nullable=False), Column("temp", DOUBLE)))
    assert (statement.table.name, statement.table.schema, statement.table.stream) == ("reading", schema, kept)
    assert statement.table.sql == f"CREATE STREAM reading (time INT NOT NULL, temp DOUBLE){text}"
    assert retention_of(statement.table) == kept


def test_statements_of_streams() -> None:
    create, drop, show, describe = parse(
        "CREATE STREAM IF NOT EXISTS s (a INT); DROP STREAM IF EXISTS s CASCADE; SHOW STREAMS; DESCRIBE s"
    )
    assert isinstance(create, st.CreateTable)
    assert create.if_not_exists
    assert isinstance(drop, st.Drop)
    assert (drop.kind, drop.name, drop.cascade, drop.if_exists) == (
        "stream",
        "s",
        True,
        True,
    )
    assert isinstance(show, st.Show)
    assert show.what == "streams"
    assert isinstance(describe, st.Describe)
    assert describe.name == "s"


def test_what_is_kept_of_a_view() -> None:
    program = bound(f"{TABLES} CREATE VIEW v WITH (retain = '5 rows') AS SELECT * FROM reading")
    assert retention_of(program.views["v"]) == Retention(rows=5, text="5 rows")
    found = plan_networks(program).views["v"].query
    assert isinstance(found, Retain)
    assert found.retention.rows == 5


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE STREAM s (a INT PRIMARY KEY)", "a stream has no PRIMARY KEY"),
        ("CREATE STREAM s (a INT) WITH (ttl = '1 s')", 'a stream has no option "ttl"'),
        ("CREATE STREAM s (a INT) WITH (retian = '1 row')", 'did you mean "retain"'),
        ("CREATE STREAM s (a INT) WITH (retain = '5 apples')", "retain is what of the stream is kept"),
        ("CREATE STREAM s (a INT) WITH (retain = '0 rows')", "above zero"),
        ("CREATE STREAM s (a INT) WITH (retain = '0 MB')", "more than nothing"),
        ("CREATE STREAM s (a INT) WITH (retain = '1 month')", "of a fixed length"),
        ("CREATE OR REPLACE STREAM s (a INT)", "drop the stream first"),
        ("CREATE TABLE t (a INT) WITH (retain = '1 row')", 'a table has no option "retain"'),
        ("CREATE VIEW v WITH (encoding = 'zip') AS SELECT 1", "there is no encoding 'zip'"),
        ("SHOW RIVERS", "expected TABLES, STREAMS, SOURCES, VIEWS, TEMPLATES, INDEXES, FUNCTIONS or DEFINITION"),
        ("DROP RIVER r", "expected TABLE, STREAM, SOURCE, VIEW, TEMPLATE or INDEX"),
    ],
)
def test_what_statements_may_not_say(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        parse(sql)
    assert failure.value.line == 1
    assert failure.value.column is not None


def test_names_are_unique_across_tables_streams_and_views() -> None:
    program = bound(f"{TABLES} CREATE VIEW v AS SELECT * FROM reading")
    for name, message in [("reading", 'stream "reading" exists already'), ("room", "is a table"), ("v", "is a view")]:
        with pytest.raises(CatalogError, match=message):
            bind_table(parse_one(f"CREATE STREAM {name} (a INT)"), program)  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="is a stream; a table needs another name"):
        bind_table(parse_one("CREATE TABLE IF NOT EXISTS reading (a INT)"), program)  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="is a stream; a view needs another name"):
        bind_views(parse("CREATE VIEW reading AS SELECT 1"), program)  # type: ignore[arg-type]


def test_a_stream_is_only_appended_to() -> None:
    program = bound(TABLES)
    for table in ("reading", program.tables["reading"]):
        with pytest.raises(SqlError, match='"reading" is a stream: rows are only ever appended'):
            bind_predicate(None, table, program)


def test_names_of_the_functions_are_taken() -> None:
    with pytest.raises(CatalogError, match="is a table function of Whence itself"):
        TableFunction("slide", lambda: [], (), Schema(()))


# -- windows as bound ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "span"),
    [
        ("reading, rows => 3, every => 1", Span(3, 1)),
        ("reading, every => 10", Span(None, 10)),
        ("reading, rows => 3, every => 3, by => loc", Span(3, 3, by=(1,))),
        ("reading, rows => 3, every => 1, by => (loc, time)", Span(3, 1, by=(1, 0))),
        ("reading, on => time, width => 60, every => 10", Span(60, 10, 0)),
        ("reading, on => time, every => 60", Span(None, 60, 0)),
        ("reading, on => time, width => 60, every => 10, lateness => 5", Span(60, 10, 0, lateness=5)),
        (
            "report, on => at, width => 60, every => 60, lateness => '30 s'",
            Span(6 * 10**7, 6 * 10**7, 0, lateness=3 * 10**7),
        ),
        ("report, on => day, width => 7, every => 7, lateness => 2", Span(7, 7, 1, lateness=2)),
        ("reading, on => time, width => 5, every => 5, origin => 'first'", Span(5, 5, 0, origin="first")),
        ("report, on => at, width => 5, every => 5, origin => 'First'", Span(5 * 10**6, 5 * 10**6, 0, origin="first")),
        ("reading, on => time, width => 5, every => 5, origin => -2", Span(5, 5, 0, origin=-2)),
        ("reading, on => temp, width => 0.5, every => 0.25, origin => 1", Span(0.5, 0.25, 2, origin=1.0)),
        ("report, on => at, width => INTERVAL '1 min', every => '10 s'", Span(60_000_000, 10_000_000, 0)),
        ("report, on => at, width => 60, every => 0.5", Span(60_000_000, 500_000, 0)),
        (
            "report, on => at, every => 1, origin => TIMESTAMP '1970-01-01 00:00:02'",
            Span(None, 10**6, 0, origin=2 * 10**6),
        ),
        ("report, on => day, width => 7, every => INTERVAL '1 day'", Span(7, 1, 1)),
        ("report, on => day, width => 7, every => 1, origin => '1970-01-03'", Span(7, 1, 1, origin=2)),
        ("report, on => price, width => 1, every => 0.5", Span(100, 50, 3)),
    ],
)
def test_spans(args: str, span: Span) -> None:
    found = only(Slide, view(f"SELECT COUNT(*) AS n FROM slide({args})"))
    assert found.span == span


def test_value_windows_have_ends_of_the_type_of_their_column() -> None:
    found = only(
        Slide,
        view(
            "SELECT window_start, window_end FROM slide(report, on => at, width => 60, every => 60)"
            " GROUP BY window_start, window_end"
        ),
    )
    assert found.schema.names[-2:] == ("window_start", "window_end")
    assert found.schema.types[-1] == TIMESTAMP


def test_first_arguments() -> None:
    assert isinstance(only(Slide, view("SELECT COUNT(*) FROM slide(reading, rows => 1, every => 1)")).inputs[0], Scan)
    query = view("SELECT COUNT(*) FROM slide((SELECT loc FROM reading WHERE temp > 1), rows => 1, every => 1)")
    assert isinstance(only(Select, only(Slide, query)), Select)
    query = view("SELECT COUNT(*) FROM slide(bsort(reading, on => time, slack => 2), rows => 1, every => 1)")
    assert only(BSort, query) == BSort(only(Scan, query).schema, only(Scan, query), 0, 2)
    query = view("WITH w AS (SELECT loc FROM reading) SELECT COUNT(*) FROM slide(w, rows => 1, every => 1)")
    assert isinstance(only(Slide, query).inputs[0], Project)


def test_columns_are_found_by_the_streams_name_and_by_an_alias() -> None:
    assert view("SELECT reading.loc, COUNT(*) FROM slide(reading, rows => 2, every => 1) GROUP BY reading.loc")
    assert view("SELECT w.loc, COUNT(*) FROM slide(reading, rows => 2, every => 1) AS w GROUP BY w.loc")
    assert view("SELECT place, COUNT(*) FROM slide(reading, rows => 2, every => 1) AS w(t, place) GROUP BY place")


def test_aggregates_of_windows_and_their_types() -> None:
    found = view(
        "SELECT FIRST(car) AS a, LAST(at) AS b, STDDEV(price) AS c, STDDEV_POP(price) AS d, QUANTILE(price, 0.9) AS e,"
        " MEDIAN(at) AS f FROM slide(report, rows => 5, every => 1)"
    )
    assert [str(t) for t in found.schema.types] == [
        "TEXT", "TIMESTAMP", "DOUBLE", "DOUBLE", "DECIMAL(10,2)", "TIMESTAMP",
    ]  # fmt: skip
    aggs = only(Aggregate, found).aggs
    assert [(a.function, a.parameter) for a in aggs] == [
        ("first", None), ("last", None), ("stddev", None), ("stddev_pop", None), ("quantile", 0.9), ("quantile", 0.5),
    ]  # fmt: skip


LATEST = [
    ("latest(reading, rows => 4, by => loc)", Span(4, by=(1,))),
    ("latest(reading, on => time, width => 30)", Span(30, on=0)),
]


@pytest.mark.parametrize(("call", "span"), LATEST)
def test_latest_is_a_relation(call: str, span: Span) -> None:
    found = network(f"SELECT loc, MAX(temp) AS t FROM {call} GROUP BY loc")
    latest = only(Latest, found)
    assert latest.span == span
    assert latest.owner == "v"
    assert AT not in latest.schema.names
    assert not any(isinstance(n, StreamToRelation) for n in walk(found))


@pytest.mark.parametrize(
    ("query", "message", "column"),
    [
        ("SELECT 1 FROM slide(reading, row => 3)", 'slide has no argument "row"; did you mean "rows"?', 37),
        ("SELECT 1 FROM slide(reading, colour => 3)", 'slide has no argument "colour"; it takes rows, every', 40),
        ("SELECT 1 FROM slide(reading, 3)", "takes its arguments after the first by name", 30),
        ("SELECT 1 FROM slide(reading, rows => 3, rows => 4)", "rows is given twice", 49),
        ("SELECT 1 FROM slide()", "takes the name of a stream or view, or a query", 15),
        ("SELECT 1 FROM slide(1 + 1, rows => 3)", "takes the name of a stream or view, or a query", 21),
        ("SELECT 1 FROM slide(raeding, rows => 3)", 'unknown table or view "raeding"; did you mean "reading"?', 21),
        ("SELECT 1 FROM slide(room, rows => 3)", 'slide needs a stream, and "room" is a table', 21),
        ("SELECT 1 FROM slide(reading)", "slide needs rows", 15),
        ("SELECT 1 FROM slide(reading, on => time)", "slide needs rows", 15),
        ("SELECT 1 FROM slide(reading, rows => 3, width => 3, on => time)", "rows or width, not both", 50),
        ("SELECT 1 FROM slide(reading, rows => 3, on => time)", "leave on out, or say width", 38),
        ("SELECT 1 FROM slide(reading, width => 3, every => 1)", "say which, on => column", 39),
        ("SELECT 1 FROM slide(reading, rows => 3, every => 1, origin => 1)", "say on => column", 63),
        ("SELECT 1 FROM slide(reading, rows => 0)", "rows must be more than zero", 38),
        ("SELECT 1 FROM slide(reading, rows => -3)", "rows must be more than zero", 39),
        ("SELECT 1 FROM slide(reading, rows => 1.5)", "rows is a number of rows, not DECIMAL", 38),
        ("SELECT 1 FROM slide(reading, rows => 'many')", "rows is a number of rows, not TEXT", 38),
        ("SELECT 1 FROM slide(reading, rows => NULL)", "rows must be a constant", None),
        ("SELECT 1 FROM slide(reading, rows => loc)", 'unknown column "loc"', 38),
        ("SELECT 1 FROM slide(reading, rows => 3, every => 0)", "every must be more than zero", 50),
        ("SELECT 1 FROM slide(reading, on => time, width => 0)", "width must be more than zero", 51),
        ("SELECT 1 FROM slide(reading, on => time, width => 0.5)", "width is finer than the column", 51),
        ("SELECT 1 FROM slide(reading, on => time, width => INTERVAL '1 s')", "is a number, not INTERVAL", 15),
        ("SELECT 1 FROM slide(reading, on => tiem, width => 1)", 'unknown column "tiem"; did you mean "time"?', 36),
        ("SELECT 1 FROM slide(reading, on => time + 1, width => 1)", "on names a column of the stream; compute it", 36),
        ("SELECT 1 FROM slide(report, on => car, width => 1)", 'a DATE or a TIMESTAMP, and "car" is TEXT', 35),
        ("SELECT 1 FROM slide(report, on => at, width => '1 month')", "months and years are not; use days", 48),
        ("SELECT 1 FROM slide(report, on => at, width => 'soon')", "width is a length of time such as", 48),
        ("SELECT 1 FROM slide(report, on => day, width => INTERVAL '1 hour')", "width of a DATE is in whole days", 15),
        ("SELECT 1 FROM slide(reading, rows => 3, by => place)", 'unknown column "place"', 47),
        ("SELECT 1 FROM slide(reading, rows => 3, by => (loc, x))", 'unknown column "x"', 53),
        ("SELECT 1 FROM slide((SELECT 1 AS window_start, * FROM reading), on => time, every => 1)",
         'the stream has a column "window_start"', 15),
        ("SELECT 1 FROM latest(reading)", "latest needs rows", 15),
        ("SELECT 1 FROM latest(reading, rows => 3, every => 1)", 'latest has no argument "every"', 51),
        ("SELECT 1 FROM bsort(reading, on => time)", "bsort needs slack", 15),
        ("SELECT 1 FROM bsort(reading, slack => 3)", "bsort needs on", 15),
        ("SELECT 1 FROM bsort(reading, on => time, slack => -1)", "slack must be zero or more", 52),
        ("SELECT 1 FROM bsort(reading, on => time, slak => 1)", 'did you mean "slack"?', 50),
        ("SELECT loc FROM slide(reading, rows => 3, every => 1)", "slide makes windows: aggregate them", 17),
        ("SELECT AVG(temp) FROM slide(reading, rows => 3)", "needs every", 23),
        ("SELECT AVG(temp) FROM slide(reading, rows => 3, every => 1) WHERE loc = 1", "filter before the window", 67),
        ("SELECT STDDEV(lim) FROM room", "stddev is for windows: FROM slide(stream, …)", 8),
        ("SELECT MEDIAN(lim) FROM room", "median is for windows", 8),
        ("SELECT QUANTILE(temp) FROM slide(reading, rows => 3, every => 1)", "takes a value and which quantile", 8),
        ("SELECT QUANTILE(temp, 2) FROM slide(reading, rows => 3, every => 1)", "must be a number from 0 to 1", 23),
        ("SELECT QUANTILE(car, 0.5) FROM slide(report, rows => 3, every => 1)", "dates and times, found TEXT", 8),
        ("SELECT STDDEV(car) FROM slide(report, rows => 3, every => 1)", "stddev is for numbers, found TEXT", 8),
        ("SELECT LAST(DISTINCT car) FROM slide(report, rows => 3, every => 1)", "last does not take DISTINCT", 8),
        ("SELECT a.loc FROM slide(reading, rows => 3) a JOIN room ON a.loc = room.loc",
         "a window is joined with a window of another stream", None),
        ("SELECT a.loc FROM slide(reading, rows => 3) a, room", "a window is joined with a window", None),
        ("SELECT a.loc FROM slide(reading, rows => 3) a LEFT JOIN slide(reading, rows => 3) b ON a.loc = b.loc",
         "windows have inner joins only", None),
        ("SELECT a.loc FROM slide(reading, rows => 3, every => 1) a JOIN slide(reading, rows => 3) b ON a.loc = b.loc",
         "leave every out", None),
        ("SELECT a.loc FROM slide(reading, rows => 3) a JOIN slide(reading, on => time, width => 3) b ON a.loc = b.loc",
         "both windows are so many rows", None),
        ("SELECT 1 AS x FROM slide(reading, on => time, width => 3) a, slide(report, on => at, width => 3) b",
         "columns of different types, INTEGER and TIMESTAMP", None),
        ("SELECT * FROM late(reading)", "late(…) is for queries that are asked once", 15),
        ("SELECT * FROM numbered(reading)", "numbered(…) is for queries that are asked once", 15),
        ("SELECT * FROM sldie(reading, rows => 3)", 'unknown table function "sldie"; did you mean "slide"?', 15),
    ],
)  # fmt: skip
def test_errors_say_where(query: str, message: str, column: int | None) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        view(query)
    prefix = len("CREATE VIEW v  AS ") + 1
    if column is not None:
        assert (failure.value.line, failure.value.column) == (5, column + prefix), str(failure.value)


# -- networks --------------------------------------------------------------------------------------------------------


def test_a_program_without_streams_is_left_alone() -> None:
    program = bound("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
    assert plan_networks(program) is program
    assert streams_of(program) == set()


def test_views_that_read_no_stream_stay_the_same_objects() -> None:
    program = bound(f"{TABLES} CREATE VIEW v AS SELECT name FROM room; CREATE VIEW w AS SELECT * FROM reading")
    found = plan_networks(program)
    assert found.views["v"] is program.views["v"]
    assert isinstance(found.views["w"].query, Retain)
    assert streams_of(program) == streams_of(found) == {"reading", "report", "w"}
    assert is_stream("w", program)
    assert not is_stream("v", program)


def test_selection_and_projection_keep_the_arrival_last() -> None:
    found = network("SELECT temp * 2 AS t, loc FROM reading WHERE temp > 3")
    assert isinstance(found, Retain)
    assert found.owner == "v"
    assert found.schema.names == ("t", "loc", AT) == found.input.schema.names
    assert isinstance(found.input, Project)
    assert found.input.exprs[-1] == Col(found.schema.types[-1], 3)
    assert only(Stream, found).schema.names == ("time", "loc", "temp", AT)


def test_union_all_merges_streams_and_union_reads_relations() -> None:
    assert isinstance(only(Merge, network("SELECT loc FROM reading UNION ALL SELECT time FROM reading")), Merge)
    for query in (
        "SELECT loc FROM reading UNION SELECT time FROM reading",
        "SELECT loc FROM reading UNION ALL SELECT loc FROM room",
        "SELECT DISTINCT loc FROM reading",
        "SELECT loc, COUNT(*) AS n FROM reading GROUP BY loc",
        "SELECT loc FROM reading ORDER BY temp LIMIT 3",
        "SELECT loc FROM room EXCEPT SELECT loc FROM reading",
    ):
        found = network(query)
        assert AT not in found.schema.names, query
        assert any(isinstance(n, StreamToRelation) for n in walk(found)), query


def test_window_of_plain_columns() -> None:
    found = network(
        "SELECT loc, AVG(temp) AS t, MIN(time) AS time, COUNT(*) AS n"
        " FROM slide(reading, rows => 3, every => 1, by => loc) GROUP BY loc"
    )
    window = only(Window, found)
    assert isinstance(window.input, Stream)
    assert (window.keys, window.owner, window.span) == ((1,), "v", Span(3, 1, by=(1,)))
    assert window.aggs == (Agg("avg", 2), Agg("min", 0), Agg("count", None))
    assert found.schema.names == ("loc", "t", "time", "n", AT)


def test_what_is_computed_goes_below_the_window_and_the_ends_above() -> None:
    found = network(
        "SELECT loc % 2 AS even, SUM(temp * 2) AS s, window_start + 1 AS w, MAX(window_end) AS e, COUNT(1) AS n"
        " FROM slide(reading, on => time, width => 4, every => 2) GROUP BY loc % 2, window_start + 1"
    )
    window = only(Window, found)
    assert isinstance(window.input, Project)
    assert window.input.schema.names == ("time", "loc", "temp", "x0", "x1", AT)
    assert window.keys == (3,)
    assert set(window.aggs) == {Agg("window_start", None), Agg("window_end", None), Agg("sum", 4), Agg("count", None)}
    assert found.schema.names == ("even", "s", "w", "e", "n", AT)
    assert window.schema.names[-1] == AT
    assert len(window.schema) == 6


def test_having_is_a_selection_of_results() -> None:
    found = optimize(
        network("SELECT loc, COUNT(*) AS n FROM slide(reading, rows => 3, every => 1) GROUP BY loc HAVING loc = 3")
    )
    select = only(Select, found)
    assert isinstance(select.input, Window)


def test_lookup_of_a_relation_on_either_side() -> None:
    found = network("SELECT r.time, name FROM reading r JOIN room ON r.loc = room.loc AND r.temp > lim")
    lookup = only(Lookup, found)
    assert (lookup.kind, lookup.keys) == ("inner", ((1, 0),))
    assert lookup.schema.names == ("time", "loc", "temp", "loc", "name", "lim", AT)
    swapped = network("SELECT r.time, name FROM room RIGHT JOIN reading r ON r.loc = room.loc AND r.temp > lim")
    other = only(Lookup, swapped)
    assert other.kind == "left"
    assert other.keys == ((1, 0),)
    assert other.residual == lookup.residual
    assert swapped.schema.names == ("time", "name", AT)


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT time FROM reading r WHERE EXISTS (SELECT 1 FROM room WHERE room.loc = r.loc)", {"semi"}),
        ("SELECT time FROM reading r WHERE NOT EXISTS (SELECT 1 FROM room WHERE room.loc = r.loc)", {"anti"}),
        ("SELECT time, EXISTS (SELECT 1 FROM room WHERE room.loc = r.loc) AS e FROM reading r", {"mark"}),
        ("SELECT time FROM reading r LEFT JOIN room ON r.loc = room.loc", {"left"}),
        ("SELECT time FROM reading WHERE temp > (SELECT MAX(lim) FROM room)", {"inner"}),
    ],
)
def test_kinds_of_lookup(query: str, kinds: set[str]) -> None:
    found = network(query)
    assert isinstance(found, Retain)
    assert {n.kind for n in walk(optimize(found)) if isinstance(n, Lookup)} == kinds


def test_joins_that_keep_a_relation_whole_are_relations() -> None:
    for query in (
        "SELECT name, temp FROM room LEFT JOIN reading r ON r.loc = room.loc",
        "SELECT name, temp FROM reading r FULL JOIN room ON r.loc = room.loc",
        "SELECT name FROM room WHERE loc IN (SELECT loc FROM reading)",
    ):
        found = network(query)
        assert not isinstance(found, Retain), query
        assert any(isinstance(n, StreamToRelation) for n in walk(found)), query


def test_conditions_pass_lookups_and_not_windows() -> None:
    found = optimize(
        network("SELECT r.time FROM reading r, room WHERE r.loc + 1 = room.loc AND temp > 3 AND name = 'x'")
    )
    lookup = only(Lookup, found)
    assert lookup.keys == ((3, 0),)
    assert lookup.residual is None
    assert isinstance(lookup.relation, Select)
    assert lookup.input.schema.names[-1] == AT
    found = optimize(
        network(
            "SELECT a.time FROM slide(reading, rows => 3) a, slide(reading, rows => 4) b"
            " WHERE a.loc = b.loc AND a.temp > 3"
        )
    )
    join = only(WindowJoin, found)
    assert join.keys == ((1, 1),)
    assert join.residual is not None
    assert isinstance(join.left, Stream)
    assert isinstance(join.right, Stream)
    found = optimize(network("SELECT * FROM bsort(reading, on => time, slack => 3) WHERE temp > 3"))
    assert isinstance(only(Select, found).inputs[0], BSort)


def test_table_functions_over_streams() -> None:
    program = bound(TABLES)
    program.table_functions["twice"] = TableFunction(
        "twice", lambda a: [(a,)], (INTEGER,), Schema((Column("b", INTEGER),))
    )
    made = bind_views(parse("CREATE VIEW v AS SELECT loc, b FROM reading, twice(loc)"), program)  # type: ignore[arg-type]
    found = plan_networks(made).views["v"].query
    assert isinstance(found, Retain)
    assert optimize(found).schema.names == ("loc", "b", AT)


def test_a_recursion_reads_streams_as_relations() -> None:
    program = bound(
        f"{TABLES} CREATE STREAM link (a INT, b INT);"
        "CREATE VIEW path AS SELECT a, b FROM link UNION SELECT l.a, p.b FROM link l JOIN path p ON l.b = p.a;"
        "CREATE VIEW hop AS SELECT l.a, p.b FROM link l JOIN path p ON l.b = p.a"
    )
    found = plan_networks(program)
    path = found.views["path"].query
    assert AT not in path.schema.names
    assert not any(isinstance(n, Lookup) for n in walk(path))
    assert all(isinstance(n.input, Stream) for n in walk(path) if isinstance(n, StreamToRelation))
    assert isinstance(only(Lookup, found.views["hop"].query), Lookup)


def test_a_recursion_may_begin_with_windows_but_not_go_through_them() -> None:
    base = "SELECT loc, MAX(time) AS t FROM slide(reading, rows => 2, every => 2) GROUP BY loc"
    found = network(f"{base} UNION SELECT v.loc + 1, v.t FROM v WHERE v.loc < 9")
    assert isinstance(only(Window, only(StreamToRelation, found)), Window)
    with pytest.raises(SqlError, match="a window needs a stream"):
        network(f"{base} UNION SELECT loc, MAX(t) FROM slide(v, rows => 2, every => 2) GROUP BY loc")
    with pytest.raises(SqlError, match='the recursion of "v" goes through a stream'):
        network(
            f"{base} UNION SELECT loc, MAX(time) FROM slide((SELECT r.loc, r.time FROM reading r"
            " JOIN v ON r.loc = v.loc), rows => 2, every => 2) GROUP BY loc"
        )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT a.loc FROM reading a JOIN reading b ON a.loc = b.loc", "two streams are joined without windows"),
        ("SELECT loc FROM reading WHERE loc IN (SELECT loc FROM reading)", "a subquery reads a stream for each row"),
        ("SELECT COUNT(*) FROM slide((SELECT loc FROM room), rows => 2, every => 1)",
         'a window needs a stream, and "room" is a table'),
        ("SELECT COUNT(*) FROM slide((SELECT DISTINCT loc FROM reading), rows => 2, every => 1)",
         "is a relation: rows of a relation come in no order"),
        ("SELECT * FROM bsort((SELECT loc FROM room), on => loc, slack => 1)",
         'bsort needs a stream, and "room" is a table'),
        ("SELECT * FROM latest((SELECT loc FROM room), rows => 1)", "a window needs a stream"),
        ("SELECT SUM(window_start) AS s FROM slide(reading, on => time, width => 2, every => 2)", "use MIN or MAX"),
        ("SELECT MAX(time - window_start) AS s FROM slide(reading, on => time, width => 2, every => 2)",
         "inside a group; aggregate first"),
    ],
)  # fmt: skip
def test_what_no_network_can_be_made_of(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        network(query)
    assert '"v"' in str(failure.value)


def test_retain_is_for_streams() -> None:
    with pytest.raises(SqlError, match="retain is what is kept of a stream"):
        network("SELECT DISTINCT loc FROM reading", "WITH (retain = '5 rows')")
    with pytest.raises(SqlError, match="retain is what is kept of a stream"):
        plan_networks(bound("CREATE TABLE t (a INT); CREATE VIEW v WITH (retain = '5 rows') AS SELECT a FROM t"))


def test_queries_that_are_asked_once_keep_all_their_rows_in_order() -> None:
    planned = plan_networks(bound(f"{TABLES} CREATE VIEW v AS SELECT * FROM reading"))
    program = bound(f"{TABLES} CREATE VIEW v AS SELECT * FROM reading")
    statement = parse_one("SELECT loc, COUNT(*) AS n FROM slide(v, rows => 2, every => 1) GROUP BY loc")
    assert isinstance(statement, st.Query)
    found = plan_query(bind_query(statement.query, program), {}, planned, "query")["query"]
    assert isinstance(found.query, Retain)
    assert found.query.retention == Retention()
    assert found.schema.names == ("loc", "n", AT)
    assert only(Ref, found.query).schema.names[-1] == AT


# -- provenance ------------------------------------------------------------------------------------------------------

TRACED = f"""{TABLES} CREATE STREAM other (x INT);
CREATE VIEW hot WITH (provenance = 'lineage') AS SELECT loc, temp FROM reading WHERE temp > 90;
CREATE VIEW both WITH (provenance = 'lineage', provenance_of = 'hot, other') AS
  SELECT loc FROM hot UNION ALL SELECT x FROM other;
CREATE VIEW lazy WITH (provenance = 'covering') AS SELECT loc FROM reading;
CREATE VIEW plain AS SELECT loc FROM reading;
"""


@pytest.mark.parametrize("together", [True, False])
def test_provenance_is_a_relation(together: bool) -> None:
    create = "CREATE VIEW v AS SELECT * FROM provenance(hot)"
    program = bound(TRACED + create) if together else bind_views(parse(create), bound(TRACED))  # type: ignore[arg-type]
    found = plan_networks(program).views["v"].query
    traced = only(ProvenanceJoin, found)
    assert (traced.view, traced.source) == ("hot", "reading")
    assert traced.schema.names == (
        "tid", "loc", "temp", "reading_tid", "reading_time", "reading_loc", "reading_temp", AT,
    )  # fmt: skip
    assert isinstance(found, Retain)
    assert isinstance(traced.input, Ref)
    assert "v" in dependents(program, "reading")
    assert "v" in dependents(program, "hot")


def test_provenance_from_a_view_is_a_use_of_that_view() -> None:
    program = bound(TRACED + "CREATE VIEW v AS SELECT tid, hot_tid, hot_temp FROM provenance(both, hot)")
    assert "v" in dependents(program, "hot")
    assert "v" not in dependents(program, "lazy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("provenance(plain)", "\"plain\" keeps no provenance; create it WITH (provenance = 'lineage')"),
        ("provenance(reading)", '"reading" is not made of other streams'),
        ("provenance(hot, other)", '"hot" is not traced from "other"; it is traced from reading'),
        ("provenance(hot, raeding)", 'did you mean "reading"?'),
        ("provenance(both)", '"both" is traced from hot, other; say which one is meant'),
        ("provenance()", "provenance takes the name of a view"),
        ("provenance(hot, reading, other)", "provenance takes the name of a view"),
        ("provenance((SELECT 1))", "provenance takes the name of a view"),
        ("provenance(warm)", 'unknown table or view "warm"'),
    ],
)
def test_what_provenance_does_not_take(call: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        bind_views(parse(f"CREATE VIEW v AS SELECT * FROM {call}"), bound(TRACED))  # type: ignore[arg-type]
    assert failure.value.line == 1


# -- the network of paper 001 ----------------------------------------------------------------------------------------


def shape(node: Node) -> str:
    """A network on one line."""
    match node:
        case Stream():
            return node.stream
        case Ref():
            return node.view
    inner = ", ".join(shape(child) for child in node.inputs)
    return f"{type(node).__name__.lower()}({inner})"


def test_the_overheating_network() -> None:
    program = plan_networks(bound(OVERHEATING.read_text()))
    assert {name: shape(optimize(view.query)) for name, view in program.views.items()} == {
        "clean1": "retain(select(sensor1))",
        "clean2": "retain(select(sensor2))",
        "mean1": "retain(window(clean1))",
        "mean2": "retain(window(clean2))",
        "merged": "retain(merge(mean1, mean2))",
        "sorted": "retain(bsort(merged))",
        "hot": "retain(select(sorted))",
        "places": "retain(window(hot))",
        "alarm": "retain(select(places))",
        "revision": "retain(project(select(provenancejoin(places))))",
    }


def test_the_overheating_network_in_one_query() -> None:
    sensor = "(SELECT MIN(time) AS time, AVG(temp) AS temp FROM slide((SELECT * FROM reading WHERE temp < 350),"
    sensor += " rows => 3, every => 1))"
    found = network(
        f"SELECT time, n FROM (SELECT window_start AS time, COUNT(DISTINCT temp) AS n FROM slide((SELECT * FROM bsort("
        f"(SELECT * FROM {sensor} UNION ALL SELECT * FROM {sensor}), on => time, slack => 3) WHERE temp > 90),"
        " on => time, width => 2, every => 1) GROUP BY window_start) WHERE n > 1"
    )
    one = "window(select(reading))"
    assert shape(optimize(found)) == f"retain(select(window(select(bsort(merge({one}, {one}))))))"


def test_optimizing_leaves_what_it_cannot_improve() -> None:
    found = network("SELECT loc FROM reading WHERE 1 = 2")
    done = optimize(found)
    assert shape(done) == "retain(project(select(reading)))"
    assert done.schema == found.schema
    assert replace(done, schema=done.schema) == optimize(done)
    assert not any(isinstance(n, Join) for n in walk(done))


# -- as it runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def db() -> whence.Database:
    made = whence.open()
    made.execute(
        f"{TABLES} CREATE VIEW hot WITH (provenance = 'lineage', retain = '3 rows') AS"
        " SELECT time, loc, temp FROM reading WHERE temp > 90;"
        "CREATE VIEW sorted AS SELECT * FROM bsort(reading, on => time, slack => 0);"
        "CREATE VIEW calm AS SELECT DISTINCT loc FROM reading"
    )
    made.insert("reading", [(5, 1, 95.0), (4, 1, 96.0), (3, 2, 97.0), (6, 2, 98.0), (7, 2, 10.0)])
    return made


def test_explain_says_what_a_stream_is(db: whence.Database) -> None:
    lines = db.explain("hot").splitlines()
    assert lines[:3] == [
        "view hot (time INTEGER, loc INTEGER, temp DOUBLE)",
        "stream, keeps 3 rows",
        "provenance lineage of reading, as adaptive",
    ]
    assert {"logical plan", "physical plan", "  select (#2 > 90.0)", "  └─ scan reading"} <= set(lines)
    lines = db.explain("sorted").splitlines()
    assert lines[1:3] == ["stream, keeps 64 MB", "provenance none"]
    assert "1 row came too late" in lines
    assert "  b-sort by #0, slack 0" in lines
    assert not any(line.startswith("stream") for line in db.explain("calm").splitlines())


def test_show_streams(db: whence.Database) -> None:
    shown = db.execute("SHOW STREAMS").to_dicts()
    assert [(s["stream"], s["kind"], s["rows"], s["first_tid"], s["last_tid"], s["retain"]) for s in shown] == [
        ("reading", "stream", 5, 1, 5, "64 MB"),
        ("report", "stream", 0, None, None, "64 MB"),
        ("hot", "view", 3, 2, 4, "3 rows"),
        ("sorted", "view", 3, 1, 3, "64 MB"),
    ]
    assert [row[0] for row in db.execute("SHOW TABLES").rows] == ["room"]
    assert [row[0] for row in db.execute("SHOW VIEWS").rows] == ["hot", "sorted", "calm"]


def test_describe_a_stream(db: whence.Database) -> None:
    assert db.execute("DESCRIBE reading").rows == [
        ("time", "INTEGER", True, False, "64 MB"),
        ("loc", "INTEGER", True, False, "64 MB"),
        ("temp", "DOUBLE", True, False, "64 MB"),
    ]
    assert db.execute("DESCRIBE calm").rows == [("loc", "INTEGER", True, False, "=")]


def test_queries_asked_once_make_windows_and_drop_provenance(db: whence.Database) -> None:
    query = "SELECT COUNT(*) AS n, MAX(loc) AS m FROM slide({}, rows => 2, every => 2)"
    assert db.query(query.format("reading")).rows == [(2, 1), (2, 2)]
    both = "(SELECT loc FROM hot UNION ALL SELECT loc FROM reading)"
    assert db.query(query.format(both)).rows == [(2, 1), (2, 2), (2, 2), (2, 2)]
    ends = "SELECT window_start AS s, MAX(window_end) + 1 AS e, COUNT(*) AS n"
    windows = "slide(sorted, on => time, width => 4, every => 2)"
    assert db.query(f"{ends} FROM {windows} GROUP BY window_start").rows == [(2, 7, 2)]
    db.execute("CREATE TABLE behind (a BIGINT, b BIGINT)")
    db.execute("INSERT INTO behind SELECT tid, reading_tid FROM provenance(hot)")
    assert db["behind"].rows == [(2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("option", ["maintain = 'absorption'", "provenance = 'bdd'"])
def test_what_is_kept_of_relations_is_not_of_streams(db: whence.Database, option: str) -> None:
    with pytest.raises(SqlError, match='"v" is a stream, of which nothing is ever taken back'):
        db.execute(f"CREATE VIEW v WITH ({option}) AS SELECT loc FROM reading")
    assert "v" not in db


def test_a_change_that_fails_leaves_everything(db: whence.Database) -> None:
    for sql, message in [
        ("CREATE VIEW v AS SELECT a.loc FROM reading a JOIN hot b ON a.loc = b.loc", "without windows"),
        ("DROP STREAM reading", "depend on"),
        ("DROP TABLE reading", "is a stream, not a table"),
    ]:
        with pytest.raises(whence.WhenceError, match=message):
            db.execute(sql)
    db.insert("reading", [(8, 1, 99.0)])
    assert db["hot"].rows[-1] == (8, 1, 99.0)
    db.execute("DROP STREAM reading CASCADE")
    assert db.views == []
