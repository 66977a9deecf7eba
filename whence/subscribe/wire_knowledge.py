"""Knowledge and horizons as they are sent: plain values, without the names of streams.

A horizon is named by the number of its query and that of the source in the query's knowledge, such as "0.1". It is a
list: the value that nothing more comes below, whether it is passed itself, and keys that were closed since.

The law: `read_knowledge(plain_knowledge(k))` evaluates like `k`, and `move_horizons` leads to the horizons that were
sent, for every type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from whence.model.errors import DataError
from whence.plan.knowledge.model import (
    Branch,
    Doubt,
    Growing,
    Growth,
    RelationKnowledge,
    Shown,
    SourceFacts,
    Term,
    Unknown,
)
from whence.subscribe.horizons import Bound, Key, KnownHorizons
from whence.subscribe.plain import column_from_plain, plain_value, type_of


def plain_knowledge(knowledge: RelationKnowledge) -> Any:
    """Return knowledge as it is sent."""
    named = tuple(
        msgspec.structs.replace(source, name=str(number), column_name="", key_name="")
        for number, source in enumerate(knowledge.sources)
    )
    return msgspec.to_builtins(msgspec.structs.replace(knowledge, sources=named))


def read_knowledge(given: Any) -> RelationKnowledge | None:
    """Return knowledge that was sent; None if nothing is known."""
    if given is None:
        return None
    try:
        return msgspec.convert(given, RelationKnowledge)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise DataError(f"knowledge that cannot be read: {error!s:.200}") from None


def outline(knowledge: RelationKnowledge) -> RelationKnowledge:
    """Return what is left for somebody who may not read what a query stands on: in which direction its columns move.

    Neither a value that the query compares with is in it, nor what its sources promise, nor what would close a row."""
    cells = tuple(_outline_term(term) for term in knowledge.cells[: len(knowledge.columns)])
    presence = (Doubt("BOOLEAN", 0),) if knowledge.presence else ()
    return RelationKnowledge(
        columns=knowledge.columns,
        cells=cells,
        presence=presence,
        key=tuple(column for column in knowledge.key if column < len(knowledge.columns)),
        growth=0,
        growths=(Growth((), (Branch((0,)),)),),
        sources=(SourceFacts("", is_stream=False),),
        returns=True,
        text=knowledge.text,
    )


def _outline_term(term: Term) -> Term:
    match term:
        case Shown():
            return term
        case Growing(type, index, function, _, _) if function in ("up", "down", "count", "min", "max"):
            return Growing(type, index, function, 0)
    return Unknown(term.type)


def plain_horizons(
    part: int, knowledge: RelationKnowledge, bounds: Mapping[int, Bound], closed: Mapping[int, Sequence[Key]]
) -> dict[str, Any]:
    """Return horizons of a query that have moved, as they are sent.

    >>> from whence.plan.knowledge.model import SourceColumn
    >>> known = RelationKnowledge((), (), (), (), 0, (), (SourceFacts("s", (SourceColumn("DATE"),), 0),), False, ())
    >>> import datetime as dt
    >>> plain_horizons(2, known, {0: (dt.date(2026, 11, 18), False)}, {})
    {'2.0': ['2026-11-18', False]}
    """
    found = dict[str, Any]()
    for use in sorted({*bounds, *closed}):
        value, is_passed = bounds.get(use, (None, False))
        keys = [[plain_value(value) for value in key] for key in closed.get(use, ())]
        found[f"{part}.{use}"] = [plain_value(value), is_passed, *([keys] if keys else [])]
    return found


def move_horizons(
    horizons: Sequence[KnownHorizons], knowledge: Sequence[RelationKnowledge | None], given: Mapping[str, Any] | None
) -> list[KnownHorizons]:
    """Return the horizons of each query after a message."""
    found = list(horizons)
    for name, moved in (given or {}).items():
        try:
            part, use = (int(number) for number in name.split("."))
            known = knowledge[part]
            if known is None:
                continue
            source, (value, is_passed, *keys) = known.sources[use], moved
            bounds, closed = dict[int, Bound](), dict[int, list[Key]]()
            if value is not None and source.ordered is not None:
                bounds[use] = _read(value, source.columns[source.ordered].type), bool(is_passed)
            if keys:
                types = [source.columns[column].type for column in source.closes]
                closed[use] = [tuple(_read(v, t) for v, t in zip(key, types, strict=True)) for key in keys[0]]
        except (ValueError, TypeError, IndexError):
            raise DataError(f"a horizon that cannot be read: {name!r:.60}") from None
        found[part] = found[part].moved(bounds, closed)
    return found


def _read(value: Any, type: str) -> Any:
    return None if value is None else column_from_plain([value], type_of(type))[0]
