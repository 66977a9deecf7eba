"""What goes over a bus that many share, such as NATS: subjects, and messages in pieces.

A node that holds a relation publishes once what happens in its ticks, for all who listen; who misses something asks,
and any node that holds the relation answers. The bus may lose, repeat and reorder: every message says which ticks it
covers, so what is missing is seen (`subscribe/sources.py`).

| subject | what is sent there |
|---|---|
| `whence.<history>.<relation>` | updates and silence, by every node that publishes the relation |
| `whence.<history>.<relation>.ask` | `Want`, or `Subscribe` with what is there; any one node answers, to an inbox |
| `whence.ask.<relation>` | the same, by those who do not know the history yet |

The law: `Joiner.add` of all pieces that `split` made of a message, in any order and beside those of other messages, is
that message, once; with a piece missing it is nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

PREFIX = "whence"
GROUP = "whence"
"""The queue group of those who answer: each request is answered by one of them."""

PIECE = "Whence-Piece"
"""The header of a piece: which message it is of, which piece it is and of how many."""

_MOST_UNFINISHED = 16  # messages of which some pieces are here
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"([A-Za-z0-9-]{1,60})/(\d{1,9})/(\d{1,9})")


def live_subject(history: str, relation: str) -> str:
    """Return where a relation's updates are published.

    >>> live_subject("0123456789ab", "quote"), live_subject("0123456789ab", "a b.c")
    ('whence.0123456789ab.quote', 'whence.0123456789ab.%6120622e63')
    """
    return f"{PREFIX}.{history}.{_token(relation)}"


def ask_subject(relation: str, history: str | None = None) -> str:
    """Return where a relation is asked for.

    >>> ask_subject("quote"), ask_subject("quote", "0123456789ab")
    ('whence.ask.quote', 'whence.0123456789ab.quote.ask')
    """
    return f"{PREFIX}.ask.{_token(relation)}" if history is None else f"{live_subject(history, relation)}.ask"


def _token(name: str) -> str:
    """Return a name as one token of a subject."""
    return name if _PLAIN.fullmatch(name) else "%" + name.encode().hex()


def split(payload: bytes, most: int, name: str) -> Iterator[tuple[bytes, str | None]]:
    """Yield a message in pieces of at most so many bytes, each with its header; whole and without one if it is small.

    >>> list(split(b"abcde", 2, "n-1"))
    [(b'ab', 'n-1/0/3'), (b'cd', 'n-1/1/3'), (b'e', 'n-1/2/3')]
    """
    if len(payload) <= most:
        yield payload, None
        return
    count = -(-len(payload) // most)
    for place in range(count):
        yield payload[place * most : (place + 1) * most], f"{name}/{place}/{count}"


class Joiner:
    """Puts pieces together. Of messages that are never complete only the last few are kept.

    >>> joiner = Joiner(); pieces = list(split(b"abcde", 2, "n-1"))
    >>> [joiner.add(*piece) for piece in reversed(pieces)], joiner.add(b"x", None)
    ([None, None, b'abcde'], b'x')
    """

    def __init__(self) -> None:
        self._unfinished: OrderedDict[str, dict[int, bytes]] = OrderedDict()

    def add(self, payload: bytes, header: str | None) -> bytes | None:
        """Take a piece; return the message when it is complete."""
        if header is None:
            return payload
        match = _HEADER.fullmatch(header)
        if match is None or int(match[2]) >= int(match[3]):
            return None
        name, place, count = match[1], int(match[2]), int(match[3])
        pieces = self._unfinished.setdefault(name, {})
        pieces[place] = payload
        if len(pieces) == count:
            del self._unfinished[name]
            return b"".join(pieces[at] for at in range(count))
        while len(self._unfinished) > _MOST_UNFINISHED:
            self._unfinished.popitem(last=False)
        return None
