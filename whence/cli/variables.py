"""Values for the parameters of SQL, as people type them: `--param NAME=VALUE`, and the variables of the shell.

A value is a literal as in SQL (5, 2.50, 'text', TRUE, NULL, DATE '2024-05-01'), else text as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import typer
from rich.text import Text

from whence.model.errors import WhenceError
from whence.model.text import from_text
from whence.model.types import DATE, INTERVAL, TIMESTAMP
from whence.sql.parse import parse

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", re.ASCII)
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_TYPED = re.compile(r"(DATE|TIMESTAMP|INTERVAL)\s*'((?:[^']|'')*)'", re.IGNORECASE)
_WORDS = {"null": None, "true": True, "false": False}
_TYPES = {"date": DATE, "timestamp": TIMESTAMP, "interval": INTERVAL}
USAGE = r"\set NAME VALUE sets a variable, for :NAME in SQL; \set shows all, \unset NAME forgets one"


def read_value(text: str) -> Any:
    """Read a typed value.

    >>> read_value("5"), read_value("2.50"), read_value("'5'"), read_value("it's"), read_value("NULL")
    (5, Decimal('2.50'), '5', "it's", None)
    >>> read_value("date '2024-05-01'")
    datetime.date(2024, 5, 1)
    """
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if _DOUBLE.fullmatch(text):
        return float(text)
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace("''", "'")
    if typed := _TYPED.fullmatch(text):
        type = _TYPES[typed[1].lower()]
        try:
            return from_text(typed[2], type)
        except (ValueError, ArithmeticError):
            raise WhenceError(f"{typed[2]!r} cannot be read as {type}") from None
    return text


def read_params(texts: list[str] | None) -> dict[str, Any]:
    """Return the values that options `--param NAME=VALUE` give.

    >>> read_params(["who=ada", "n=3"])
    {'who': 'ada', 'n': 3}
    """
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--param")
        if name.strip() in found:
            raise typer.BadParameter(f"{name.strip()} is given twice", param_hint="--param")
        found[name.strip()] = read_value(value)
    return found


def used_params(sql: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that a script uses.

    >>> used_params("SELECT :a + $b; SELECT :c", {"a": 1, "b": 2, "d": 4})
    {'a': 1, 'b': 2}
    """
    names = dict.fromkeys(parameter.key for statement in parse(sql) for parameter in statement.parameters)
    return {name: variables[name] for name in names if isinstance(name, str) and name in variables}


def set_variable(variables: dict[str, Any], text: str) -> Text:
    r"""Carry out `\set` with what follows it; return what to print.

    >>> variables = {}
    >>> str(set_variable(variables, "who 'ada'")), variables, str(set_variable(variables, ""))
    ("who = 'ada'", {'who': 'ada'}, "who = 'ada'")
    """
    name, _, value = text.strip().partition(" ")
    if not name:
        lines = [_shown(name, variables[name]) for name in sorted(variables)]
        return Text("\n".join(lines) if lines else f"no variables; {USAGE}")
    if not name.isidentifier() or not value.strip():
        raise WhenceError(USAGE)
    variables[name] = read_value(value)
    return Text(_shown(name, variables[name]))


def unset_variable(variables: dict[str, Any], name: str) -> None:
    r"""Carry out `\unset NAME`."""
    if name.strip() not in variables:
        raise WhenceError(f"there is no variable {name.strip()!r}; {USAGE}" if name.strip() else USAGE)
    del variables[name.strip()]


def _shown(name: str, value: Any) -> str:
    return f"{name} = {'NULL' if value is None else repr(value) if isinstance(value, str) else value}"
