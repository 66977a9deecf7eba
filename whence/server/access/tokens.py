"""Tokens: who a caller is, by a secret that only the caller has.

The law: a token is shown once, when it is made; the file has its SHA-256 alone, and no message, log line or repr has a
token. A refusal never says which part was wrong. The file may be changed while a server runs: tokens are added, renewed
and revoked in place, and a file that cannot be read leaves what was known before.

A line of the file is `who sha256:<hex> [expires <ISO time>]`; `#` begins a comment. One `who` may have several tokens,
so that a new one is given out before the old one is removed. As with ssh's authorized_keys, a file that others may
write is refused; one that others may read is only warned of, since a hash of 32 random bytes is not guessed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from whence.model.errors import AuthenticationError, DataError, StorageError
from whence.state.disk import storage_error

log = logging.getLogger("whence")

PREFIX = "whence_"
OWNER = "owner"
"""Who the printed token of a server without a token file is for."""

_RANDOM_BYTES = 32
_LONGEST = 200  # characters of a token or a `who`
_LOOK_EVERY = 1.0  # seconds between two looks at the file
_LARGEST = 16 << 20  # bytes of a token file
_REFUSED = "the token is missing, wrong or expired"
_LINE = re.compile(r"(?P<who>\S+)\s+sha256:(?P<hex>[0-9a-fA-F]{64})(?:\s+expires\s+(?P<expires>\S+))?")
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who presented a valid token, and until when it is valid, in seconds since 1970; None is for ever."""

    who: str
    expires: float | None = None
    digest: bytes = field(default=b"", repr=False)  # of the token, to see whether it was revoked

    def is_expired(self, now: float) -> bool:
        """Return whether the token's time is up."""
        return self.expires is not None and now >= self.expires


