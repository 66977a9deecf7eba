"""The options of `WITH (name = value)`: which there are, on what, and the values they take.

An option that is not in the table is refused, so that a misspelt one never passes for a wish that was heard. Options of
recursion are accepted on every view: a view may become part of a recursion through another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whence.model.types import Kind, Schema
from whence.plan.program import Lifetime, Placement, Table
from whence.sql.literals import parse_interval
from whence.sql.position import did_you_mean

Target = Literal["table", "view"]
_DIGITS = 15  # of a whole number
_LONGEST = 2**62  # microseconds, so that any time plus a duration fits a code


@dataclass(frozen=True)
class Option:
    """An option: one of some words, or, without any, what its kind says."""

    name: str
    words: tuple[str, ...] = ()
    kind: Literal["number", "duration", "column", "interval"] = "number"


_OPTIONS: dict[Target, tuple[Option, ...]] = {
    "table": (
        Option("ttl", kind="duration"),
        Option("ttl_column", kind="column"),
        Option("partition_by", kind="column"),
    ),
    "view": (
        Option("policy", ("support", "dred")),
        Option("recursion_limit"),
        Option("recursion_rows"),
        Option("aggregate_selection", ("on", "off")),
        Option("partition", ("broadcast", "exchange", "one")),
        Option("maintain", ("absorption", "relative")),
        Option("propagate", kind="interval"),
        Option("provenance", ("auto", "witnesses", "bdd")),
    ),
}
_LATER: dict[Target, tuple[str, ...]] = {
    "table": (),
    "view": ("refresh", "respond_within", "memory"),
}


def check_name(target: Target, name: str) -> None:
    """ValueError if there is no such option.

    >>> check_name("view", "polcy")
    Traceback (most recent call last):
    ValueError: a view has no option "polcy"; did you mean "policy"? Its options are policy, recursion_limit, \
recursion_rows, aggregate_selection, partition, maintain, propagate, provenance
    """
    known = [option.name for option in _OPTIONS[target]]
    if name in known:
        return
    if name in _LATER[target]:
        raise ValueError(f'the option "{name}" is not available yet')
    hint = did_you_mean(name, known) or "."
    listed = ", ".join(known)
    raise ValueError(f'a {target} has no option "{name}"{hint} Its options are {listed}')


def read_value(target: Target, name: str, text: str) -> str:
    """The value as the planner takes it; ValueError if the option does not take it.

    >>> read_value("view", "policy", "DRed")
    'dred'
    """
    (option,) = (o for o in _OPTIONS[target] if o.name == name)
    if option.words:
        if text.lower() not in option.words:
            listed = " or ".join(f"'{word}'" for word in option.words)
            raise ValueError(f"there is no {name} {text!r}; it is {listed}")
        return text.lower()
    if option.kind == "column":
        return text.lower()
    if option.kind == "interval":
        return _propagate(name, text)
    if option.kind == "duration":
        duration(name, text)
        return " ".join(text.split())
    return _whole(name, text)


def _propagate(name: str, text: str) -> str:
    """When maintained provenance is told of: lazy, eager, or an interval of time or of epochs."""
    words = text.lower().split()
    if words in (["lazy"], ["eager"]):
        return words[0]
    if len(words) == 2 and words[1] in ("epoch", "epochs"):
        return f"{int(_whole(name, words[0]))} epochs"
    try:
        return f"{duration(name, text)} microseconds"
    except ValueError:
        known = "'lazy', 'eager' or an interval such as '1 s' or '10 epochs'"
        raise ValueError(f"{name} is {known}, not {text!r}") from None


def _whole(name: str, text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ValueError(f"{name} must be a whole number above zero, not {text!r}")
    return text


def duration(name: str, text: str) -> int:
    """The microseconds of a length of time; ValueError if it is none, or not above zero.

    >>> duration("ttl", "1 day 12 h")
    129600000000
    """
    try:
        span = parse_interval(text)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{name} must be a duration such as '60 s', '5 min' or '1 day 12 h', not {text!r}") from None
    if span.months:
        raise ValueError(f"{name} must be of a fixed length, and months and years are not: {text!r}; use days")
    if span.span <= 0:
        raise ValueError(f"{name} must be longer than nothing, not {text!r}")
    if span.span > _LONGEST:
        raise ValueError(f"{name} is too long: {text!r}")
    return span.span


def read_placement(options: tuple[tuple[str, str], ...], table: Table) -> Placement | None:
    """Where the rows of a table are to live among partitions, if it says so; ValueError if that will not do."""
    text = dict(options).get("partition_by")
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if names == ["all"] and "all" not in table.schema.names:
        return Placement("all")
    if names == ["row"] and "row" not in table.schema.names:
        return Placement("hash", table.key or tuple(range(len(table.schema))))
    for name in names:
        if name not in table.schema.names:
            hint = did_you_mean(name, table.schema.names)
            raise ValueError(f'partition_by names "{name}", which the table does not have{hint}')
    columns = tuple(dict.fromkeys(table.schema.names.index(name) for name in names))
    for column in columns:
        if table.key and column not in table.key:
            other = table.schema.names[column]
            raise ValueError(f'partition_by may only name columns of the PRIMARY KEY, and "{other}" is none')
    return Placement("hash", columns)


def read_lifetime(options: tuple[tuple[str, str], ...], schema: Schema) -> Lifetime | None:
    """How long the rows of a table live, if it has a ttl; ValueError if its ttl_column will not do."""
    given = dict(options)
    ttl, column = given.get("ttl"), given.get("ttl_column")
    if column is None:
        return Lifetime(duration("ttl", ttl), None, ttl) if ttl is not None else None
    if ttl is None:
        raise ValueError("ttl_column says from when on a row lives, but there is no ttl to say how long")
    if column not in schema.names:
        hint = did_you_mean(column, schema.names)
        raise ValueError(f'ttl_column names "{column}", which the table does not have{hint}')
    at = schema.names.index(column)
    if schema.types[at].kind is not Kind.TIMESTAMP:
        raise ValueError(f'ttl_column must be a TIMESTAMP, and "{column}" is {schema.types[at]}')
    return Lifetime(duration("ttl", ttl), at, f"{ttl} after {column}")
