"""What EXPLAIN says of keys that many rows have: joins that divide them, and aggregates computed in two steps."""

from __future__ import annotations

from collections.abc import Iterator

from whence.model.codes import Dictionary, decode_value, format_value
from whence.plan.algebra import logical
from whence.plan.partitions.distribute import PlannedComponent
from whence.plan.partitions.heavy_keys import HeavyKeys, Key, RoutedJoin

_SHOWN = 5  # keys of a join


def two_steps(piece: PlannedComponent) -> Iterator[str]:
    """Yield the groups of aggregates of a component that each partition computes before rows are shipped, too."""
    for plan in piece.plans:
        for node in logical.walk(plan):
            if isinstance(node, logical.Aggregate) and isinstance(node.input, logical.Ship):
                first = node.input.input
                if isinstance(first, logical.Aggregate) and first.schema == node.schema:
                    yield ", ".join(node.schema.names[: len(node.keys)]) or "nothing"


def describe_heavy(join: RoutedJoin, heavy: HeavyKeys, dictionary: Dictionary) -> str:
    """Describe the heavy keys of a join in a line; return nothing if there are none."""
    if not heavy:
        return ""
    on = ", ".join(f"{a} = {b}" for a, b in zip(*join.columns, strict=True))
    said = [
        f"{_shown(keys, join, dictionary)} divided on the {side}, copied on the {other}"
        for keys, side, other in ((heavy.left, "left", "right"), (heavy.right, "right", "left"))
        if keys
    ]
    return f"heavy keys of the join on {on}: {'; '.join(said)}"


def _shown(keys: tuple[Key, ...], join: RoutedJoin, dictionary: Dictionary) -> str:
    def shown(key: Key) -> str:
        values = (decode_value(code, type, dictionary) for code, type in zip(key, join.types, strict=True))
        text = ", ".join("NULL" if value is None else format_value(value) for value in values)
        return f"({text})" if len(key) > 1 else text

    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(map(shown, keys[:_SHOWN])) + more
