"""Messages between a server and its clients, in JSON (text frames) and msgpack (binary frames) from one definition.

A client speaks first: `Hello`. The kind of that frame is the kind of all frames on the connection. A subscription, an
insert and a call have numbers that the client chooses; every answer has the number it answers. docs/serving.md has the
protocol as a reader meets it.

The law: `decode_up` gives a message that has the fields and types written here, or raises MessageError; nothing that a
client sends reaches the server in any other form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from whence.model.errors import WhenceError

VERSION = 1
Format = Literal["json", "msgpack"]
PlainColumns = list[list[Any]]
ClientNumber = Annotated[int, Meta(ge=0, lt=2**53)]
"""A number that a client chooses; one that JavaScript can hold."""


class MessageError(WhenceError):
    """A message that cannot be read."""


# -- from a client ---------------------------------------------------------------------------------------------------


class Hello(Struct, tag="hello", omit_defaults=True):
    """The first message. `publisher` names who numbers inserts, for inserts that may be sent again."""

    version: int = VERSION
    token: str | None = None
    publisher: str | None = None


class WireBound(Struct, omit_defaults=True):
    """Only rows whose column is at least a plain value, or at most, are delivered; if the value is null, none are."""

    column: str
    value: Any
    is_least: bool = True


class WireFilter(Struct, omit_defaults=True):
    """What of one query is delivered; a change that does not pass is silence.

    `columns` are those that keys are of. With `keys`, as columns of plain values, only rows of these keys pass. Of
    `quenched` keys, which are of the columns `key`, only what changes in the `watched` columns passes."""

    columns: list[str] = field(default_factory=list)
    keys: PlainColumns | None = None
    bound: WireBound | None = None
    quenched: PlainColumns | None = None
    watched: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)


class Subscribe(Struct, tag="subscribe", omit_defaults=True):
    """Follow queries, which move together. `have` is the position of the rows that the client has already.

    With `ticks` the subscriber is a broker: there is one query, `have` is the history and the ranges of ticks that it
    reflects (`0123456789ab.00c0ffee.0-17,19-30`), messages say which ticks they cover, and silence is told. Of a stream
    every row comes with its tick, in updates only, never in a state. `reflects` is what a client that comes from
    another broker has seen: nothing is told before this server reflects as much."""

    id: ClientNumber
    queries: list[str]
    params: list[Any] | dict[str, Any] | None = None
    have: str | None = None
    every: float | None = None  # seconds at least between two updates
    why: bool = False
    every_change: bool = False
    ticks: bool = False
    filter: WireFilter | None = None
    reflects: dict[str, str] | None = None
    bounds: bool | Literal["values"] = True
    ordered: bool = False


class Want(Struct, tag="want"):
    """Ask a subscription with ticks for ranges of ticks again, each after its first number and up to its second; for
    none if only silence is wanted: where the publisher is by now, at once and often from then on."""

    id: ClientNumber
    ranges: list[tuple[int, int]]


class Amend(Struct, tag="amend", omit_defaults=True):
    """Change the filter of a subscription; `Amended` tells what comes and goes by that. `number` counts them, and
    `base` is the number of the filter that is changed. Of a stream, rows of added keys after the tick `since` come
    along."""

    id: ClientNumber
    number: ClientNumber
    base: ClientNumber = 0
    add: PlainColumns | None = None  # keys whose rows pass from now on
    drop: PlainColumns | None = None
    bound: WireBound | None = None
    quench: PlainColumns | None = None
    unbound: bool = False  # there is no bound any more
    lift: PlainColumns | None = None  # keys that are quenched no more
    since: ClientNumber | None = None
    more: ClientNumber = 0  # rows beyond the bound that are asked for: the publisher moves it
    as_of: ClientNumber = 0  # the tick as of which keys were found to be of no use


class Unsubscribe(Struct, tag="unsubscribe"):
    """End a subscription."""

    id: ClientNumber


class Wait(Struct, tag="wait"):
    """Ask for an update, even an empty one, as soon as the subscription has reached a position."""

    id: ClientNumber
    at: str


class InsertMessage(Struct, tag="insert", omit_defaults=True):
    """Insert rows: lists of plain values in the order of the table, or of `columns`; or an Arrow stream.

    A publisher counts its inserts by `number`, and says which is the lowest that it still awaits an answer of; and by
    `after`, which one it has sent before this one on the connection, so that the server notices if that is missing."""

    seq: ClientNumber
    table: str
    rows: list[list[Any]] | None = None
    columns: list[str] | None = None
    arrow: bytes | None = None
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    awaiting: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    missing: Literal["error", "null"] = "error"


class CallMessage(Struct, tag="call", omit_defaults=True):
    """Call a verb of the server (`server/calls.py`)."""

    seq: ClientNumber
    verb: str
    args: dict[str, Any] = field(default_factory=dict)


class Cancel(Struct, tag="cancel"):
    """Give up on a call."""

    seq: ClientNumber


class Renew(Struct, tag="renew"):
    """Go on with another token of the same user."""

    token: str


Up = Hello | Subscribe | Unsubscribe | Want | Amend | Wait | InsertMessage | CallMessage | Cancel | Renew


# -- from the server -------------------------------------------------------------------------------------------------


class Welcome(Struct, tag="welcome"):
    """The answer to `Hello`."""

    version: int
    position: str
    who: str
    limits: dict[str, Any]


class Subscribed(Struct, tag="subscribed", omit_defaults=True):
    """A subscription stands, or has other columns now: per query its columns, each a name and a type; and what each can
    still become (`knowledge`). With ticks also the `definition` of the relation that is followed, as SQL with its kind,
    key and promises, and the `eras` of the history whose epochs are the ticks, each an id and a start."""

    id: int
    at: str
    parts: list[list[tuple[str, str]]]
    knowledge: list[Any] | None = None
    horizons: dict[str, Any] | None = None  # as of the position that the client has
    definition: str | None = None
    eras: list[tuple[str, int]] | None = None


class State(Struct, tag="state", omit_defaults=True):
    """Rows of one query at a position: a chunk of its state. It takes the place of what the client has when the last
    chunk is there; `chunk` counts them from 0, so that one that is missing is seen. `reason` says why it is sent:
    begin, behind, redefined, restarted (another history) or rights."""

    id: int
    at: str
    part: int
    columns: PlainColumns | None = None
    arrow: bytes | None = None
    first: bool = False
    last: bool = False
    reason: str = "begin"
    time: int = 0
    why: list[Any] | None = None
    chunk: int = 0
    bounds: list[Any] | None = None  # with bounds="values", per column: the lowest and the highest values, or null
    states: list[str] | None = None  # with bounds="values", per row: final, stays or may go
    horizons: dict[str, Any] | None = None
    reflects: dict[str, str] | None = None
    waiting_for: dict[str, Any] | None = None
    number: int = 0  # of the filter
    bound: WireBound | None = None  # that of the filter


class PartChange(Struct, omit_defaults=True):
    """What went from and came to one query, as columns of plain values; a row that came twice is there twice."""

    went: PlainColumns | None = None
    came: PlainColumns | None = None
    why: list[Any] | None = None  # of each row that came, its witnesses
    bounds: list[Any] | None = None  # with bounds="values": as in `State`, of the rows that came
    states: list[str] | None = None
    closed: PlainColumns | None = None  # rows that were there, did not change, and are final now
    ticks: list[tuple[int, int, int]] | None = None  # of a stream: a tick, its time, and how many rows came in it


class UpdateMessage(Struct, tag="update", omit_defaults=True):
    """After `since` and up to `at`, the queries changed by exactly this; None for one that did not. `time` is that of
    the epoch, in microseconds since 1970.

    `horizons` are those that have moved by `at`. `reflects` are the ranges of ticks of each source that the rows
    reflect, where there are sources, by their histories; `waiting_for` says which source is behind, and since when."""

    id: int
    since: str
    at: str
    time: int
    parts: Sequence[PartChange | None]
    horizons: dict[str, Any] | None = None
    reflects: dict[str, str] | None = None
    waiting_for: dict[str, Any] | None = None
    number: int = 0  # of the filter


class Silence(Struct, tag="silence", omit_defaults=True):
    """After `since` and up to `at` nothing passed the filter; nothing more comes before `time`, in microseconds since
    1970."""

    id: int
    since: str
    at: str
    time: int
    horizons: dict[str, Any] | None = None
    waiting_for: dict[str, Any] | None = None
    number: int = 0  # of the filter


class Amended(Struct, tag="amended", omit_defaults=True):
    """The filter has changed as of `at`: everything up to there was told by the old one. `part` is what comes and goes
    by that, at `at`; `bound` is the bound in effect, which the publisher moves if more rows are asked for. Keys that
    were `refused` are not quenched, though that was asked for."""

    id: int
    number: int
    at: str
    part: PartChange | None = None
    bound: WireBound | None = None
    refused: PlainColumns | None = None


class Lost(Struct, tag="lost"):
    """Changes after `since` and up to `at` cannot be told one by one any more; a state follows, unless the subscriber
    has asked for ticks: to a broker, they are lost for good."""

    id: int
    since: str
    at: str


class Done(Struct, tag="done", omit_defaults=True):
    """A write is on stable storage, at a position. `repeated` if it had been done before."""

    seq: int
    count: int
    at: str
    repeated: bool = False


class ResultMessage(Struct, tag="result"):
    """The answer to a call."""

    seq: int
    value: Any


class ProgressMessage(Struct, tag="progress"):
    """How far a call is."""

    seq: int
    what: str
    done: int
    total: int


class ErrorMessage(Struct, tag="error", omit_defaults=True):
    """What went wrong: `code` is the name of the error's class. If it is `final`, the subscription `id` has ended."""

    code: str
    message: str
    seq: int | None = None
    id: int | None = None
    final: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class Expiring(Struct, tag="expiring"):
    """The token expires at a time, in seconds since 1970: `Renew` it."""

    at: float