class Tokens:
    """The tokens that a server accepts: those of a file, or without one a single token for the owner.

    >>> tokens = Tokens(None)
    >>> tokens.check(tokens.printed())
    Caller(who='owner', expires=None)
    """

    def __init__(self, path: str | Path | None, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = None if path is None else Path(path), now
        self._guard = threading.Lock()
        self._known: tuple[Caller, ...] = ()
        self._printed: str | None = None
        self._looked = self._now()
        self._signature: tuple[int, ...] | None = None
        self.version = 0
        """Rises whenever tokens have come or gone, so that a server looks at its connections again."""
        if self._path is not None:
            self._signature = _signature(self._path)
            self._known = tuple(read_tokens(self._path))

    def __repr__(self) -> str:
        return f"<tokens: {len(self._known)} of {'memory' if self._path is None else self._path}>"

    @property
    def owner(self) -> str | None:
        """The `who` that may do everything: of a server without a token file, whose token is printed; else nobody."""
        return OWNER if self._path is None else None

    def printed(self) -> str:
        """Return the token of a server without a file, to be shown to who starts it; it is made with the first call."""
        if self._path is not None:
            raise DataError(f"the tokens are those of {self._path}: make one with make_token")
        with self._guard:
            if self._printed is None:
                self._printed = _new_token()
                self._known = (Caller(OWNER, None, _digest(self._printed)),)
                self.version += 1
            return self._printed

    def check(self, token: object) -> Caller:
        """Return who a token belongs to; AuthenticationError if it is none that is valid now."""
        self.refresh()
        text = token if isinstance(token, str) and len(token) <= _LONGEST else ""
        found, given = None, _digest(text)
        for caller in self._known:  # all of them, so that the time says nothing about which one is alike
            if hmac.compare_digest(caller.digest, given):
                found = caller
        if not text or found is None or found.is_expired(self._now()):
            raise AuthenticationError(_REFUSED)
        return found

    def renew(self, caller: Caller, token: object) -> Caller:
        """Return the caller with a new token of the same `who`, presented over an open connection."""
        found = self.check(token)
        if found.who != caller.who:
            raise AuthenticationError(_REFUSED)
        return found

    def is_valid(self, caller: Caller) -> bool:
        """Return whether a caller's token still is: neither expired nor revoked."""
        self.refresh()
        if caller.is_expired(self._now()):
            return False
        return any(hmac.compare_digest(known.digest, caller.digest) for known in self._known if known.who == caller.who)

    def refresh(self) -> None:
        """Read the file again if it has changed, but look at it no more than once a second."""
        now = self._now()
        if self._path is None or 0 <= now - self._looked < _LOOK_EVERY:
            return
        with self._guard:
            self._looked = now
            try:
                signature = _signature(self._path)
                if signature == self._signature:
                    return
                known = tuple(read_tokens(self._path))
            except (StorageError, DataError) as error:
                log.error("tokens are as they were before: %s", error)
                return
            self._signature = signature
            if known != self._known:
                self._known = known
                self.version += 1
                log.info("tokens read again from %s: %d", self._path, len(known))


def read_tokens(path: str | Path) -> list[Caller]:
    """Return whose tokens a file has; DataError names the line that is none, StorageError a file that cannot be used.

    >>> from pathlib import Path
    >>> token = make_token("tokens", "ann", expires=4e9)
    >>> [(one.who, one.expires) for one in read_tokens("tokens")], token in Path("tokens").read_text()
    ([('ann', 4000000000.0)], False)
    """
    path = Path(path)
    text, mode = _read(path)
    _check_mode(path, mode)
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        said = _COMMENT.sub("", line).strip()
        if said:
            found.append(_read_line(said, f"{path}, line {number}"))
    if text and not text.endswith("\n"):
        raise DataError(f"{path}, line {number}: the line has no end, so it may not be whole; end it with a new line")
    return found


def make_token(path: str | Path, who: str, expires: float | None = None) -> str:
    """Add a token for `who` to a file, which is made if it is not there, readable by its owner only; return the token,
    which nothing can show again. It is valid until `expires`, in seconds since 1970."""
    path = Path(path)
    _check_who(who)
    until = "" if expires is None else f" expires {_write_time(expires)}"
    token = _new_token()
    with _rewriting(path) as lines:
        lines.append(f"{who} sha256:{_digest(token).hex()}{until}")
    return token


def remove_token(path: str | Path, who: str, token: str | None = None) -> int:
    """Remove the tokens of `who` from a file, or only one of them; return how many there were. A server that uses the
    file ends the connections that go by them."""
    path, digest = Path(path), None if token is None else _digest(token)
    if not path.exists():
        raise StorageError(f"{path}: there is no token file here")
    removed = 0
    with _rewriting(path) as lines:
        kept = []
        for number, line in enumerate(lines, 1):
            said = _COMMENT.sub("", line).strip()
            caller = _read_line(said, f"{path}, line {number}") if said else None
            if caller is not None and caller.who == who and digest in (None, caller.digest):
                removed += 1
            else:
                kept.append(line)
        lines[:] = kept
    return removed


def _new_token() -> str:
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _check_who(who: str) -> None:
    plain = isinstance(who, str) and 0 < len(who) <= _LONGEST and who.isprintable()
    if not plain or who == "*" or who.startswith("#") or any(c.isspace() for c in who):
        raise DataError(
            "a token is for a name of up to 200 characters without spaces, which is not * and has no # first"
        )


def _read_line(said: str, where: str) -> Caller:
    """Read a line; a message has no part of it, since somebody may have written a token there."""
    match = _LINE.fullmatch(said)
    if match is None:
        raise DataError(f"{where}: expected `who sha256:<64 hex digits> [expires <ISO time>]`")
    try:
        _check_who(match["who"])
        expires = None if match["expires"] is None else _read_time(match["expires"])
    except (DataError, ValueError, OverflowError):
        raise DataError(f"{where}: this is no name, or no time such as 2027-01-31T12:00:00Z") from None
    return Caller(match["who"], expires, bytes.fromhex(match["hex"]))


def _read_time(text: str) -> float:
    moment = dt.datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp()


def _write_time(seconds: float) -> str:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
    except (TypeError, ValueError, OverflowError, OSError):
        raise DataError("expires is a time in seconds since 1970, before the year 10000") from None


# -- the file ----------------------------------------------------------------------------------------------------------


def _signature(path: Path) -> tuple[int, ...]:
    """Return what changes with every change of a file."""
    try:
        now = path.stat()
    except OSError as error:
        raise storage_error(path, "look at the tokens", error) from None
    return now.st_mtime_ns, now.st_size, now.st_ino, now.st_mode


def _read(path: Path) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(_LARGEST + 1)
    except OSError as error:
        raise storage_error(path, "read the tokens", error) from None
    if len(content) > _LARGEST:
        raise DataError(f"{path}: more than {_LARGEST:,} bytes of tokens")
    try:
        return content.decode(), mode
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {number}: this is not UTF-8") from None


def _check_mode(path: Path, mode: int) -> None:
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(f"{path}: others may write to this file, so its tokens do not count: chmod 600 {path}")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("%s: others may read this file: chmod 600 %s", path, path)


@contextmanager
def _rewriting(path: Path) -> Iterator[list[str]]:
    """Change the lines of a file: readers see the file before or after it, and writers take turns."""
    try:
        with _locked(path) as (text, mode):
            if text:
                _check_mode(path, mode)
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            yield lines
            _replace(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise storage_error(path, "write the tokens", error) from None


@contextmanager
def _locked(path: Path) -> Iterator[tuple[str, int]]:
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            if os.fstat(number).st_ino == path.stat().st_ino:  # else another has replaced it meanwhile
                yield _read(path)
                return
        finally:
            os.close(number)


def _replace(path: Path, content: bytes) -> None:
    path = path.resolve()  # a link stays one
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
