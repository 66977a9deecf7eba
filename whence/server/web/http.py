"""The HTTP application: addresses to verbs, and answers in the format that the client asks for.

The law: every request is answered, with what it asked for or with an error in JSON, and never with a traceback. Whoever
goes away cancels what was asked. A page of another origin gets no answer unless it is allowed to.

`HttpApplication` is what uvicorn runs; one `Route` stands for all endpoints of a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

import whence
from whence.server.access.network_policy import NetworkPolicy
from whence.server.access.tokens import Caller
from whence.server.failures import CancelledCallError, RequestError, describe_failure
from whence.server.verbs.arguments import ReadArguments
from whence.server.verbs.calls import Service
from whence.server.verbs.verb_calls import CallAnswer
from whence.server.web.endpoints import DOT, ENDPOINTS, HTML, TEXT, Endpoint
from whence.server.web.formats import JSON, choose_format, encode_rows
from whence.server.web.metrics import CONTENT_TYPE, MetricRegistry, database_families
from whence.server.web.openapi import PAGE_POLICY, docs_page, media_types, openapi
from whence.server.web.requests import bearer_token, read_request, refuse_token_in_address

log = logging.getLogger("whence.server")
POSITION_HEADER = "Whence-Position"
_SMALL = 64 << 10  # bytes of an answer that is sent at once
_EXPLANATION_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; sandbox allow-scripts"
_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_VARY = "Accept, Authorization, Origin"
Events = Callable[[Request, Caller], Awaitable[Response]]
"""Answers a request to follow queries, as a stream of events."""


class HttpApplication:
    """What a server answers over HTTP."""

    def __init__(
        self,
        service: Service,
        policy: NetworkPolicy,
        metrics: MetricRegistry,
        events: Events | None = None,
        pages: Path | None = None,
    ) -> None:
        """`pages` is a folder whose files are served to anybody, at their own names."""
        self._service, self._policy, self._registry, self._events = service, policy, metrics, events
        self._requests = metrics.counter("whence_http_requests_total", "HTTP requests answered", "path", "status")
        self._seconds = metrics.histogram("whence_http_request_seconds", "time of HTTP requests", "path")
        paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ENDPOINTS:
            if endpoint.answer != "socket":
                paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self._router = Router(
            [
                Route(path.replace("{name}", "{name:path}"), partial(self._route, methods), methods=list(methods))
                for path, methods in paths.items()
            ]
            + ([] if pages is None else [Mount("/", StaticFiles(directory=pages, html=True))])
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    # -- around every request ----------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check Host and Origin, answer, and turn every error into JSON."""
        request, began = Request(scope, receive), time.perf_counter()
        host, origin = _header(request, "host"), _header(request, "origin")
        headers = dict(_SAFE)
        status, sent = 500, False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
                message = {**message, "headers": _joined(message["headers"], headers)}
            await send(message)

        try:
            refused = self._policy.refusal(host, origin)
            if refused is not None:
                raise RequestError(refused, status=403)
            if origin is not None:
                headers |= self._policy.cors_headers(origin)
            if request.method == "OPTIONS":
                asked = self._policy.preflight_headers(origin) if origin is not None else {}
                await Response(status_code=204, headers=asked)(scope, receive, send_with_headers)
            else:
                scope["app"] = self  # so that the router raises errors, instead of answering in plain text
                await self._router(scope, receive, send_with_headers)
        except Exception as error:
            if not sent:
                await _error_response(error)(scope, receive, send_with_headers)
            else:
                log.warning("an answer was cut short: %s", type(error).__name__, exc_info=error)
                raise
        finally:
            self._note(request, scope, status, time.perf_counter() - began)

    def _note(self, request: Request, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path = route.path.replace(":path", "") if isinstance(route, Route) else "other"
        self._requests.add(1, path, str(status))
        self._seconds.observe(seconds, path)
        log.debug("%s %s %d, %.1f ms", request.method, scope["path"], status, seconds * 1000)

    async def _route(self, methods: Mapping[str, Endpoint], request: Request) -> Response:
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD
        if not endpoint.token:
            return self._static(endpoint, request)
        refuse_token_in_address(endpoint, request.query_params.multi_items())
        caller = self._service.authenticate(bearer_token(request))
        self._service.check_rate(caller)
        if endpoint.answer == "events":
            if request.method == "HEAD":
                raise HTTPException(405)
            if self._events is None:
                raise RequestError("this server has no streams of events", status=404)
            return await self._events(request, caller)
        if endpoint.answer == "text":
            return await self._metrics(caller)
        try:
            return await self._call(endpoint, request, caller)
        except Exception as error:
            return _error_response(error, sees_all=self._service.sees_all(caller))

    # -- what needs no token -----------------------------------------------------------------------------------------

    def _static(self, endpoint: Endpoint, request: Request) -> Response:
        choose_format(_header(request, "accept"), media_types(endpoint))
        match endpoint.answer:
            case "document":
                return _json(openapi(whence.__version__))
            case "page":
                return _page(docs_page(whence.__version__), PAGE_POLICY)
            case "script":
                return Response(_script(), media_type="text/javascript", headers={"Cache-Control": "no-cache"})
        ready = self._service.is_ready
        return _json({"status": "ok" if ready else "stopping"}, 200 if ready else 503)

    async def _metrics(self, caller: Caller) -> Response:
        answer = await self._service.call(caller, "metrics", {})
        families = database_families(answer.value, names=self._service.sees_all(caller))
        return Response(self._registry.render(families), media_type=None, headers={"Content-Type": CONTENT_TYPE})

    # -- verbs -------------------------------------------------------------------------------------------------------

    async def _call(self, endpoint: Endpoint, request: Request, caller: Caller) -> Response:
        format = choose_format(_header(request, "accept"), media_types(endpoint))
        arguments: Any = await read_request(endpoint, request, self._service.limits)
        if format in (HTML, DOT):
            setattr(arguments, "html" if format == HTML else "dot", True)
        known = _header(request, "if-none-match")
        if known is not None and isinstance(arguments, ReadArguments) and request.method in ("GET", "HEAD"):
            position = await self._service.unchanged(caller, arguments, _tags(known))
            if position is not None:
                return Response(status_code=304, headers=_position_headers(position, cached=True))
        gone = threading.Event()
        watch = asyncio.create_task(_watch(request, gone))
        try:
            answer = await self._service.call(caller, endpoint.verb, arguments, cancelled=gone)
        except CancelledCallError:
            return Response(status_code=499)  # nobody reads it
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        return _respond(answer, format, cached=endpoint.verb == "read")


async def _watch(request: Request, gone: threading.Event) -> None:
    """Note that the client has gone away."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            gone.set()
            return


# -- answers ---------------------------------------------------------------------------------------------------------


def _respond(answer: CallAnswer, format: str, cached: bool) -> Response:
    headers = _position_headers(answer.position, cached and answer.table is not None) if answer.position else {}
    if answer.table is not None:
        pieces = encode_rows(answer.table, format, answer.position)
        media = {"Content-Type": f"{format}; charset=utf-8" if format.startswith("text/") else format}
        if answer.table.nbytes <= _SMALL:
            return Response(b"".join(pieces), headers=headers | media)
        return StreamingResponse(_merged(pieces), headers=headers | media)
    match format:
        case "text/html":
            return _page(answer.html, _EXPLANATION_POLICY, headers)
        case "text/vnd.graphviz" | "text/plain":
            shown = answer.dot if format == DOT else answer.text
            return Response(shown, media_type=TEXT if format == TEXT else DOT, headers=headers)
    return _json(answer.to_value(), headers=headers)


def _merged(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces of a useful size."""
    waiting, size = list[bytes](), 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _SMALL:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _position_headers(position: str, cached: bool = False) -> dict[str, str]:
    """Return the headers that say as of when an answer is; with the position as its tag, it may be asked again for."""
    headers = {POSITION_HEADER: position}
    return headers | {"ETag": f'W/"{position}"', "Cache-Control": "private, no-cache"} if cached else headers


def _tags(header: str) -> list[str]:
    """Return the positions in an If-None-Match header.

    >>> _tags('W/"a.b.7", "c"')
    ['a.b.7', 'c']
    """
    return [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")[:16]]


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, dict(headers or {}), media_type=JSON)


def _page(text: str, policy: str, headers: Mapping[str, str] | None = None) -> Response:
    safe = {"Content-Security-Policy": policy, "X-Frame-Options": "DENY"}
    return Response(text, headers=safe | dict(headers or {}), media_type=HTML)


def _error_response(error: BaseException, sees_all: bool = False) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        what = {404: "there is nothing here", 405: "this address does not take this method"}
        headers |= error.headers or {}
        error = RequestError(what.get(error.status_code, error.detail), status=error.status_code)
    failure = describe_failure(error, sees_all=sees_all)
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif failure.status in (429, 503):
        headers["Retry-After"] = "1"
    return _json(failure.body(), failure.status, headers)


def _script() -> bytes:
    return (resources.files("whence.server") / "static" / "whence.js").read_bytes()


def _header(request: Request, name: str) -> str | None:
    """Return a header; one that is given several times, joined."""
    found = request.headers.getlist(name)
    return ", ".join(found) if found else None


def _joined(given: list[tuple[bytes, bytes]], more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers with those of `more` that are not among them."""
    there = {name.lower() for name, _ in given}
    rest = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in more.items()]
    found = [*given, *((name, value) for name, value in rest if name not in there and name != b"vary")]
    return [*found, (b"vary", _VARY.encode())]


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message: MutableMapping[str, Any] = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
