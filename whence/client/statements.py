"""What a script is made of, as far as a client must know: whether it may be sent again."""

from __future__ import annotations

import re

_SKIPPED = re.compile(
    r"""
    \s+ | --[^\n]* | /\*.*?\*/      # spaces and comments
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|;", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")
WRITES = {"INSERT": "inserted", "DELETE": "deleted", "UPDATE": "updated"}


def first_words(sql: str) -> list[str]:
    """Return the first word of each statement of a script, in capitals.

    >>> first_words("INSERT INTO a VALUES (';'); -- delete\\n select 1;")
    ['INSERT', 'SELECT']
    """
    found, start = list[str](), 0
    ends = [match.start() for match in _QUOTED.finditer(sql) if match[0] == ";"]
    for end in [*ends, len(sql)]:
        at = start
        while (skipped := _SKIPPED.match(sql, at)) is not None:
            at = skipped.end()
        word = _WORD.match(sql, at, end)
        if at < end:
            found.append(word[0].upper() if word else "?")
        start = end + 1
    return found
