"""HTTP requests as arguments of a verb: the address, the body, and who sends them.

The law: a body is never larger in memory than the limit, whatever its head says; a token is taken from the header
alone, and one in the address is refused, since addresses end up in logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from whence.server.access.tokens import PREFIX
from whence.server.failures import RequestError
from whence.server.limits import Limits
from whence.server.verbs.arguments import Arguments, read_arguments
from whence.server.verbs.typed_values import AddressText
from whence.server.web.endpoints import JSON_LINES, Endpoint
from whence.server.web.formats import ARROW, CSV, JSON
from whence.server.web.openapi import query_names

_TOKEN_NAMES = ("token", "access_token", "api_key", "authorization")
_JSON_TYPES = (JSON, "", "application/x-www-form-urlencoded")  # the last is what curl says of any text
_LINES = (JSON_LINES, "application/jsonl", "application/jsonlines", "application/x-jsonlines")
_AS_JSON = ("params", "where", "row", "value")  # arguments of an address that are written in JSON
_ONE_QUERY = ("query", "view", "sql")  # other names for one of the queries that are followed
_PRECISE = 15  # digits that a double always keeps


def bearer_token(request: Request) -> str | None:
    """Return the token in the header; None without one."""
    given = [value for name, value in request.headers.items() if name == "authorization"]
    if not given:
        return None
    scheme, _, token = given[0].strip().partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise RequestError("the header Authorization is: Bearer, a space, and the token", status=401)
    return token.strip()


def refuse_token_in_address(endpoint: Endpoint, parameters: Iterable[tuple[str, str]]) -> None:
    """Raise an error if a token is in the address; of a table, `token` may be the name of a column."""
    for name, value in parameters:
        if value.startswith(PREFIX) or (name.lower() in _TOKEN_NAMES and not endpoint.by_column):
            raise RequestError("a token in the address would end up in logs: send it in the header Authorization")


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request, if it is not too large and does not take too long to come."""
    try:
        announced = int(request.headers.get("content-length", 0))
    except ValueError:
        announced = 0
    _check_size(announced, limits)
    pieces, size = list[bytes](), 0
    stream = aiter(request.stream())
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream), limits.idle_seconds)
        except StopAsyncIteration:
            return b"".join(pieces)
        except TimeoutError:
            raise RequestError("the body of the request did not come in time", status=408) from None
        except ClientDisconnect:
            raise RequestError("the client went away", status=499) from None
        size += len(piece)
        _check_size(size, limits)
        pieces.append(piece)


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.body_bytes:
        message = f"a body of more than {limits.body_bytes:,} bytes (limit body_bytes): send less at a time"
        raise RequestError(message, status=413)


async def read_request(endpoint: Endpoint, request: Request, limits: Limits) -> Arguments:
    """Return the arguments of a request."""
    given = read_address(endpoint, request.query_params.multi_items())
    if endpoint.bodies:
        body = await read_body(request, limits)
        if body or endpoint.method != "DELETE":
            given |= read_content(endpoint, request.headers.get("content-type", ""), body)
    if endpoint.named:
        given[endpoint.named] = request.path_params["name"]
    return read_arguments(endpoint.arguments, given, texts=True)  # type: ignore[no-any-return]


def read_address(endpoint: Endpoint, parameters: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the arguments in an address: of a table, other names are columns, and several values are a list.

    >>> from whence.server.web.endpoints import ENDPOINTS
    >>> [read] = [e for e in ENDPOINTS if e.verb == "read"]
    >>> read_address(read, [("limit", "7"), ("columns", "a,b"), ("a", "1"), ("a", "2")])
    {'limit': '7', 'columns': ['a', 'b'], 'where': {'a': ['1', '2']}}
    """
    known, found = query_names(endpoint), dict[str, Any]()
    where: dict[str, Any] = {}
    for name, value in parameters:
        if name in known:
            _add(found, name, value)
        elif endpoint.answer == "events" and name in _ONE_QUERY:
            _add(found, "queries", value)
        elif endpoint.by_column:
            here, text = where.get(name), AddressText(value)
            where[name] = text if here is None else [*here, text] if isinstance(here, list) else [here, text]
        else:
            raise RequestError(f"unknown parameter {name!r:.80}; there is {', '.join(known) or 'none'}")
    if where:
        found["where"] = {**(found.get("where") or {}), **where}
    return found


def _add(found: dict[str, Any], name: str, value: str) -> None:
    if name in ("columns", "queries"):
        found.setdefault(name, []).extend(value.split(",") if name == "columns" else [value])
    elif name in found:
        raise RequestError(f"the parameter {name} is given twice")
    else:
        found[name] = _decode(value.encode(), f"the parameter {name}") if name in _AS_JSON else value


def read_content(endpoint: Endpoint, content_type: str, body: bytes) -> dict[str, Any]:
    """Return the arguments in a body."""
    media = content_type.partition(";")[0].strip().lower()
    if media in _JSON_TYPES:
        given = _decode(body, "the body") if body.strip() else {}
        if isinstance(given, list) and endpoint.verb == "insert":
            given = {"rows": given}
        if not isinstance(given, dict):
            raise RequestError("the body is to be a JSON object with the arguments")
        return given
    if media in _LINES and JSON_LINES in endpoint.bodies:
        return {"rows": _read(lambda: _DECODER.decode_lines(body), "the body")}
    if media == ARROW and ARROW in endpoint.bodies:
        return {"arrow": body}
    if media == CSV and CSV in endpoint.bodies:
        return {"csv": _read(lambda: body.decode("utf-8-sig"), "the body")}
    raise RequestError(f"Content-Type {media!r:.80} is none of {', '.join(endpoint.bodies)}", status=415)


def _number(text: str) -> float | Decimal:
    """Return a number that is not whole; one that a double does not keep stays exact, for DECIMAL."""
    return float(text) if len(text) <= _PRECISE else Decimal(text)


_DECODER = msgspec.json.Decoder(float_hook=_number)


def _decode(data: bytes, what: str) -> Any:
    return _read(lambda: _DECODER.decode(data), what)


def _read(read: Callable[[], Any], what: str) -> Any:
    try:
        return read()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, ArithmeticError) as error:
        raise RequestError(f"{what} cannot be read: {error!s:.200}") from None
