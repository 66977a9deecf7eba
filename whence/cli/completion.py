"""What Tab offers in the SQL shell: keywords, tables, views, columns, meta commands, names of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.runtime.database import Database

KEYWORDS = """
    ALL AND AS ASC BETWEEN BIGINT BOOLEAN BY CASE CAST COUNT CREATE CROSS DATE DECIMAL DELETE DESC DESCRIBE DISTINCT
    DOUBLE DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FROM FULL GROUP HAVING IN INSERT INT INTEGER INTERSECT INTERVAL
    INTO IS JOIN KEY LEFT LIKE LIMIT MAX MIN NOT NULL OFFSET ON OR ORDER OUTER OVER PRIMARY RECURSIVE REPLACE RIGHT
    SELECT SET SHOW STREAM STREAMS SUM TABLE TABLES TEXT THEN TIMESTAMP TRUE UNION UPDATE USING VALUES VIEW VIEWS
    WHEN WHERE WITH
"""
DELIMITERS = " \t\n(),;=<>+*|%!:[]"
"""Characters that end a word: those of names of files, of \\commands and of table.column do not. Neither do quotes, or
readline would close one after a folder."""

_BEFORE_RELATIONS = {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "VIEW", "DESCRIBE", "EXPLAIN"}
_OF_RELATIONS = ("\\d", "\\e", "\\why", "\\trace")
_OF_FILES = ("\\i",)
_SWITCHES = ("\\timing", "\\x")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALIASED = r"\b({names})\s+(?:AS\s+)?({alias})\b"


def candidates(db: Database, before: str, word: str, commands: Iterable[str]) -> list[str]:
    r"""Return what a word may become: the one that is being typed, behind the rest of the statement.

    >>> import whence
    >>> db = whence.open(); _ = db.execute("CREATE TABLE link (src TEXT, dst TEXT)")
    >>> candidates(db, "SELECT * FROM ", "li", []), candidates(db, "SELECT l.", "l.s", ["\\d"])
    (['link'], [])
    >>> candidates(db, "SELECT s FROM link WHERE ", "sr", []), candidates(db, "", "sel", [])
    (['src'], ['select '])
    """
    if word.startswith(("'", '"')):
        return [word[0] + found for found in candidates(db, f"{before}{word[0]}", word[1:], commands)]
    if before.rstrip().endswith("'") and not before.lstrip().startswith("\\"):
        return []  # a string
    if before.lstrip().startswith("\\") or (not before.strip() and word.startswith("\\")):
        return _of_command(db, before.lstrip(), word, commands)
    relations = [*db.tables, *db.streams, *db.views]
    if "." in word:
        return _of_qualified(db, before, word, relations)
    words = _WORD.findall(before)
    if words and words[-1].upper() in _BEFORE_RELATIONS:
        return _matching(relations, word)
    named = [name for name in dict.fromkeys(map(str.lower, words)) if name in relations] or relations
    columns = [column for name in named for column in db[name].columns]
    lower = word.islower()
    keywords = [(keyword.lower() if lower else keyword) + " " for keyword in KEYWORDS.split()]
    return _matching([*columns, *relations], word) + _matching(keywords, word if lower else word.upper())


def _of_command(db: Database, before: str, word: str, commands: Iterable[str]) -> list[str]:
    """Return what may follow in a meta command."""
    if not before:
        return _matching([f"{command} " for command in commands], word)
    command, *given = before.split()
    relations = [*db.tables, *db.streams, *db.views]
    if command in _OF_FILES:
        return _files(word)
    if command in _SWITCHES:
        return _matching(["on", "off"], word)
    if command == "\\copy":
        if re.search(r"\s(FROM|TO)\s+'?$", before, re.IGNORECASE):
            return _files(word)
        return _matching([*relations, "FROM ", "TO "] if given else relations, word)
    if command in _OF_RELATIONS:
        if not given:
            return _matching(relations, word)
        return _matching([f"{column}=" for column in _columns(db, given[0])], word)
    if command == "\\what-if":
        return candidates(db, before.partition(" ")[2].lstrip(), word, ())
    return []


def _of_qualified(db: Database, before: str, word: str, relations: list[str]) -> list[str]:
    """Return the columns of the table, view or alias before a dot."""
    owner, _, column = word.rpartition(".")
    name = owner.lower()
    if name not in relations:
        names = "|".join(map(re.escape, relations))
        aliased = re.search(_ALIASED.format(names=names, alias=re.escape(owner)), before, re.IGNORECASE)
        name = aliased[1].lower() if aliased and names else ""
    return [f"{owner}.{found}" for found in _matching(_columns(db, name), column)]


def _columns(db: Database, name: str) -> list[str]:
    return db[name].columns if name in (*db.tables, *db.streams, *db.views) else []


def _files(word: str) -> list[str]:
    """Return the paths that a word begins; folders end in a slash."""
    folder, _, name = word.rpartition("/")
    shown = f"{folder}/" if "/" in word else ""
    try:
        with os.scandir(Path(shown or ".").expanduser()) as entries:
            found = [f"{shown}{entry.name}{'/' * entry.is_dir()}" for entry in entries]
    except OSError:
        return []
    hidden = name.startswith(".")
    return sorted(
        path for path in found if path.startswith(word) and (hidden or not path[len(shown) :].startswith("."))
    )


def _matching(names: Iterable[str], word: str) -> list[str]:
    return sorted({name for name in names if name.lower().startswith(word.lower())})
