"""Where a server listens: addresses, sockets and certificates, checked before anything is served.

The law: without a token file a server listens on this machine only. What cannot be listened on, or a certificate that
cannot be read, is an error of the caller, raised before `whence.serve` returns.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from pathlib import Path

from whence.model.errors import DataError, WhenceError
from whence.server.access.network_policy import is_loopback

_ADDRESS = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})")
_BACKLOG = 2048


def read_listen(text: str) -> tuple[str, int]:
    """Read HOST:PORT, or a port alone on this machine.

    >>> read_listen("0.0.0.0:80"), read_listen("[::1]:8080"), read_listen("8080"), read_listen(":0")
    (('0.0.0.0', 80), ('::1', 8080), ('127.0.0.1', 8080), ('127.0.0.1', 0))
    """
    found = _ADDRESS.fullmatch(text if ":" in text else f":{text}")
    if found is None or int(found["port"]) > 65535:
        raise DataError(f"an address to listen on is HOST:PORT, such as 127.0.0.1:8080, not {text!r:.100}")
    return found["six"] or found["host"] or "127.0.0.1", int(found["port"])


def check_exposure(host: str, has_tokens: bool) -> None:
    """Refuse to be reached from other machines with nothing but a token that was printed."""
    if not has_tokens and not is_loopback(host):
        raise WhenceError(
            f"listening on {host} lets other machines connect, which needs a token file: make one with "
            "`whence token add FILE WHO` and give it as --token-file (token_file=), or listen on 127.0.0.1"
        )


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host, on one port.

    >>> [one] = listen("127.0.0.1", 0); one.getsockname()[0], one.close()
    ('127.0.0.1', None)
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise DataError(f"a port is a number from 0 to 65535, not {port!r:.100}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise WhenceError(f"cannot listen on {host!r:.100}: {error}") from None
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bound(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE or not _is_absent(error):
                break
            failure = None if sockets else error
    if failure is not None or not sockets:
        for one in sockets:
            one.close()
        raise WhenceError(f"cannot listen on {host}, port {port}: {getattr(failure, 'strerror', failure)}")
    return sockets


def _is_absent(error: OSError) -> bool:
    """Return whether this machine lacks a kind of address, such as IPv6."""
    return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or asyncio does not set TCP_NODELAY
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(_BACKLOG)
        one.setblocking(False)
    except BaseException:
        one.close()
        raise
    return one


def url_of(host: str, port: int, secure: bool) -> str:
    """Return the address of a server, for programs on this machine.

    >>> url_of("0.0.0.0", 80, False), url_of("::1", 443, True)
    ('http://127.0.0.1:80', 'https://[::1]:443')
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http{'s' * secure}://{f'[{name}]' if ':' in name else name}:{port}"


def tls_context(cert: str | Path | None, key: str | Path | None) -> ssl.SSLContext | None:
    """Return what makes connections private; None without a certificate."""
    if cert is None:
        if key is not None:
            raise WhenceError("a key is for a certificate: give that, too")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise WhenceError(f"the certificate {cert} cannot be used: {error}") from None
    return context
