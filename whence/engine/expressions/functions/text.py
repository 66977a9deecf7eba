"""Text functions, computed once per distinct tuple of arguments; positions count from 1, and characters are code
points."""

from __future__ import annotations

import os
import re
import threading
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from whence.engine.expressions.functions.common import Strict, each
from whence.model.codes import Codes, Dictionary, decode_value, encode_value, format_value
from whence.model.errors import EvaluationError
from whence.plan.algebra.expressions import Call

_LONGEST = 100_000_000  # characters of a text that a function makes


@lru_cache(maxsize=1024)
def _pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """Compile a LIKE pattern to a regular expression that never tries a text twice.

    The first place where what follows a % fits is as good as any later one, but for the last part, which must end the
    text: so every part but that is an atomic group."""
    parts, chars = [""], iter(pattern)
    for char in chars:
        if escape and char == escape:
            follower = next(chars, None)
            if follower is None:
                raise EvaluationError(f"LIKE pattern {format_value(pattern)} ends in its escape character")
            parts[-1] += re.escape(follower)
        elif char == "%":
            parts.append("")
        else:
            parts[-1] += "." if char == "_" else re.escape(char)
    first, *others = parts
    last = f".*{others.pop()}" if others else ""
    middle = "".join(f"(?>.*?{part})" for part in others if part)
    return re.compile(first + middle + last, re.DOTALL)


def _like(text: str, pattern: str, escape: str = "") -> bool:
    return _pattern(pattern, escape).fullmatch(text) is not None


def _ilike(text: str, pattern: str, escape: str = "") -> bool:
    return _like(_lower(text), _lower(pattern), escape)


def _lower(text: str) -> str:
    """Return the text with each character in lower case by itself, as DuckDB does: a final sigma is a sigma."""
    return text.lower() if text.isascii() else "".join(char.lower()[0] for char in text)


def _upper(text: str) -> str:
    """Return the text with each character in upper case by itself: what would become several stays, but for ß."""
    return text.upper() if text.isascii() else "".join(map(_upper_char, text))


@lru_cache(maxsize=4096)
def _upper_char(char: str) -> str:
    if char == "ß":
        return "ẞ"
    return next((found for found in (char.upper(), char.title()) if len(found) == 1), char)


def _reverse(text: str) -> str:
    """Return the text backwards, with combining marks and emoji sequences kept whole: DuckDB knows which those are."""
    if text.isascii():
        return text[::-1]
    place = os.getpid(), threading.get_ident()
    if place not in _connections:
        import duckdb

        _connections[place] = duckdb.connect(":memory:", config={"threads": 1})
    found: str = _connections[place].execute("SELECT reverse(?)", [text]).fetchone()[0]
    return found


_connections: dict[tuple[int, int], Any] = {}  # of DuckDB: one serves one thread at a time, and no forked child


@cache
def _blanks() -> str:
    """Return the characters that TRIM takes away: Unicode's spaces, but no tabs or line ends."""
    return "".join(filter(lambda char: unicodedata.category(char) == "Zs", map(chr, range(0x10000))))


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start < 0:
        start = max(len(text) + start, 0) + 1 if len(text) + start >= 0 else len(text) + start + 1
    first = start - 1
    if length is None:
        return text[max(first, 0) :]
    if length < 0:
        first, length = first + length, -length
    return text[max(first, 0) : max(first + length, 0)]


def _left(text: str, n: int) -> str:
    return text[:n] if n >= 0 else text[: max(len(text) + n, 0)]


def _right(text: str, n: int) -> str:
    if n >= 0:
        return text[len(text) - n :] if n < len(text) else text
    return text[-n:]


def _checked(length: int) -> None:
    if length > _LONGEST:
        raise EvaluationError(f"a text of {length:,} characters is too long; at most {_LONGEST:,} are made")


def _concat(*parts: str) -> str:
    _checked(sum(map(len, parts)))
    return "".join(parts)


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    _checked(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _repeat(text: str, n: int) -> str:
    _checked(len(text) * max(n, 0))
    return text * max(n, 0)


def _pad(text: str, width: int, fill: str, left: bool) -> str:
    width = max(width, 0)
    _checked(width)
    missing = width - len(text)
    if missing <= 0:
        return text[:width]
    if not fill:
        raise EvaluationError("insufficient padding: the fill is empty")
    extra = (fill * (missing // len(fill) + 1))[:missing]
    return extra + text if left else text + extra


def _split_part(text: str, separator: str, n: int) -> str:
    parts = text.split(separator) if separator else list(text)
    if n < 0:
        n += len(parts) + 1
    return parts[n - 1] if 1 <= n <= len(parts) else ""


def _starts(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "||": _concat,
    "like": _like,
    "ilike": _ilike,
    "lower": _lower,
    "upper": _upper,
    "length": len,
    "strlen": lambda s: len(s.encode()),
    "substring": _substring,
    "trim": lambda s, chars=None: s.strip(_blanks() if chars is None else chars),
    "ltrim": lambda s, chars=None: s.lstrip(_blanks() if chars is None else chars),
    "rtrim": lambda s, chars=None: s.rstrip(_blanks() if chars is None else chars),
    "replace": _replace,
    "strpos": lambda s, part: s.find(part) + 1,
    "left": _left,
    "right": _right,
    "starts_with": _starts,
    "ends_with": lambda s, part: s.endswith(part),
    "contains": lambda s, part: part in s,
    "reverse": _reverse,
    "repeat": _repeat,
    "lpad": lambda s, n, fill=" ": _pad(s, n, fill, True),
    "rpad": lambda s, n, fill=" ": _pad(s, n, fill, False),
    "split_part": _split_part,
}


def _build(function: Callable[..., Any]) -> Callable[[Call, Dictionary], Strict]:
    def build(call: Call, dictionary: Dictionary) -> Strict:
        types = [a.type for a in call.args]

        def one(*codes: int) -> int:
            values = [decode_value(c, t, dictionary) for c, t in zip(codes, types, strict=True)]
            return encode_value(function(*values), call.type, dictionary)

        def apply(*columns: Codes) -> Codes:
            return each(one, list(columns), len(columns[0]))

        return apply

    return build


OPS: dict[str, Callable[[Call, Dictionary], Strict]] = {name: _build(f) for name, f in _FUNCTIONS.items()}
