"""Ad-hoc SELECTs over tables and views: DuckDB reads the committed epoch's rows as Arrow.

Only relations the query names are handed over, each kept as Arrow until its epoch has passed, or only the rows that the
query can use (`pinned_rows.py`); and those that functions of streams stand for (`calls.py`). DuckDB sees nothing else:
no files, no Python variables. What it says when it refuses a query becomes our SqlError.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import duckdb
import duckdb.func
import numpy as np
import pyarrow as pa
from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from whence.model.codes import NULL, Codes, Dictionary
from whence.model.errors import EvaluationError, SqlError, WhenceError
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Volatile
from whence.plan.algebra.logical import Order, TopK
from whence.plan.algebra.program import STREAM_FUNCTIONS, Program, ScalarFunction
from whence.runtime.reading.calls import FUNCTIONS, Narrow, TableFunctionCall, as_relations
from whence.runtime.reading.pinned_rows import Pins, pinned_relations
from whence.runtime.reading.zoned_queries import COPIES, register_shift, uses_zones, with_our_zones
from whence.sql.bind import bind_query_views
from whence.sql.ordering import check_limit
from whence.sql.position import did_you_mean, error
from whence.sql.reader import WhenceDialect, deep_stack

_OURS = "whence_"  # begins the names our functions have in DuckDB
_TABLE_FUNCTIONS = ("range", "generate_series", "unnest", "repeat", "repeat_row")  # others reach beyond the query
_REFUSED = ("getenv", "current_setting", "getvariable", "write_log", "nextval", "currval", "sleep_ms")
_COPYING = {"nullif": 2, "fmod": 2, "split_part": 2, "array_to_string": 2, "array_pop_back": 2, "format_pg_type": 20}
_COPIES = 100_000  # what DuckDB writes out again and again may grow a query by
_CONFIG: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "max_expression_depth": "500",  # what a thread with a stack of 1 MB can bear
}


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
    """Whether a query calls one of our table functions, or makes windows of a stream."""
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


_INHERITED: list[duckdb.DuckDBPyConnection] = []


def _close(connection: duckdb.DuckDBPyConnection, process: int) -> None:
    """Close a connection, or keep it for ever in a child that has it from its parent: DuckDB's threads were not forked
    with it, and to close it without them crashes."""
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)


class Adhoc:
    """The DuckDB connection of one database."""

    def __init__(
        self, read: Callable[[Iterable[str], list[TableFunctionCall], Narrow, Mapping[str, Pins]], dict[str, pa.Table]]
    ) -> None:
        self._read = read  # the relations of one epoch as Arrow, and those that calls stand for
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._process = os.getpid()  # whose connection it is
        self._functions: dict[str, ScalarFunction] = {}
        self._has_zones = False  # whether the connection has the function of AT TIME ZONE
        self._failed: list[tuple[str, Exception]] = []
        self._guard = threading.Lock()

    def run(self, query: exp.Expr, program: Program) -> pa.Table:
        """The query's answer; names are checked before anything runs."""
        asked, calls = as_relations(query)
        names = self._check(asked, program, {call.relation for call in calls})
        with self._guard:
            ours, called = _with_our_functions(asked, program)
            zoned = uses_zones(ours)
            ours = with_our_zones(ours) if zoned else ours
            tables = self._read(names, calls, self._narrow, pinned_relations(asked, program))
            self._failed.clear()
            try:
                return self._answer(_text(ours), self._connect(called, zoned), tables)
            except WhenceError:
                raise
            except Exception as failure:  # DuckDB's own, and what its bindings and Arrow raise beside
                if self._failed:
                    name, cause = self._failed[0]
                    if isinstance(cause, WhenceError):
                        raise cause from None
                    raise EvaluationError(f"function {name} failed: {cause!r}") from cause
                raise _placed(query, program) or self._ours(failure) from None

    def close(self) -> None:
        with self._guard:
            if self._connection is not None:
                _close(self._connection, self._process)
                self._connection = None

    @staticmethod
    def _answer(sql: str, connection: duckdb.DuckDBPyConnection, tables: dict[str, pa.Table]) -> pa.Table:
        try:
            for name, table in tables.items():
                connection.register(name, table)
            relation = connection.sql(sql)
            if relation is None:
                raise SqlError("this statement has no result")
            return _plain(relation)
        finally:
            for name in tables:
                connection.unregister(name)

    def _narrow(self, rows: pa.Table, name: str, condition: str) -> pa.Table:
        """Those of some rows, called by a name, for which a condition holds."""
        connection, quoted = self._connect(()), name.replace('"', '""')
        return self._answer(f'SELECT * FROM "{quoted}" WHERE {condition}', connection, {name: rows})

    @staticmethod
    def _check(query: exp.Expr, program: Program, made: Container[str] = ()) -> set[str]:
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

    def _connect(self, functions: Iterable[ScalarFunction], zoned: bool = False) -> duckdb.DuckDBPyConnection:
        if self._connection is not None and self._process != os.getpid():
            _close(self._connection, self._process)
            self._connection = None
        if self._connection is None:
            self._connection, self._process = _new_connection(), os.getpid()
            weakref.finalize(self, _close, self._connection, self._process)  # or DuckDB complains of functions at exit
            self._functions, self._has_zones = {}, False
        if zoned and not self._has_zones:
            register_shift(self._connection, self._failed)
            self._has_zones = True
        for function in functions:
            if self._functions.get(function.name) is not function:
                if function.name in self._functions:
                    self._connection.remove_function(_OURS + function.name)
                self._connection.create_function(
                    _OURS + function.name,
                    _watched(function, self._failed),
                    [_duck_type(t) for t in function.args],
                    _duck_type(function.returns),
                    null_handling=duckdb.func.SPECIAL,
                    side_effects=isinstance(function.function, Volatile),
                )
                self._functions[function.name] = function
        return self._connection

    @staticmethod
    def _ours(failure: Exception) -> SqlError | EvaluationError:
        text = str(failure).replace(_OURS, "")
        if isinstance(failure, RecursionError) or "Max expression depth" in text:
            return SqlError("the query is nested too deeply")
        said = re.sub(r"^\w+(?: \w+)? Error: ", "", text.splitlines()[0]) if text else type(failure).__name__
        hint = next(
            (" " + line.strip() for line in text.splitlines()[1:] if line.startswith(("Did you", "Candidate"))), ""
        )
        if isinstance(failure, (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException)):
            return EvaluationError(said + hint)
        return SqlError(said + hint)


