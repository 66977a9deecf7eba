"""Limits of a recursion, and the error of one that reaches them."""

from __future__ import annotations

from dataclasses import dataclass

from whence.model.codes import Codes, Dictionary, decode_value
from whence.model.errors import RecursionLimitError
from whence.plan.recursion.rule_model import RuleRelation
from whence.plan.recursion.settings import DEPTH_LIMIT, EFFORT, TEXT


def described(relation: RuleRelation, cells: Codes, dictionary: Dictionary) -> str:
    """Name a row by its values and its relation."""
    pairs = zip(relation.schema.columns, cells.tolist(), strict=False)
    values = ", ".join(f"{c.name}={decode_value(code, c.type, dictionary)!r}" for c, code in pairs)
    return f"the row ({values}) of {relation.name}"


def no_end(view: str, met: str, cause: str) -> RecursionLimitError:
    """Name the view that does not end, the limit it met, the row that brought it about, and the ways out."""
    by = f"brought about by {cause}; " if cause else ""
    return RecursionLimitError(
        f"the recursive view {view} does not end: more than {met}; {by}nothing was changed; raise recursion_limit or "
        "recursion_rows if it is meant to go on, or, where only its best rows are read (MIN, MAX), keep one of each "
        "group: WITH (aggregate_selection = 'one')"
    )


@dataclass(frozen=True)
class RecursionLimits:
    """What an epoch may derive in a component: the steps of a derivation, rows, and where its rules can make values
    without end, derivations that are looked at and characters of computed text."""

    depth: int
    rows: int
    endless: bool = False

    @property
    def effort(self) -> int:
        """Derivations that may be looked at, or 0 for any number."""
        return EFFORT * self.rows if self.endless else 0

    @property
    def text(self) -> int:
        """Characters of text that may be computed."""
        return TEXT * self.rows

    def rounds(self, most: int) -> int:
        """Rounds of a recursion that goes in rounds, which cost more than the steps of one that does not: as many as
        steps, if those were chosen or the rounds end by themselves."""
        return min(self.depth, most) if self.endless and self.depth == DEPTH_LIMIT else self.depth

    def __str__(self) -> str:
        looked_at = f" ({self.effort:,} derivations)" if self.endless else ""
        return f"{self.depth:,} steps or {self.rows:,} rows{looked_at}"
