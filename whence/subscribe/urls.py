"""Addresses of served databases: what users write, and where the WebSocket is."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit

from whence.model.errors import DataError

PATH = "/v1/ws"
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def websocket_url(url: str) -> str:
    """Return the address of the WebSocket of a server.

    >>> websocket_url("http://127.0.0.1:8080"), websocket_url("https://example.org/db/")
    ('ws://127.0.0.1:8080/v1/ws', 'wss://example.org/db/v1/ws')
    >>> websocket_url("127.0.0.1:8080")
    Traceback (most recent call last):
    whence.model.errors.DataError: '127.0.0.1:8080' is not the address of a server: those look like \
http://127.0.0.1:8080
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        host, parts = None, urlsplit("")
    if parts.scheme not in _SCHEMES or not host:
        raise DataError(f"{str(url)[:200]!r} is not the address of a server: those look like http://127.0.0.1:8080")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise DataError("the address of a server has no user, password or parameters: a token is given as token=")
    path = parts.path.rstrip("/")
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path if path.endswith(PATH) else path + PATH, "", ""))


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, where no proxy is asked.

    >>> is_loopback("ws://localhost:1/v1/ws"), is_loopback("ws://[::1]:1/"), is_loopback("ws://example.org/")
    (True, True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
