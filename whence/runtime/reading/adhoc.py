"""Ad-hoc SELECTs over tables and views: DuckDB reads the committed epoch's rows as Arrow.

Only relations the query names are handed over, each kept as Arrow until its epoch has passed, or only the rows that the
query can use (`pinned_rows.py`); and those that functions of streams stand for (`calls.py`). DuckDB sees nothing else:
no files, no Python variables. What it says when it refuses a query becomes our SqlError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from whence.model.budget import within
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.errors import EvaluationError, LimitError, SqlError, WhenceError
from whence.plan.algebra.logical import Order, TopK
from whence.plan.algebra.program import STREAM_FUNCTIONS, Program, ScalarFunction
from whence.runtime.reading.calls import FUNCTIONS, OURS, Narrow, TableFunctionCall, as_relations
from whence.runtime.reading.duckdb_engine import DuckDbEngine, EnginePool, QueryEngine, QueryFailure
from whence.runtime.reading.pinned_rows import Pins, pinned_relations
from whence.runtime.reading.zoned_queries import COPIES, uses_zones, with_our_zones
from whence.sql.bind import bind_query_views
from whence.sql.ordering import check_limit
from whence.sql.position import did_you_mean, error
from whence.sql.reader import WhenceDialect, deep_stack
from whence.sql.tick_time import TICK_TIME, is_tick_time

_TABLE_FUNCTIONS = ("range", "generate_series", "unnest", "repeat", "repeat_row")  # others reach beyond the query
_REFUSED = frozenset((
    *("getenv", "current_setting", "getvariable", "write_log", "nextval", "currval", "setval", "sleep_ms", "pg_sleep"),
    *("current_query", "json_serialize_plan", "stats"),  # they show what a server has put around a caller's query
))  # fmt: skip
_COPYING = {"nullif": 2, "fmod": 2, "split_part": 2, "array_to_string": 2, "array_pop_back": 2, "format_pg_type": 20}
_NARROWING = 2.0  # seconds
_COPIES = 100_000  # what DuckDB writes out again and again may grow a query by


def relations_of(query: exp.Expr, known: Container[str] = ()) -> list[exp.Table]:
    """The tables and views a query names, without those it defines itself.

    A name of a CTE that is `known` too may mean either, by where it stands: DuckDB will tell.

    >>> import sqlglot
    >>> [t.name for t in relations_of(sqlglot.parse_one("WITH a AS (SELECT * FROM b) SELECT * FROM a, c"))]
    ['c', 'b']
    """
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    found = (t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier))
    return [t for t in found if t.name.lower() not in own or t.name.lower() in known]


def uses_table_function(query: exp.Expr, program: Program) -> bool:
    """Whether a query calls one of our table functions, makes windows of a stream, or reads its tick time."""
    if TICK_TIME not in program.scalars and any(map(is_tick_time, query.find_all(exp.Anonymous))):
        return True
    ours = {*program.table_functions, *(name for name in STREAM_FUNCTIONS if name not in FUNCTIONS)}
    calls = (t.this for t in query.find_all(exp.Table, exp.Lateral) if isinstance(t.this, exp.Func))
    return any(call.name.lower() in ours for call in calls)


def sort_order(rows: Codes, top: TopK, dictionary: Dictionary) -> Codes:
    """The positions of rows in the order of a top-k."""
    keys: list[Codes] = []
    wanted = [*top.order, *(Order(i) for i in range(rows.shape[1]))]
    for order in reversed(wanted):
        codes = dictionary.ranks(rows[:, order.column], top.schema.types[order.column])
        null = codes == NULL
        _, rank = np.unique(codes, return_inverse=True)
        rank = -rank if order.descending else rank
        keys.append(np.where(null, np.int64(-(2**62) if order.nulls_first else 2**62), rank))
    return np.lexsort(keys).astype(np.int64)


def _placed(query: exp.Expr, program: Program) -> SqlError | None:
    """Say where a name is unknown, or a user's function misused, in a query that DuckDB refused without a position.

    Anything else that our binder refuses may be right in a query that DuckDB answers.
    """
    try:
        bind_query_views(query, program)
    except SqlError as refusal:
        ours = refusal.message.partition(" takes ")[0] in program.scalars
        ours = ours or refusal.message.startswith(("unknown ", "column ", '"', "AT TIME ZONE "))
        return refusal if refusal.line is not None and ours else None
    except WhenceError:
        pass
    return None


ReadRelations = Callable[[Iterable[str], list[TableFunctionCall], Narrow, Mapping[str, Pins]], dict[str, pa.Table]]
"""Reads the relations of one epoch as Arrow, and those that calls stand for."""


class Adhoc:
    """Answers ad-hoc queries, some at a time."""

    memory: int | None = None  # bytes that a query may take

    def __init__(self, make: Callable[[], QueryEngine] = DuckDbEngine, most: int = 2, idle: int | None = None) -> None:
        """`make` makes an engine of the up to `most` that queries run on."""
        self._engines = EnginePool(make, most, idle)

    def run(self, query: exp.Expr, program: Program, read: ReadRelations) -> pa.Table:
        """The query's answer; names are checked before anything runs."""
        asked, calls = as_relations(query)
        names = self.check_query(asked, program, {call.relation for call in calls})
        with self._engines.engine() as engine:
            ours, called = _with_our_functions(asked, program)
            zoned = uses_zones(ours)
            ours = with_our_zones(ours) if zoned else ours
            tables = read(names, calls, partial(_narrow, engine), pinned_relations(asked, program))
            engine.failed.clear()
            try:
                return engine.answer(_text(ours), tables, called, zoned)
            except QueryFailure as found:
                failure = found.failure
            if isinstance(failure, WhenceError):
                raise failure
            if engine.failed:
                name, cause = engine.failed[0]
                if isinstance(cause, WhenceError):
                    raise cause from None
                raise EvaluationError(f"function {name} failed: {cause!r}") from cause
            if isinstance(failure, (duckdb.OutOfMemoryException, MemoryError)):
                raise _out_of_memory(failure)
            raise _placed(query, program) or self._ours(failure)

    def close(self) -> None:
        self._engines.close()

    @staticmethod
    def check_query(query: exp.Expr, program: Program, made: Container[str] = ()) -> set[str]:
        """Return the names that a query reads, lower-cased in it; SqlError if one is unknown, or it does more than
        read."""
        known = {**program.tables, **{n: v for n, v in program.views.items() if not v.hidden}}
        for node in query.find_all(exp.DML, exp.Into):
            what = "SELECT INTO" if isinstance(node, exp.Into) else f"{node.key.upper()} inside a query"
            raise error(f"{what} is not supported: a query only reads", node)
        names = set()
        for table in relations_of(query, known):
            name = table.name.lower()
            if name in made:
                continue
            if name not in known:
                raise error(f'there is no table or view "{name}"{did_you_mean(name, known)}', table)
            if table.args.get("db") is not None:
                raise error("names have no schema or catalog part", table)
            names.add(name)
        _check_calls(query, program)
        _check_growth(query)
        _lower(query)
        for fetch in query.find_all(exp.Fetch):  # DuckDB has none; sqlglot would write it as a LIMIT
            check_limit(fetch)
        return names

    @staticmethod
    def _ours(failure: Exception) -> SqlError | EvaluationError:
        text = str(failure).replace(OURS, "")
        if isinstance(failure, RecursionError) or "Max expression depth" in text:
            return SqlError("the query is nested too deeply")
        said = re.sub(r"^\w+(?: \w+)? Error: ", "", text.splitlines()[0]) if text else type(failure).__name__
        hint = next(
            (" " + line.strip() for line in text.splitlines()[1:] if line.startswith(("Did you", "Candidate"))), ""
        )
        if isinstance(failure, (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException)):
            return EvaluationError(said + hint)
        return SqlError(said + hint)


