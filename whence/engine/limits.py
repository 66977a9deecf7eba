"""The error of a recursion that reaches its limits."""

from __future__ import annotations

from whence.errors import RecursionLimitError
from whence.model.codes import Codes, Dictionary, decode_value
from whence.plan.rule_model import RuleRelation


def described(relation: RuleRelation, cells: Codes, dictionary: Dictionary) -> str:
    """Name a row by its values and its relation."""
    pairs = zip(relation.schema.columns, cells.tolist(), strict=False)
    values = ", ".join(f"{c.name}={decode_value(code, c.type, dictionary)!r}" for c, code in pairs)
    return f"the row ({values}) of {relation.name}"


def no_end(view: str, depth_limit: int, row_limit: int, cause: str) -> RecursionLimitError:
    """Name the view that does not end, the row that brought it about if there is one, and the ways out."""
    by = f"brought about by {cause}; " if cause else ""
    return RecursionLimitError(
        f"the recursive view {view} does not end: more than {depth_limit:,} steps or {row_limit:,} rows; {by}"
        "nothing was changed; raise recursion_limit if it is meant to go on, or, where only its best rows are read "
        "(MIN, MAX), keep one of each group: WITH (aggregate_selection = 'one')"
    )