def _new_connection() -> duckdb.DuckDBPyConnection:
    """Return a connection that reads nothing but what it is handed, and whose instants are in UTC."""
    connection = duckdb.connect(":memory:", config=_CONFIG)
    with contextlib.suppress(duckdb.Error):  # a build of DuckDB without ICU has no time zones at all
        connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


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
            call.set("this", _OURS + call.name.lower())
    return query, [program.scalars[name] for name in sorted(called)]


def _watched(function: ScalarFunction, failed: list[tuple[str, Exception]]) -> Callable[..., Any]:
    """The function, remembering what it raised: DuckDB only passes the text on.

    It must not hold the connection, which holds it: DuckDB's half of such a cycle is hidden from the collector.
    """

    def call(*args: Any) -> Any:
        try:
            return function.function(*args)
        except Exception as failure:
            failed.append((function.name, failure))
            raise

    named = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(function.args))]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # DuckDB counts the parameters
    return call


def _duck_type(type: Type) -> Any:
    names = {Kind.TEXT: "VARCHAR", Kind.DECIMAL: str(type)}
    return duckdb.sqltype(names.get(type.kind, type.kind.value))


def _plain(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """The answer as Arrow, with DuckDB's 128-bit sums as BIGINT where they fit, and instants as TIMESTAMPs in UTC."""
    types = [str(t) for t in relation.types]
    table = relation.to_arrow_table()
    for i, kind in enumerate(types):
        if kind == "TIMESTAMP WITH TIME ZONE":
            table = table.set_column(i, table.schema.field(i).name, table.column(i).cast(pa.timestamp("us")))
        if kind in ("HUGEINT", "UHUGEINT"):
            try:
                table = table.set_column(i, table.schema.field(i).name, table.column(i).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