def _out_of_memory(failure: Exception) -> LimitError:
    used = re.search(r"/([\d.]+ \w+) used", str(failure))
    limit = f" than the {used[1]} that it may take" if used else " than there is"
    return LimitError(f"the query needs more memory{limit}: ask for fewer rows, or filter them first")


def _narrow(engine: QueryEngine, rows: pa.Table, name: str, condition: str) -> pa.Table:
    """Those of some rows, called by a name, for which a condition holds.

    Writers wait for it, so it must be quick, or it fails.
    """
    quoted = name.replace('"', '""')
    with within(timeout=_NARROWING):
        return engine.answer(f'SELECT * FROM "{quoted}" WHERE {condition}', {name: rows})


def _text(query: exp.Expr) -> str:
    """Return the query as text; SqlError if sqlglot would leave something out, as it does with FOR UPDATE."""
    with deep_stack():
        try:
            return query.sql(dialect=WhenceDialect, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as failure:
            raise SqlError(f"DuckDB has no such query: {failure}") from None


def _lower(query: exp.Expr) -> None:
    """Names in lower case, as our relations have them: DuckDB sees through the case of ASCII letters only."""
    for name in query.find_all(exp.Identifier):
        if not name.name.isascii():
            name.set("this", name.name.lower())


def _check_growth(query: exp.Expr) -> None:
    """SqlError if the query would fill the memory before it runs.

    DuckDB writes the subject of a CASE once for every WHEN, that of a BETWEEN twice, and an argument as often as a
    function's definition reads it; nested, these multiply. So would CTEs that must not be materialized.
    """
    grown, waiting = 0, [(query, 1)]
    while waiting:
        node, times = waiting.pop()
        grown += times - 1
        if grown > _COPIES:
            raise error("nested too deeply: CASE, BETWEEN or functions that use their arguments several times", node)
        for child in node.iter_expressions():
            waiting.append((child, times * _copies(node, child)))
    for cte in query.find_all(exp.CTE):
        cte.set("materialized", cte.args.get("materialized") or None)


def _copies(node: exp.Expr, child: exp.Expr) -> int:
    """How often DuckDB writes out what stands in a node."""
    if isinstance(node, exp.Case):
        return len(node.args["ifs"]) if child is node.this else 1
    if isinstance(node, exp.Between):
        return 2 if child is node.this else 1
    if isinstance(node, exp.AtTimeZone):
        return COPIES
    return _COPYING.get(node.name.lower(), 1) if isinstance(node, exp.Anonymous) else 1


def _check_calls(query: exp.Expr, program: Program) -> None:
    """SqlError if the query calls what reads files, settings or the environment, or leaves something behind."""
    for table in query.find_all(exp.Table, exp.Lateral):
        call = table.this
        if isinstance(call, exp.Func) and call.name.lower() not in _TABLE_FUNCTIONS:
            raise error(f'unknown table function "{call.name.lower()}"', table)
    for node in query.find_all(exp.Anonymous):
        if node.name.lower() in _REFUSED and node.name.lower() not in program.scalars:
            raise error(f'the function "{node.name.lower()}" is not allowed', node)


def _with_our_functions(query: exp.Expr, program: Program) -> tuple[exp.Expr, list[ScalarFunction]]:
    """The query with our functions under names DuckDB has none of, columns called as before, and those functions."""
    called = {call.name.lower() for call in query.find_all(exp.Anonymous)} & set(program.scalars)
    if not called:
        return query, []
    query = query.copy()
    for select in query.find_all(exp.Select):
        for item in select.expressions:
            if not isinstance(item, exp.Alias) and any(c.name.lower() in called for c in item.find_all(exp.Anonymous)):
                item.replace(exp.alias_(item.copy(), item.sql(dialect="duckdb"), quoted=True))
    for call in query.find_all(exp.Anonymous):
        if call.name.lower() in called:
            call.set("this", OURS + call.name.lower())
    return query, [program.scalars[name] for name in sorted(called)]
