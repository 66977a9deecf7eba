"""Functions that fetch rows of lookups: from an HTTP service, and from a table of PostgreSQL."""

from __future__ import annotations

import dataclasses
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from whence.model.errors import WhenceError

_NOT_FOUND = 404


@dataclasses.dataclass(frozen=True)
class HttpService:
    """Fetches values from an HTTP service, as JSON; what it does not find (404) has no row.

    url      the address of a key, with {key} in its place
    field    the field of the answer that is the value, or a path of fields such as "rates.eur"; without it the whole
    headers  headers of each request
    timeout  seconds that the service may be silent

    >>> rates = whence.HttpService("http://127.0.0.1:8000/rate/{key}", field="eur")
    >>> db = whence.open(); db.create_lookup("rate", rates, memory="300 rows", timeout=2)
    """

    url: str
    field: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if "{key}" not in self.url or not self.url.startswith(("http://", "https://")):
            raise WhenceError(f"the url of a lookup is http:// or https:// with {{key}} in it, not {self.url!r}")

    def __call__(self, key: Any) -> Any:
        address = self.url.replace("{key}", quote(str(key), safe=""))
        request = urllib.request.Request(address, headers=dict(self.headers))  # checked above
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        for name in self.field.split(".") if self.field is not None else ():
            found = found[name]
        return found


class PostgresTable:
    """Fetches rows from a table of PostgreSQL, or a view, many keys at a time (`pip install whence[postgres]`).

    address  where it is, as psycopg takes it: "postgresql://user@host/database", "dbname=shop"
    table    its name, with its schema if there is one: "public.rates"
    key      the column that is the key
    columns  the columns that are fetched

    >>> rates = whence.PostgresTable("dbname=shop", "rates", key="currency", columns=["eur"])
    >>> db = whence.open(); db.create_lookup("rate", rates, memory="300 rows")
    """

    many = True

    def __init__(self, address: str, table: str, *, key: str, columns: Sequence[str]) -> None:
        self._address, self._columns = address, tuple(columns)
        listed = ", ".join(_quoted(name) for name in (key, *columns))
        source = ".".join(_quoted(part) for part in table.split("."))
        self._query = f"SELECT {listed} FROM {source} WHERE {_quoted(key)} = ANY(%s)"  # quoted
        self._connection: Any = None
        self._guard = threading.Lock()

    def __call__(self, keys: list[Any]) -> dict[Any, tuple[Any, ...]]:
        try:
            import psycopg
        except ImportError:
            raise WhenceError("PostgresTable needs psycopg: pip install whence[postgres]") from None
        with self._guard:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._address, autocommit=True)
            try:
                found = self._connection.execute(self._query, (keys,)).fetchall()
            except psycopg.OperationalError:  # the server was started again
                self._connection.close()
                self._connection = psycopg.connect(self._address, autocommit=True)
                found = self._connection.execute(self._query, (keys,)).fetchall()
        return {row[0]: tuple(row[1:]) for row in found}


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
