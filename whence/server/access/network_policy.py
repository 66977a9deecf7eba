"""Which pages and names may talk to a server: `Host` and `Origin` checked, CORS by list.

A browser sends requests for any page that it shows, from inside the user's network. Two headers say what it does:
`Host` is the name that it believes to talk to, and `Origin` the page that asks.

The law: a request whose Host is a name that is not this server's is refused, so that a foreign name which suddenly
resolves to this machine (DNS rebinding) reaches nothing. A request with an Origin is answered only if that is this very
server or is on the list. Programs send no Origin: their token is what counts.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from whence.model.errors import DataError

ANY = "*"
_METHODS = "GET, POST, PATCH, DELETE"
_HEADERS = "Authorization, Content-Type, Accept, If-None-Match, Last-Event-ID"
_EXPOSED = "ETag, Whence-Position, Retry-After"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def host_name(header: str) -> str:
    """Return the name or address in a Host header, in lower case; empty if there is none.

    >>> host_name("Example.org:8080"), host_name("[::1]:80"), host_name("a b")
    ('example.org', '::1', '')
    """
    if not header or any(letter in header for letter in "/\\@?# \t"):
        return ""
    try:
        found = urlsplit(f"//{header}")
        _ = found.port  # ValueError if it is no number
        return (found.hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def read_origin(text: str) -> str:
    """Check an origin that is to be allowed, such as https://example.org, or * for all.

    >>> read_origin("https://Example.org"), read_origin("*")
    ('https://example.org', '*')
    """
    if text == ANY:
        return text
    given = text.strip().rstrip("/").lower()
    try:
        parts = urlsplit(given)
        valid = parts.scheme in ("http", "https") and parts.hostname and not (parts.path or parts.query)
        _ = parts.port
    except ValueError:
        valid = False
    if not valid:
        raise DataError(f"an origin is a scheme and a name, such as https://example.org, not {text!r:.100}")
    return given


@dataclass(frozen=True)
class NetworkPolicy:
    """The names that a server goes by, and the origins whose pages may use it.

    >>> policy = NetworkPolicy.of("127.0.0.1", origins=["https://example.org"])
    >>> policy.refusal("127.0.0.1:8080", "https://example.org"), policy.refusal("localhost", None)
    (None, None)
    >>> policy.refusal("evil.example", None)
    'the Host evil.example is no name of this server'
    >>> policy.refusal("localhost:8080", "https://evil.example")
    'pages of https://evil.example may not use this server'
    """

    names: frozenset[str]
    origins: frozenset[str] = frozenset()
    scheme: str = "http"

    @classmethod
    def of(
        cls, listen: str, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), scheme: str = "http"
    ) -> NetworkPolicy:
        """Return that of a server that listens on an address, and goes by some more names."""
        names = {*_LOOPBACK, listen.lower(), *(name.strip().lower().rstrip(".") for name in hosts)}
        if not is_loopback(listen):
            names.add(socket.gethostname().lower())
        return cls(frozenset(names), frozenset(map(read_origin, origins)), scheme)

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Say why a request with these headers is refused; None if it is not."""
        name = host_name(host or "")
        if not name:
            return "a request needs the header Host, with the name of this server"
        # An address cannot be made to point elsewhere, as a name can; whoever can connect to it may say so.
        if name not in self.names and ANY not in self.names and not _is_address(name):
            return f"the Host {name:.100} is no name of this server"
        if origin is None or self.allows_origin(origin, host or ""):
            return None
        return f"pages of {origin:.100} may not use this server"

    def allows_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of an origin may use the server, which it calls by `host`."""
        given = origin.strip().lower()
        return ANY in self.origins or given in self.origins or given == f"{self.scheme}://{host.strip().lower()}"

    def cors_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers with which a browser lets a page of an allowed origin read an answer."""
        if origin is None:
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _EXPOSED,
            "Vary": "Origin",
        }

    def preflight_headers(self, origin: str) -> dict[str, str]:
        """Return the answer to a browser that asks beforehand what a page of an allowed origin may send."""
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": _HEADERS,
            "Access-Control-Max-Age": "600",
            "Vary": "Origin",
        }
