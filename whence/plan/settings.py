"""What the views of a recursive component ask for in their options: how deletions are kept, limits, partitioning.

Views that recurse together are one fixpoint, so they must not ask for different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence.errors import SqlError
from whence.plan.program import Program
from whence.plan.rule_model import RuleProgram
from whence.plan.support import can_support

POLICIES = ("support", "dred")
PARTITIONS = ("broadcast", "exchange", "one")
DEPTH_LIMIT = 100_000  # steps of a derivation
ROW_LIMIT = 20_000_000  # rows derived in one epoch
FOREIGN_ROW_LIMIT = 2_000_000  # the same where Python computes some of them, which is slower and keeps their text


@dataclass(frozen=True)
class Settings:
    """How a fixpoint is run; `name` is what its errors call it."""

    name: str
    policy: str
    depth_limit: int
    row_limit: int


def settings(views: Sequence[str], program: Program, rules: RuleProgram, depth_limit: int = DEPTH_LIMIT) -> Settings:
    """The settings of a component of views with these rules."""
    foreign = any(rule.foreign is not None for rule in rules.rules)
    return Settings(
        name=", ".join(program.views[v].owner or v for v in views),
        policy=_policy(views, program, rules),
        depth_limit=_limit(views, program, "recursion_limit", depth_limit),
        row_limit=_limit(views, program, "recursion_rows", FOREIGN_ROW_LIMIT if foreign else ROW_LIMIT),
    )


def partition_option(views: Sequence[str], program: Program) -> str | None:
    """How the views ask to be partitioned, if they do."""
    return _word(views, program, "partition", PARTITIONS)


def _policy(views: Sequence[str], program: Program, rules: RuleProgram) -> str:
    """The policy the views ask for; else support, where it is sound for their rules."""
    policy = _word(views, program, "policy", POLICIES)
    if policy is None:
        return "support" if can_support(rules) else "dred"
    if policy == "support" and not can_support(rules):
        raise SqlError(
            f"the policy support cannot keep {', '.join(views)}: a MIN or MAX value may improve through a "
            "row that stands on its older value; leave the policy out or choose dred"
        )
    return policy


def _word(views: Sequence[str], program: Program, option: str, words: Sequence[str]) -> str | None:
    named = {p.lower() for v in views if (p := program.views[v].option(option))}
    if len(named) > 1:
        raise SqlError(f"{', '.join(views)} recurse together and must have one {option}, not {sorted(named)}")
    if not named:
        return None
    word = named.pop()
    if word not in words:
        raise SqlError(f"there is no {option} {word!r}; choose one of {', '.join(words)}")
    return word


def _limit(views: Sequence[str], program: Program, option: str, default: int) -> int:
    given = [v for view in views if (v := program.views[view].option(option))]
    try:
        return max((int(v) for v in given), default=default)
    except ValueError:
        raise SqlError(f"{option} must be a whole number, not {given[0]!r}") from None
