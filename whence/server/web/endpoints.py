"""The addresses of a server: one table, from which routes, the OpenAPI document and its page are made.

| answer        | what is sent |
|---------------|--------------|
| `rows`        | rows as JSON, Arrow or CSV, as the client asks |
| `value`       | JSON |
| `explanation` | JSON with the text; a page, a graph or the text alone, as the client asks |
| `write`       | JSON: how many rows were written, and the position where they are |
| `page`, `text`, `document`, `script` | what the name says |
| `events`, `socket` | a stream of events (SSE), or a WebSocket |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whence.server.verbs import arguments as args
from whence.server.web.formats import ARROW, CSV, JSON

AnswerKind = Literal["rows", "value", "explanation", "write", "page", "text", "document", "script", "events", "socket"]
JSON_LINES = "application/x-ndjson"
HTML, DOT, TEXT = "text/html", "text/vnd.graphviz", "text/plain"


@dataclass(frozen=True)
class Endpoint:
    """One address and method.

    verb       the verb of the service that answers (`calls.py`); empty if the server itself does
    arguments  what it takes: in the body if there is one, else in the address
    named      the argument that stands in the path as {name}
    by_column  whether other parameters of the address are columns and their values
    bodies     the media types that a body may have
    token      whether it needs one
    """

    method: str
    path: str
    verb: str
    answer: AnswerKind
    summary: str
    arguments: type[args.Arguments] = args.NoArguments
    named: str = ""
    by_column: bool = False
    bodies: tuple[str, ...] = ()
    token: bool = True

    @property
    def id(self) -> str:
        """A name of its own, for clients that are generated."""
        words = [part for part in self.path.strip("/").split("/") if part not in ("v1", "{name}")]
        kind = "_text" if self.answer == "text" else ""
        return f"{self.method.lower()}_{'_'.join(words).replace('.', '_')}{kind}"


def _question(verb: str, summary: str, kind: type[args.Arguments], named: str = "view") -> Endpoint:
    return Endpoint("POST", f"/v1/{verb}/{{name}}", verb, "explanation", summary, kind, named, bodies=(JSON,))


_TABLE = "/v1/table/{name}"
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/health", "", "value", "Say whether the server works.", token=False),
    Endpoint("GET", "/v1/openapi.json", "", "document", "Return this description.", token=False),
    Endpoint("GET", "/v1/docs", "", "page", "Show this description.", token=False),
    Endpoint("GET", "/whence.js", "", "script", "Return the client for browsers.", token=False),
    Endpoint("GET", "/metrics", "", "text", "Return counters for Prometheus."),
    Endpoint("GET", "/v1/catalog", "catalog", "value", "List the tables, streams and views that you may read."),
    Endpoint("GET", "/v1/position", "position", "value", "Return the position of the last stable epoch."),
    Endpoint("GET", "/v1/metrics", "metrics", "value", "Return the counters of the database."),
    Endpoint(
        "GET", "/v1/view/{name}", "read", "rows",
        "Read a table, stream or view; other parameters are columns and their values.",
        args.ReadArguments, "name", by_column=True,
    ),
    Endpoint("GET", "/v1/query", "query", "rows", "Answer a SELECT.", args.QueryArguments),
    Endpoint("POST", "/v1/query", "query", "rows", "Answer a SELECT.", args.QueryArguments, bodies=(JSON,)),
    Endpoint(
        "POST", _TABLE, "insert", "write", "Insert rows. Returns when they are on stable storage.",
        args.InsertArguments, "table", bodies=(JSON, JSON_LINES, CSV, ARROW),
    ),
    Endpoint(
        "DELETE", _TABLE, "delete", "write",
        "Delete rows: those of the body, or those that have the columns of the address.",
        args.DeleteArguments, "table", by_column=True, bodies=(JSON,),
    ),
    Endpoint(
        "PATCH", _TABLE, "update", "write", "Set columns in the rows that match.",
        args.UpdateArguments, "table", bodies=(JSON,),
    ),
    Endpoint(
        "POST", "/v1/template/{name}", "subscribe", "write",
        "Subscribe to a template; its answer is followed as name#id.",
        args.TemplateArguments, "template", bodies=(JSON,),
    ),
    Endpoint(
        "GET", "/v1/messages/{name}", "messages", "rows",
        "Return the messages of a template after a position, for a network that routes by content.",
        args.MessagesArguments, "template",
    ),
    Endpoint(
        "POST", "/v1/transaction", "transaction", "write", "Write to several tables in one epoch, or not at all.",
        args.TransactionArguments, bodies=(JSON,),
    ),
    Endpoint(
        "POST", "/v1/execute", "execute", "value", "Run a script of SQL statements.",
        args.ExecuteArguments, bodies=(JSON,),
    ),
    _question("why", "Explain why a row is there, or why it is not.", args.WhyArguments),
    Endpoint(
        "POST", "/v1/what_if", "what_if", "explanation", "Say what writes would change, without doing them.",
        args.WhatIfArguments, bodies=(JSON,),
    ),
    _question("critical", "Find the base rows whose loss alone takes rows along.", args.CriticalArguments),
    _question("resilience", "Find the fewest base rows whose loss removes a row.", args.ResilienceArguments),
    _question("contribution", "Say how much each base row matters to a row.", args.ContributionArguments),
    _question("reliability", "Compute the probability of a row.", args.ReliabilityArguments),
    _question("trace", "Find the results that a row of a stream reached.", args.TraceArguments, "stream"),
    Endpoint("GET", "/v1/explain/{name}", "explain", "value", "Describe how a view runs.", args.NamedArguments, "name"),
    Endpoint(
        "GET", "/v1/describe/{name}", "describe", "rows", "List the columns of a table or view.",
        args.NamedArguments, "name",
    ),
    Endpoint(
        "GET", "/v1/owed/{name}", "owed", "rows", "Return the rows whose deletions came first.",
        args.NamedArguments, "name",
    ),
    Endpoint(
        "GET", "/v1/late/{name}", "late", "rows", "Return the rows that came too late for a view.",
        args.NamedArguments, "name",
    ),
    Endpoint(
        "POST", "/v1/advance", "advance", "write", "Promise that no row of a stream with a smaller value follows.",
        args.AdvanceArguments, bodies=(JSON,),
    ),
    Endpoint(
        "POST", "/v1/flush", "flush", "write", "Close the windows of a stream, or of all.",
        args.FlushArguments, bodies=(JSON,),
    ),
    Endpoint("GET", "/v1/subscribe", "", "events", "Follow queries as a stream of events.", args.SubscribeArguments),
    Endpoint(
        "POST", "/v1/subscribe", "", "events", "Follow queries as a stream of events.",
        args.SubscribeArguments, bodies=(JSON,),
    ),
    Endpoint("GET", "/v1/ws", "", "socket", "Read, write and subscribe over a WebSocket.", token=False),
)  # fmt: skip
