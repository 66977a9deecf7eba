"""The verbs that read a served database, to be awaited: as it is, or as it was after an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from whence.client import answers
from whence.client.connection import ServerLink
from whence.client.encoding import listed_rows, read_arrow, wire_params, wire_value
from whence.client.handles import AsyncHandle
from whence.io.results import Result
from whence.model.budget import Timeout, seconds_of
from whence.model.codes import format_value
from whence.model.errors import CatalogError, DataError, SqlError, WhenceError
from whence.model.progress import Progress
from whence.model.types import Column, Schema
from whence.subscribe.plain import type_of
from whence.subscribe.positions import Position

A = TypeVar("A", bound=answers.RemoteAnswer)
Row = tuple[Any, ...] | Mapping[str, Any] | None
_LIMIT = 2_000_000


def plain_name(name: object) -> str:
    """Return the name of a relation in lower case."""
    if not isinstance(name, str):
        raise CatalogError(f"a name is text, not {type(name).__name__}")
    return name.lower()


def plain_sql(sql: object) -> str:
    """Return SQL, which is text."""
    if not isinstance(sql, str):
        raise SqlError(f"SQL must be text, not {type(sql).__name__}")
    return sql


def as_result(value: Any) -> Result:
    """Return the rows, the count or the message that a server answered with."""
    if isinstance(value, Mapping):
        if isinstance(value.get("arrow"), bytes):
            return Result(read_arrow(value["arrow"]))
        message, count = value.get("message", ""), value.get("count")
        return Result(message=message, count=count, warnings=value.get("warnings", ()))
    raise WhenceError("the server sent an answer that this client does not understand")


def _row_of(row: Row, columns: Mapping[str, Any]) -> Any:
    """Return the row that is meant as a message has it."""
    if row is not None and columns:
        raise DataError("give the row as `row=…` or by its columns, not both")
    if row is None:
        return {name: wire_value(value) for name, value in columns.items()} or None
    if isinstance(row, Mapping):
        return {str(name): wire_value(value) for name, value in row.items()}
    if not isinstance(row, (tuple, list)):
        raise DataError(f"a row is a tuple or a mapping of columns to values, not {format_value(row)}")
    return [wire_value(value) for value in row]


def _seconds(timeout: Timeout) -> float | None:
    return None if timeout is None else seconds_of(timeout)


class AsyncReader:
    """What can be asked of a served database, to be awaited."""

    def __init__(self, link: ServerLink, epoch: int | None = None) -> None:
        self._link, self._epoch = link, epoch

    async def _ask(self, verb: str, progress: Progress | None = None, **args: Any) -> Any:
        """Call a verb that changes nothing, as of the epoch that this is about."""
        if self._epoch is not None:
            args["epoch"] = self._epoch
        given = {name: value for name, value in args.items() if value is not None}
        return await self._link.call(verb, given, "read", progress)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def query(
        self, sql: str, params: Any = None, *, at_least: Position | str | None = None, timeout: Timeout = None
    ) -> Result:
        """Answer a SELECT, as `Database.query` does; `at_least` is a position that it must have reached."""
        place = None if at_least is None else str(at_least)
        return as_result(
            await self._ask(
                "query", sql=plain_sql(sql), params=wire_params(params), at_least=place, timeout=_seconds(timeout)
            )
        )

    async def read(
        self,
        name: str,
        where: Mapping[str, Any] | None = None,
        *,
        columns: Iterable[str] | None = None,
        limit: int | None = None,
        at_least: Position | str | None = None,
    ) -> Result:
        """Return rows of a table, stream or view: those that have the values of `where`, or all."""
        values = {str(column): wire_value(value) for column, value in (where or {}).items()}
        args = {
            "name": plain_name(name),
            "where": values or None,
            "columns": None if columns is None else list(columns),
            "limit": limit,
            "at_least": None if at_least is None else str(at_least),
        }
        return as_result(await self._ask("read", None, **args))

    async def count_rows(self, name: str, where: Mapping[str, Any] | None = None) -> int:
        """Return how many rows a table, stream or view has, or how many of them have some values."""
        if where:
            return len(await self.read(name, where))
        quoted = plain_name(name).replace('"', '""')
        [(count,)] = (await self.query(f'SELECT COUNT(*) AS n FROM "{quoted}"')).rows
        return int(count)

    async def schema_of(self, name: str) -> Schema:
        """Return the columns of a table, stream or view."""
        found = (await self.describe(name)).to_dicts()
        return Schema(tuple(Column(row["column"], type_of(row["type"]), bool(row["null"])) for row in found))

    def __getitem__(self, name: str) -> AsyncHandle:
        """Return a handle of a table, stream or view; whether it is there shows when it is read."""
        return AsyncHandle(self, plain_name(name))

    async def epoch(self) -> int:
        """Return the number of the last epoch that is on stable storage; of the past, its epoch."""
        if self._epoch is not None:
            return self._epoch
        value = await self._ask("position")
        return Position.parse(value["position"]).epoch

    async def _names(self, *kinds: str) -> list[str]:
        value = await self._link.call("catalog", {}, "read")
        return [one["name"] for one in value["relations"] if one["kind"] in kinds]

    async def tables(self) -> list[str]:
        """Return the names of the tables."""
        return await self._names("table")

    async def streams(self) -> list[str]:
        """Return the names of the base streams."""
        return await self._names("stream")

    async def views(self) -> list[str]:
        """Return the names of the views, those that are streams among them."""
        return await self._names("view", "stream view")

    async def has(self, name: str) -> bool:
        """Return whether there is a table, stream or view of this name."""
        return plain_name(name) in await self._names("table", "stream", "view", "stream view")

    # -- looking inside ----------------------------------------------------------------------------------------------

    async def describe(self, name: str) -> Result:
        """Return the columns of a table or view, as `Database.describe` does."""
        return as_result(await self._link.call("describe", {"name": plain_name(name)}))

    async def explain(self, name: str) -> str:
        """Describe how a view runs, as `Database.explain` does."""
        value = await self._link.call("explain", {"name": plain_name(name)})
        return str(value["text"])

    # -- asking why --------------------------------------------------------------------------------------------------

    async def why(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        limit: int = _LIMIT,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteExplanation:
        """Explain a row of a view, as `Database.why` does."""
        value = await self._question("why", view, row, columns, progress, timeout, limit=limit)
        return await self._told(answers.RemoteExplanation, value)

    async def trace(
        self,
        stream: str,
        tid: int | None = None,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteTrace:
        """Return the results that a row of a stream reached, as `Database.trace` does."""
        args = {"stream": plain_name(stream), "tid": tid, "row": _row_of(row, columns), "timeout": _seconds(timeout)}
        return await self._told(answers.RemoteTrace, await self._ask("trace", progress, **args))

    async def critical(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        where: Mapping[str, Any] | None = None,
        limit: int = _LIMIT,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteCritical:
        """Return the base rows whose loss alone removes a row, or rank them, as `Database.critical` does."""
        if where is not None and not isinstance(where, Mapping):
            raise DataError(f"where is a mapping of columns to values, not {format_value(where)}")
        values = {str(name): wire_value(value) for name, value in {**(where or {}), **columns}.items()}
        if row is not None and values:
            raise DataError("give the row as `row=…` or by its columns, not both")
        value = await self._question("critical", view, row, {}, progress, timeout, where=values or None, limit=limit)
        return await self._told(answers.RemoteCritical, value)

    async def resilience(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteResilience:
        """Return the fewest base rows whose loss removes a row, as `Database.resilience` does."""
        value = await self._question("resilience", view, row, columns, progress, timeout)
        return await self._told(answers.RemoteResilience, value)

    async def contribution(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteContribution:
        """Return how much each base row matters to a row, as `Database.contribution` does."""
        options = {"samples": samples, "seed": seed}
        value = await self._question("contribution", view, row, columns, progress, timeout, **options)
        return await self._told(answers.RemoteContribution, value)

    async def reliability(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        given: Mapping[str, float | str],
        samples: int | None = None,
        confidence: float = 0.99,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> answers.RemoteReliability:
        """Return the probability of a row, as `Database.reliability` does."""
        options = {"given": dict(given), "samples": samples, "confidence": confidence, "seed": seed}
        value = await self._question("reliability", view, row, columns, progress, timeout, **options)
        return await self._told(answers.RemoteReliability, value)

    async def _question(
        self,
        verb: str,
        view: str,
        row: Row,
        columns: Mapping[str, Any],
        progress: Progress | None,
        timeout: Timeout,
        **options: Any,
    ) -> Any:
        args = {"view": plain_name(view), "row": _row_of(row, columns), "timeout": _seconds(timeout), **options}
        return await self._ask(verb, progress, **args)

    async def _told(self, kind: Callable[[Any, Mapping[str, Schema]], A], value: Any) -> A:
        """Return an answer, with values of the types that columns have."""
        if not answers.has_texts(value):
            return kind(value, {})
        catalog = await self._link.call("catalog", {})
        schemas = {
            one["name"]: Schema(tuple(Column(column["name"], type_of(column["type"])) for column in one["columns"]))
            for one in catalog["relations"]
        }
        return kind(value, schemas)

    async def what_if(
        self,
        sql: str = "",
        params: Any = None,
        *,
        insert: Mapping[str, Any] | None = None,
        delete: Mapping[str, Any] | None = None,
        update: Mapping[str, Any] | None = None,
        views: Iterable[str] | None = None,
        strict: bool = False,
        missing: str = "error",
        progress: Progress | None = None,
        timeout: Timeout = None,
    ) -> answers.RemoteWhatIf:
        """Return what one epoch of these writes would change, as `Database.what_if` does."""
        value = await self._ask(
            "what_if",
            progress,
            sql=plain_sql(sql),
            params=wire_params(params),
            insert=None if insert is None else {name: listed_rows(rows, name) for name, rows in insert.items()},
            delete=None
            if delete is None
            else {name: rows if isinstance(rows, str) else listed_rows(rows, name) for name, rows in delete.items()},
            update=None if update is None else {name: _pairs(given, name) for name, given in update.items()},
            views=None if views is None else [views] if isinstance(views, str) else list(views),
            strict=strict,
            missing=missing,
            timeout=_seconds(timeout),
        )
        return await self._told(answers.RemoteWhatIf, value)


def _pairs(given: Any, table: str) -> list[Any]:
    """Return the updates of a table: pairs of new values and where."""
    found = []
    for one in given if isinstance(given, list) else [given]:
        values, where = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
        if not isinstance(values, Mapping):
            raise DataError(f"table {table}: an update is a pair of new values and where, not {format_value(one)}")
        found.append([wire_value(values), where if isinstance(where, str) or where is None else wire_value(where)])
    return found
