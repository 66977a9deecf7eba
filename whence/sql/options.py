"""The options of `WITH (name = value)`: their names, where they may stand, and the values they take.

An option that is not in the table is refused, so that a misspelt one is never ignored. Options of
recursion are accepted on every view: a view may become part of a recursion through another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from whence.model.text import read_interval
from whence.model.types import Kind, Schema
from whence.plan.algebra.program import Lifetime, Placement, Table
from whence.plan.rewrite.select_aggregates import is_spelled_out
from whence.plan.streams.model import MemoryLimit, Retention
from whence.sql.position import did_you_mean

Target = Literal["table", "stream", "view", "source"]
_DIGITS = 15  # of a whole number
_LONGEST = 2**62  # microseconds, so that any time plus a duration fits a code
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)")
_BYTES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Option:
    """An option: one of some keywords, or a value of some kind."""

    name: str
    words: tuple[str, ...] = ()
    kind: Literal[
        "number",
        "duration",
        "column",
        "interval",
        "retention",
        "selection",
        "text",
        "memory",
        "model",
        "schedule",
        "bound",
    ] = "number"


_OPTIONS: dict[Target, tuple[Option, ...]] = {
    "table": (
        Option("ttl", kind="duration"),
        Option("ttl_column", kind="column"),
        Option("partition_by", kind="column"),
        Option("memory", kind="memory"),
        Option("keep", ("heeb", "prob", "random", "lru", "lfu")),
        Option("model", kind="model"),
        Option("lifetime"),
    ),
    "stream": (
        Option("retain", kind="retention"),
        Option("partition_by", kind="column"),
        Option("ordered", kind="column"),
        Option("closes", kind="text"),
    ),
    "view": (
        Option("policy", ("support", "dred")),
        Option("recursion_limit"),
        Option("recursion_rows"),
        Option("aggregate_selection", ("on", "off", "one"), "selection"),
        Option("partition", ("broadcast", "exchange", "one")),
        Option("maintain", ("absorption", "relative")),
        Option("propagate", kind="interval"),
        Option("provenance", ("auto", "witnesses", "bdd", "lineage", "covering", "none")),
        Option("provenance_of", kind="column"),
        Option("encoding", ("adaptive", "ids", "intervals", "deltas", "dictionary")),
        Option("retain", kind="retention"),
        Option("memory", kind="memory"),
        Option("keep", ("heeb", "prob", "life", "random", "lru", "lfu")),
        Option("model", kind="model"),
        Option("lifetime"),
        Option("pool", kind="text"),
        Option("adapt", ("off", "advise", "on")),
        Option("respond_within", kind="bound"),
        Option("refresh", kind="schedule"),
    ),
    "source": (
        Option("token_file", kind="text"),
        Option("ca_file", kind="text"),
        Option("ask", ("rows", "results", "all")),
        Option("margin", kind="text"),
        Option("quench_after", kind="duration"),
        Option("wait", kind="duration"),
        Option("query", kind="text"),  # this one and the next are for results, see subscribe/results.py
        Option("sources", kind="text"),
    ),
}
_LATER: dict[Target, tuple[str, ...]] = {
    "table": (),
    "stream": (),
    "view": (),
    "source": (),
}


def check_name(target: Target, name: str) -> None:
    """Raise ValueError if there is no such option.

    >>> check_name("view", "polcy")
    Traceback (most recent call last):
    ValueError: a view has no option "polcy"; did you mean "policy"? Its options are policy, recursion_limit, \
recursion_rows, aggregate_selection, partition, maintain, propagate, provenance, provenance_of, encoding, retain, \
memory, keep, model, lifetime, pool, adapt, respond_within, refresh
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
    """Convert the value for the planner; raise ValueError if the option does not take it.

    >>> read_value("view", "policy", "DRed")
    'dred'
    """
    (option,) = (o for o in _OPTIONS[target] if o.name == name)
    if option.words:
        if text.lower() not in option.words:
            listed = " or ".join(f"'{word}'" for word in option.words)
            if option.kind == "selection":
                if is_spelled_out(text):
                    return text.lower()
                listed += ", or spelled out, such as 'min(cost) by src, dst'"
            raise ValueError(f"there is no {name} {text!r}; it is {listed}")
        return text.lower()
    if option.kind == "column":
        return " ".join(text.lower().split())
    if option.kind == "text":
        return text.strip()
    if option.kind == "interval":
        return _propagate(name, text)
    if option.kind == "retention":
        return read_retention(text).text
    if option.kind == "memory":
        return read_memory(text).text
    if option.kind == "model":
        model, period = read_model(text)
        return model if period is None else f"{model} {period}"
    if option.kind == "bound":
        return f"{duration(name, text)} microseconds"
    if option.kind == "schedule":
        return _schedule(name, text)
    if option.kind == "duration":
        duration(name, text)
        return " ".join(text.split())
    return _whole(name, text)


def _propagate(name: str, text: str) -> str:
    """Read when maintained provenance is propagated: lazy, eager, or at an interval of time or of epochs."""
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


def _schedule(name: str, text: str) -> str:
    """Read how a view with respond_within is refreshed: naive, online, or planned for a number of epochs."""
    words = text.lower().split()
    if words in (["naive"], ["online"], ["planned"]):
        return words[0]
    if words[:2] == ["planned", "for"] and len(words) in (3, 4) and words[3:] in ([], ["epochs"]):
        return f"planned for {int(_whole(name, words[2]))} epochs"
    raise ValueError(f"{name} is 'online', 'naive', 'planned' or 'planned for 500 epochs', not {text!r}")


