"""Addresses of sources: `ws://host:port/relation`, the address of a server and what is asked of it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

_SCHEMES = ("ws", "wss", "http", "https", "nats", "memory")


class SourceAddress(NamedTuple):
    """The address of a server, and the name of a table, stream or view there."""

    server: str
    relation: str


def source_address(url: str) -> SourceAddress:
    """Take the address of a source apart; ValueError if it is none.

    >>> source_address("wss://nyse.example:8443/db/quote")
    SourceAddress(server='wss://nyse.example:8443/db', relation='quote')
    >>> source_address("quote")
    Traceback (most recent call last):
    ValueError: 'quote' is not the address of a source: those look like ws://127.0.0.1:8080/quote
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    path, _, relation = parts.path.rpartition("/")
    if parts.scheme not in _SCHEMES or not host or not relation:
        raise ValueError(f"{url[:200]!r} is not the address of a source: those look like ws://127.0.0.1:8080/quote")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ValueError("the address of a source has no user, password or parameters: WITH (token_file = …)")
    return SourceAddress(urlunsplit((parts.scheme, parts.netloc, path, "", "")), unquote(relation).lower())
