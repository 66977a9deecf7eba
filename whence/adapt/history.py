"""What was decided of running plans, and why: the last switches, and advice that was not followed because it was only
asked for. A history is a part of what is durable, as records of plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from whence.plan.algebra.join_paths import JoinOrders

MOST = 100  # entries that are kept


@dataclass(frozen=True)
class PlanSwitch:
    """A running join got other paths, or would have: `taken` says which."""

    epoch: int  # after which
    time: int  # microseconds since 1970
    operator: str  # its fingerprint
    before: JoinOrders
    after: JoinOrders
    reason: str
    gain: float = 0.0  # the part of the join's work that is saved
    taken: bool = True

    def record(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def from_record(record: dict[str, Any]) -> PlanSwitch:
    """Return what `record` gave.

    >>> from_record(PlanSwitch(3, 0, "f", ((1,), (0,)), ((1,), (0,)), "why").record()).after
    ((1,), (0,))
    """
    return PlanSwitch(**record | {side: plan_from(record[side]) for side in ("before", "after")})


def plan_from(plan: Iterable[Iterable[int]]) -> JoinOrders:
    """Return orders that were written as lists."""
    return tuple(tuple(int(step) for step in path) for path in plan)


def describe_path(first: int, path: Iterable[int]) -> str:
    """Return a path for people, inputs counted from one.

    >>> describe_path(0, (2, ~1))
    '1: 3, 2 in order'
    """
    return f"{first + 1}: " + ", ".join(f"{step + 1}" if step >= 0 else f"{~step + 1} in order" for step in path)


class PlanHistory:
    """The last decisions, oldest first."""

    def __init__(self) -> None:
        self._entries: list[PlanSwitch] = []

    def add(self, switch: PlanSwitch) -> None:
        """Note a decision. Advice that was given before is not noted again."""
        if not switch.taken and any(_is_same(switch, old) for old in self._entries):
            return
        self._entries = [*self._entries, switch][-MOST:]

    def of(self, operators: Iterable[str]) -> list[PlanSwitch]:
        """Return the decisions about some operators."""
        wanted = set(operators)
        return [entry for entry in self._entries if entry.operator in wanted]

    @property
    def switches(self) -> int:
        return sum(entry.taken for entry in self._entries)

    def records(self) -> list[dict[str, Any]]:
        """Return all that was taken, as plain values."""
        return [entry.record() for entry in self._entries if entry.taken]

    def restore(self, records: Iterable[dict[str, Any]]) -> None:
        """Be as `records` said."""
        self._entries = [from_record(record) for record in records]


def _is_same(one: PlanSwitch, other: PlanSwitch) -> bool:
    return not other.taken and (one.operator, one.before, one.after) == (other.operator, other.before, other.after)