def _whole(name: str, text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ValueError(f"{name} must be a whole number above zero, not {text!r}")
    return text


def duration(name: str, text: str) -> int:
    """Return a length of time in microseconds; raise ValueError if it is none, or not above zero.

    >>> duration("ttl", "1 day 12 h")
    129600000000
    """
    try:
        if not any(char.isalpha() or char == ":" for char in text):
            raise ValueError(text)  # to SQL a bare number is one of seconds; here the unit must be said
        span = read_interval(text)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{name} must be a duration such as '60 s', '5 min' or '1 day 12 h', not {text!r}") from None
    if span.months:
        raise ValueError(f"{name} must be of a fixed length, and months and years are not: {text!r}; use days")
    if span.span <= 0:
        raise ValueError(f"{name} must be longer than nothing, not {text!r}")
    if span.span > _LONGEST:
        raise ValueError(f"{name} is too long: {text!r}")
    return span.span


def read_retention(text: str) -> Retention:
    """Read how much of a stream is kept; raise ValueError if the text does not say.

    >>> read_retention("10 min").micros, read_retention("64 MB").nbytes, read_retention("1000 rows").rows
    (600000000, 67108864, 1000)
    """
    words = " ".join(text.replace("_", "").replace(",", "").split())
    if words.lower() == "all":
        return Retention()
    amount = _AMOUNT.fullmatch(words)
    unit = amount.group(2).lower() if amount else ""
    if amount and unit in ("row", "rows"):
        return Retention(rows=int(_whole("retain", amount.group(1))), text=f"{amount.group(1)} rows")
    if amount and unit in _BYTES:
        nbytes = int(float(amount.group(1)) * _BYTES[unit])
        if not 0 < nbytes < 2**62:
            raise ValueError(f"retain must be more than nothing, and fit into memory: {text!r}")
        return Retention(nbytes=nbytes, text=words)
    try:
        return Retention(micros=duration("retain", words), text=words)
    except ValueError as failure:
        if "must be a duration" not in str(failure):
            raise
        known = "'1000 rows', '64 MB', '10 min' or 'all'"
        raise ValueError(f"retain is what of the stream is kept, such as {known}, not {text!r}") from None


def retain_option(options: tuple[tuple[str, str], ...]) -> Retention | None:
    """Return the retention that the options say, if any."""
    text = dict(options).get("retain")
    return None if text is None else read_retention(text)


def read_memory(text: str) -> Retention:
    """Read how much a join of streams keeps; raise ValueError if the text does not say.

    >>> read_memory("300 rows").rows, read_memory("64 MB").nbytes
    (300, 67108864)
    """
    try:
        found = read_retention(text)
    except ValueError:
        found = Retention()
    if found.rows is None and found.nbytes is None:
        raise ValueError(f"memory is what is kept at most, such as '300 rows' or '64 MB', not {text!r}")
    return found


_MODELS = ("auto", "stationary", "trend", "walk", "ar1", "seasonal")


def read_model(text: str) -> tuple[str, int | None]:
    """Read how join values go on, and the rows of a period; raise ValueError if the text does not say.

    >>> read_model("seasonal 365"), read_model("walk")
    (('seasonal', 365), ('walk', None))
    """
    name, _, period = text.lower().strip().partition(" ")
    if name not in _MODELS or ((name == "seasonal") != bool(period) and name != "auto"):
        known = ", ".join(f"'{model}'" for model in _MODELS[:-1])
        raise ValueError(f"model is {known} or 'seasonal' with the rows of a period, 'seasonal 365', not {text!r}")
    return name, int(_whole("model", period.strip())) if period else None


def memory_option(options: tuple[tuple[str, str], ...]) -> MemoryLimit | None:
    """Return how much the join of a view, or a lookup, keeps, and which rows, if the options limit it."""
    given = dict(options)
    if "memory" not in given:
        wrong = next((name for name in ("keep", "model", "lifetime", "pool") if name in given), None)
        if wrong is not None:
            raise ValueError(f"{wrong} says which rows are kept in bounded memory: say how many, with memory")
        return None
    kept, keep = read_memory(given["memory"]), given.get("keep", "heeb")
    wrong = next((name for name in ("model", "lifetime", "pool") if name in given and keep != "heeb"), None)
    if wrong is not None:
        raise ValueError(f"{wrong} is for keep = 'heeb', not for '{keep}'")
    model, period = read_model(given.get("model", "auto"))
    lifetime = float(given["lifetime"]) if "lifetime" in given else None
    pool = given.get("pool", "")
    return MemoryLimit(kept.rows, kept.nbytes, kept.text, keep, model, period, lifetime, pool)  # type: ignore[arg-type]  # read


def read_lookup(options: tuple[tuple[str, str], ...], table: Table) -> MemoryLimit | None:
    """Read how much a lookup keeps, if a table is one; raise ValueError if it cannot be."""
    limit = memory_option(options)
    if limit is None:
        return None
    if len(table.key) != 1:
        raise ValueError("memory makes a table a lookup: it needs a PRIMARY KEY of one column, to fetch rows by")
    if table.promises.checks:
        raise ValueError("memory makes a table a lookup, whose rows come from outside: leave CHECK out")
    if any(not column.nullable for at, column in enumerate(table.schema.columns) if at not in table.key):
        raise ValueError("memory makes a table a lookup: columns beside its key are NULL where there is no row outside")
    if "ttl_column" in dict(options):
        raise ValueError("rows of a lookup live from when they are fetched: leave ttl_column out")
    return limit


def read_placement(options: tuple[tuple[str, str], ...], table: Table) -> Placement | None:
    """Read where the rows of a table live among partitions, if it is said; raise ValueError if that is not possible."""
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
    """Read how long the rows of a table live, if it has a ttl; raise ValueError if its ttl_column does not fit."""
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
