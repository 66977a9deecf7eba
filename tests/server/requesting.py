"""HTTP requests to a real server, for tests."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import whence

ARROW = "application/vnd.apache.arrow.stream"
PATIENCE = 30.0


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def rows(self) -> list[list[Any]]:
        assert self.status == 200, self.body
        return self.json["rows"]

    @property
    def arrow(self) -> pa.Table:
        assert self.status == 200, self.body
        return pa.ipc.open_stream(self.body).read_all()

    @property
    def error(self) -> tuple[int, str, str]:
        found = self.json["error"]
        return self.status, found["code"], found["message"]


class Requester:
    """Sends requests with a token."""

    def __init__(self, server: whence.Server, token: str | None = None) -> None:
        self.address = server.url.partition("://")[2]
        self.token = server.token if token is None else token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str | None = None,
        content: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        given = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if accept is not None:
            given["Accept"] = accept
        if body is not None and not isinstance(body, (bytes, str)):
            body, content = json.dumps(body), content or "application/json"
        if content is not None:
            given["Content-Type"] = content
        given |= headers or {}
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Reply:
        return self("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self("POST", path, body, **options)


def arrow_body(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
