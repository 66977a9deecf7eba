"""The description of a server's addresses: OpenAPI 3.1 as JSON, and a page that needs nothing else.

Both are made of the table in `endpoints.py` and of the arguments' definitions, so they say what the server does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whence.server.web.endpoints import DOT, ENDPOINTS, HTML, TEXT, AnswerKind, Endpoint
from whence.server.web.formats import ARROW, CSV, JSON

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_REF = "#/components/schemas/{name}"
_VALUE = "Some columns' values; `null` where it is IS NULL, several for IN."


class RowsAnswer(Struct):
    """Rows, and the position that they are as of."""

    columns: Annotated[list[list[str]], Meta(description="Pairs of a name and a type.")]
    position: str | None
    rows: Annotated[list[list[Any]], Meta(description="Plain values.")]


class WriteAnswer(Struct, omit_defaults=True):
    """A write that is on stable storage."""

    count: Annotated[int, Meta(description="Rows written.")]
    position: Annotated[str, Meta(description="Give it as at_least to read what was written.")]
    repeated: Annotated[bool, Meta(description="Whether it had been done before.")] = False


class ErrorDetail(Struct):
    """What went wrong."""

    code: Annotated[str, Meta(description="The name of the error's class.")]
    message: str
    details: dict[str, Any]


class ErrorAnswer(Struct):
    """An error."""

    error: ErrorDetail


_MEDIA: dict[AnswerKind, tuple[str, ...]] = {
    "rows": (JSON, ARROW, CSV),
    "value": (JSON,),
    "explanation": (JSON, TEXT, HTML, DOT),
    "write": (JSON,),
    "page": (HTML,),
    "text": (TEXT,),
    "document": (JSON,),
    "script": ("text/javascript",),
    "events": ("text/event-stream",),
    "socket": (),
}
_SCHEMAS: dict[AnswerKind, dict[str, Any]] = {
    "rows": {"$ref": _REF.format(name="RowsAnswer")},
    "write": {"$ref": _REF.format(name="WriteAnswer")},
    "value": {},
    "document": {"type": "object"},
    "explanation": {"type": "object"},
}


def media_types(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the media types that an answer may have; the first if the client does not say."""
    found = _MEDIA[endpoint.answer]
    return found if endpoint.verb == "why" or endpoint.answer != "explanation" else found[:3]


@cache
def openapi(version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds = {endpoint.arguments for endpoint in ENDPOINTS}
    components = msgspec.json.schema_components(
        [*sorted(kinds, key=lambda kind: kind.__name__), RowsAnswer, WriteAnswer, ErrorAnswer], ref_template=_REF
    )[1]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Whence",
            "version": version,
            "description": "A database of tables and of views that are maintained incrementally, served over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "parameters": list(_parameters(endpoint, components)),
        "responses": _responses(endpoint),
    }
    if endpoint.token:
        found["security"] = [{"token": []}]
    if endpoint.bodies:
        schema = _without(components[endpoint.arguments.__name__], endpoint.named)
        found["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {media: {"schema": _body_schema(media, schema)} for media in endpoint.bodies},
        }
    return found


def _body_schema(media: str, schema: dict[str, Any]) -> dict[str, Any]:
    if media == JSON:
        rows = {"type": "array", "items": {"type": ["array", "object"]}, "description": "Rows."}
        return {"anyOf": [schema, rows]} if "rows" in schema["properties"] and "csv" in schema["properties"] else schema
    return {"type": "string", "format": "binary"} if media == ARROW else {"type": "string"}