Down = (
    Welcome
    | Subscribed
    | State
    | UpdateMessage
    | Silence
    | Amended
    | Lost
    | Done
    | ResultMessage
    | ProgressMessage
    | ErrorMessage
    | Expiring
)

_JSON, _MSGPACK = msgspec.json.Encoder(), msgspec.msgpack.Encoder()
_JSON_UP, _MSGPACK_UP = msgspec.json.Decoder(Up), msgspec.msgpack.Decoder(Up)
_JSON_DOWN, _MSGPACK_DOWN = msgspec.json.Decoder(Down), msgspec.msgpack.Decoder(Down)


def encode_message(message: Any, format: Format) -> bytes:
    """Return a message as bytes. In JSON, bytes are base64.

    >>> encode_message(Wait(1, "a.b.7"), "json")
    b'{"type":"wait","id":1,"at":"a.b.7"}'
    """
    return _JSON.encode(message) if format == "json" else _MSGPACK.encode(message)


def decode_up(data: bytes | str, format: Format) -> Any:
    """Read a message of a client.

    >>> decode_up(b'{"type":"unsubscribe","id":7}', "json")
    Unsubscribe(id=7)
    >>> decode_up(b'{"type":"unsubscribe","id":"x"}', "json")
    Traceback (most recent call last):
    whence.subscribe.messages.MessageError: Expected `int`, got `str` - at `$.id`
    """
    return _decode(_JSON_UP if format == "json" else _MSGPACK_UP, data)


def decode_down(data: bytes | str, format: Format) -> Any:
    """Read a message of a server."""
    return _decode(_JSON_DOWN if format == "json" else _MSGPACK_DOWN, data)


def _decode(decoder: Any, data: bytes | str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise MessageError(f"{error!s:.300}") from None
