"""Frames: messages as the bytes that go to a socket, the same for every client that is sent them.

A server's WebSocket frames are not masked (RFC 6455, 5.1), so header and payload are encoded once and written to any
number of connections. An event of an SSE stream is the message in JSON, named by its type, with its position as id.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import Any, Literal

from whence.subscribe.messages import Format, State, UpdateMessage, encode_message

Kind = Literal["json", "msgpack", "sse"]
"""How a client is sent messages: text frames, binary frames, or events of an HTTP response."""

PING = b"\x89\x00"
_HEADS = {"json": 0x81, "msgpack": 0x82}  # a whole text or binary message
_LONGEST_REASON = 123  # bytes that a close frame has room for beside its code


def format_of(kind: Kind) -> Format:
    """Return the encoding of messages of a kind."""
    return "msgpack" if kind == "msgpack" else "json"


def frame(payload: bytes, kind: Kind) -> bytes:
    """Return a payload as a frame.

    >>> frame(b"{}", "json"), frame(b"x" * 200, "msgpack")[:4]
    (b'\\x81\\x02{}', b'\\x82~\\x00\\xc8')
    """
    return header(len(payload), _HEADS[kind]) + payload


def header(length: int, head: int) -> bytes:
    """Return the header of an unmasked frame; `head` has its opcode."""
    if length < 126:
        return bytes((head, length))
    return pack("!BBH", head, 126, length) if length < 65536 else pack("!BBQ", head, 127, length)


def payloads(frames: bytes) -> Iterator[bytes]:
    """Yield the payloads of frames that were made here.

    >>> list(payloads(frame(b"{}", "json") + frame(b"x" * 200, "msgpack")[:4] + b"y" * 200))[0]
    b'{}'
    """
    at = 0
    while at < len(frames):
        length = frames[at + 1]
        if length == 126:
            length, at = int.from_bytes(frames[at + 2 : at + 4], "big"), at + 4
        elif length == 127:
            length, at = int.from_bytes(frames[at + 2 : at + 10], "big"), at + 10
        else:
            at += 2
        yield frames[at : at + length]
        at += length


def message_frame(message: Any, kind: Kind) -> bytes:
    """Return a message as a frame, or as an event.

    >>> from whence.subscribe.messages import Expiring, UpdateMessage
    >>> message_frame(Expiring(7.5), "json")
    b'\\x81\\x1c{"type":"expiring","at":7.5}'
    >>> print(message_frame(UpdateMessage(1, "a.b.3", "a.b.7", 0, [None]), "sse").decode(), end="")
    event: update
    id: a.b.7
    data: {"type":"update","id":1,"since":"a.b.3","at":"a.b.7","time":0,"parts":[null]}
    <BLANKLINE>
    """
    payload = encode_message(message, format_of(kind))
    if kind != "sse":
        return frame(payload, kind)
    # The id is what a client comes back with: the position of rows that it has, so not that of half a state.
    has_rows = isinstance(message, UpdateMessage) or (isinstance(message, State) and message.last)
    place = f"id: {message.at}\n" if has_rows else ""
    return f"event: {message.__struct_config__.tag}\n{place}data: ".encode() + payload + b"\n\n"


def close_frame(code: int, reason: str) -> bytes:
    """Return a frame that ends a connection, with as much of the reason as it has room for.

    >>> close_frame(1000, "fine"), len(close_frame(1008, "é" * 99))
    (b'\\x88\\x06\\x03\\xe8fine', 126)
    """
    text = reason.encode()[:_LONGEST_REASON].decode(errors="ignore").encode()
    payload = pack("!H", code) + text
    return header(len(payload), 0x88) + payload