def _without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of an object without one member."""
    return schema | {
        "properties": {key: value for key, value in schema["properties"].items() if key != name},
        "required": [key for key in schema.get("required", ()) if key != name],
    }


def _parameters(endpoint: Endpoint, components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    schema = components[endpoint.arguments.__name__]
    if endpoint.named:
        place = {"name": "name", "in": "path", "required": True}
        yield place | {"schema": schema["properties"][endpoint.named], "description": f"The {endpoint.named}."}
    for name in query_names(endpoint):
        own = schema["properties"][name]
        given = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": own}
        if "description" in own:
            given["description"] = own["description"]
        yield given
    if endpoint.by_column:
        yield {
            "name": "columns_and_values",
            "in": "query",
            "style": "form",
            "explode": True,
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
            "description": _VALUE,
        }


_IN_BODY = frozenset(("rows", "arrow", "csv", "key", "where", "params", "values", "operations"))
"""Arguments of writes that only a body has; the others may be in the address, too."""


@cache
def query_names(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the arguments that may be given in the address.

    >>> [query_names(e) for e in ENDPOINTS if e.path == "/v1/query"]
    [('sql', 'params', 'epoch', 'at_least', 'timeout'), ()]
    """
    names = tuple(name for name in endpoint.arguments.__struct_fields__ if name != endpoint.named)
    if not endpoint.bodies:
        return names
    writes = endpoint.verb in ("insert", "delete")
    return tuple(name for name in names if name not in _IN_BODY) if writes else ()


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer == "socket":
        return {"101": {"description": "A WebSocket (docs/serving.md has its messages)."}}
    media = media_types(endpoint)
    content = {kind: {"schema": _SCHEMAS.get(endpoint.answer, {}) if kind == JSON else {}} for kind in media}
    found: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    if endpoint.answer == "rows" and endpoint.method == "GET":
        found["200"]["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "The position."}}
        found["304"] = {"description": "Nothing has changed since the position in If-None-Match."}
    error = {JSON: {"schema": {"$ref": _REF.format(name="ErrorAnswer")}}}
    return found | {"default": {"description": "An error.", "content": error}}


# -- the page --------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff }
h1 { font-size: 1.5rem } code, pre { font-family: ui-monospace, monospace; font-size: .9em }
details { border: 1px solid #ddd; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } summary b { display: inline-block; min-width: 4.5rem; color: #06c }
summary code { margin-right: .8rem } table { border-collapse: collapse; margin: .5rem 0 }
td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top } th { color: #666; font-weight: normal }
pre { background: #f5f5f5; padding: .5rem .8rem; border-radius: 6px; overflow-x: auto }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } details { border-color: #444 }
  pre { background: #222 } summary b { color: #6af } }
"""


@cache
def docs_page(version: str) -> str:
    """Return the description as a page without scripts."""
    document = openapi(version)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Whence</title><style>{_STYLE}</style><h1>Whence {escape(version)}</h1>",
        "<p>Send a token in the header <code>Authorization: Bearer …</code>. Rows are sent as JSON, Arrow or CSV, as "
        "the header <code>Accept</code> says. The same as a document: <a href='/v1/openapi.json'>openapi.json</a>.</p>",
    ]
    for endpoint in ENDPOINTS:
        parts.append(_described(endpoint, document["paths"][endpoint.path][endpoint.method.lower()]))
    return "".join(parts)


def _described(endpoint: Endpoint, operation: dict[str, Any]) -> str:
    head = f"<b>{endpoint.method}</b> <code>{escape(endpoint.path)}</code>{escape(endpoint.summary)}"
    rows = [
        (given["name"], given["in"], given["schema"], given.get("description", ""), given.get("required", False))
        for given in operation["parameters"]
    ]
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema", {})
    body = body.get("anyOf", [body])[0]
    for name, schema in body.get("properties", {}).items():
        rows.append((name, "body", schema, schema.get("description", ""), name in body.get("required", ())))
    table = "".join(
        f"<tr><td><code>{escape(name)}</code>{'*' * needed}<td>{place}<td>{escape(_type(schema))}<td>{escape(text)}"
        for name, place, schema, text, needed in rows
    )
    media = ", ".join(media_types(endpoint))
    given = f"<p>Body: {escape(', '.join(endpoint.bodies))}</p>" if len(endpoint.bodies) > 1 else ""
    listed = f"<table><tr><th>argument<th>in<th>type<th>{table}</table>" if table else ""
    answer = f"<p>Answer: {escape(media)}</p>" if media else ""
    token = "" if endpoint.token else "<p>Without a token.</p>"
    example = f"<pre>{escape(_example(endpoint))}</pre>" if endpoint.answer != "socket" else ""
    return f"<details><summary>{head}</summary>{listed}{given}{answer}{token}{example}</details>"


def _type(schema: dict[str, Any]) -> str:
    """Describe a type in a word or two."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    found = schema.get("type", "any")
    return f"array of {_type(schema['items'])}" if found == "array" and schema.get("items") else str(found)


_IN_ADDRESS = {"read": "?src=A", "delete": "?src=A"}
_IN_BODIES = {
    "query": '{"sql": "SELECT * FROM link WHERE src = ?", "params": ["A"]}',
    "insert": '[["A", "B"], {"src": "B", "dst": "C"}]',
    "update": '{"values": {"dst": "D"}, "where": {"src": "A"}}',
    "subscribe": '{"parameters": {"low": 3}}',
    "transaction": '{"operations": [{"verb": "delete", "table": "link", "where": {"src": "A"}}]}',
    "why": '{"row": {"src": "A", "dst": "C"}}',
    "execute": '{"sql": "CREATE VIEW v AS SELECT DISTINCT src FROM link"}',
}


def _example(endpoint: Endpoint) -> str:
    words = ["curl"]
    if endpoint.method not in ("GET", "POST"):
        words.append(f"-X {endpoint.method}")
    if endpoint.token:
        words.append('-H "Authorization: Bearer $TOKEN"')
    address = endpoint.path.replace("{name}", "link") + _IN_ADDRESS.get(endpoint.verb, "")
    if endpoint.bodies and endpoint.verb not in _IN_ADDRESS:
        words += [f"-H 'Content-Type: {JSON}'", f"-d '{_IN_BODIES.get(endpoint.verb, '{}')}'"]
    elif endpoint.verb == "query":
        address += "?sql=SELECT+1"
    return " ".join([*words, f"'http://127.0.0.1:8080{address}'"])
