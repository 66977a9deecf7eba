"""Read the options of a recursive component's views: how deletions are followed, limits, partitioning.

Views that recurse together are one fixpoint, so they must not ask for different things.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from whence.model.errors import SqlError
from whence.plan.algebra.logical import Distinct, SetOp
from whence.plan.algebra.program import Program
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.support import can_support

POLICIES = ("support", "dred")
MAINTAIN = ("absorption", "relative")
REPRESENTATIONS = ("auto", "witnesses", "bdd")
STREAM_PROVENANCE = ("lineage", "covering", "none")  # see plan/streams/instrument.py
PARTITIONS = ("broadcast", "exchange", "one")
DEPTH_LIMIT = 100_000  # steps of a derivation
ROW_LIMIT = 20_000_000  # rows derived in one epoch, where no rule makes new values: there they end by themselves
VALUE_ROW_LIMIT = 5_000_000  # the same where a rule computes new values from recursive rows, perhaps for ever
FOREIGN_ROW_LIMIT = 1_000_000  # the same where Python computes them, which is slower
EFFORT = 20  # derivations looked at, for each row that may be derived: where rules make new values
TEXT = 256  # characters of computed text, for each row that may be derived


@dataclass(frozen=True)
class Maintain:
    """Provenance that is kept: by which algebra, how its functions are represented, and when a row that is there tells
    of a further reason for it: lazily when it has lost the first, eagerly at once, or every so many microseconds or
    epochs."""

    algebra: str
    propagate: str = "lazy"  # lazy, eager, "5 microseconds" or "5 epochs"
    representation: str = "auto"

    @property
    def every(self) -> int:
        """The length of the interval, if there is one, else 0."""
        return int(self.propagate.split()[0]) if " " in self.propagate else 0

    @property
    def by_epochs(self) -> bool:
        return self.propagate.endswith("epochs")

    @property
    def text(self) -> str:
        """As one would say it.

        >>> Maintain("absorption", "1500000 microseconds").text, Maintain("absorption", "2 epochs").text
        ('every 1.5 s', 'every 2 epochs')
        """
        if not self.every:
            return self.propagate
        return f"every {self.propagate}" if self.by_epochs else f"every {self.every / 1e6:g} s"


@dataclass(frozen=True)
class Settings:
    """How a fixpoint is run; `name` is what its errors call it."""

    name: str
    policy: str
    depth_limit: int
    row_limit: int
    maintain: Maintain | None = None


def settings(views: Sequence[str], program: Program, rules: RuleProgram, depth_limit: int = DEPTH_LIMIT) -> Settings:
    """Read the settings of a component of views with these rules."""
    endless = makes_values(rules)
    rows = VALUE_ROW_LIMIT if endless else ROW_LIMIT
    if any(rule.foreign is not None for rule in rules.rules):
        rows = FOREIGN_ROW_LIMIT if endless else VALUE_ROW_LIMIT
    return Settings(
        name=", ".join(program.views[v].owner or v for v in views),
        policy=_policy(views, program, rules),
        depth_limit=_limit(views, program, "recursion_limit", depth_limit),
        row_limit=_limit(views, program, "recursion_rows", rows),
        maintain=maintain_option(views, program),
    )


def makes_values(rules: RuleProgram, copies: Collection[int] = ()) -> bool:
    """Return whether a rule puts what it computes from a recursive row into a row, other than as a best value.

    Rules that only move values around derive finitely many rows, however many that are. `copies` are relations that
    hold rows of recursive ones, sent by other partitions."""
    for rule in rules.rules:
        head = rules.relations[rule.head]
        read = [atom.relation for atom in rule.atoms]
        if all(rules.relations[n].kind in ("external", "absence") and n not in copies for n in read):
            continue
        if rule.foreign is not None and len(head.schema) > len(rule.terms):
            return True
        computed = {op.to for op in rule.ops if not op.is_test and op.name not in ("least", "greatest")}
        if computed & set(rule.terms[: head.keys]):
            return True
    return False


def maintain_option(views: Sequence[str], program: Program) -> Maintain | None:
    """Return the provenance that the views ask to be kept, if they do."""
    algebra = _word(views, program, "maintain", MAINTAIN)
    if algebra is None:
        for option in ("propagate", "provenance"):
            if any(program.views[v].option(option) not in (None, *STREAM_PROVENANCE) for v in views):
                raise SqlError(
                    f"{option} says how maintained provenance is kept, and {', '.join(views)} maintains none; "
                    "add maintain = 'absorption' or 'relative'"
                )
        return None
    if _word(views, program, "policy", POLICIES) is not None:
        raise SqlError(
            f"{', '.join(views)} cannot have both a policy and maintain: provenance is itself what deletions go by; "
            "leave one out"
        )
    propagate = _one(views, program, "propagate") or "lazy"
    representation = _word(views, program, "provenance", REPRESENTATIONS)
    if representation is not None and algebra == "relative":
        raise SqlError("provenance chooses between forms of absorption; maintain = 'relative' has only one")
    return Maintain(algebra, propagate, representation or "auto")


def is_maintained(views: Sequence[str], program: Program) -> bool:
    """Return whether a view that does not recurse is maintained by its provenance; raise SqlError if it asks for that
    and cannot be."""
    if maintain_option(views, program) is None:
        return False
    for name in views:
        query = program.views[name].query
        if not (isinstance(query, Distinct) or (isinstance(query, SetOp) and not query.all)):
            if any(view.owner == name for view in program.views.values()):
                return False  # what it says is for the recursive queries inside it
            raise SqlError(
                f"maintain keeps provenance of sets, and {program.views[name].owner or name} may have a row several "
                "times, or aggregates: leave maintain out (why explains the rows of every view without it), or make "
                "it SELECT DISTINCT or UNION"
            )
    return True


def partition_option(views: Sequence[str], program: Program) -> str | None:
    """Return how the views ask to be partitioned, if they do."""
    return _word(views, program, "partition", PARTITIONS)


def _policy(views: Sequence[str], program: Program, rules: RuleProgram) -> str:
    """Return the policy the views ask for; else support, where it is sound for their rules."""
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
    word = _one(views, program, option)
    if word is not None and word not in words:
        raise SqlError(f"there is no {option} {word!r}; choose one of {', '.join(words)}")
    return word


def _one(views: Sequence[str], program: Program, option: str) -> str | None:
    """Return the one value of an option that all views agree on that have it."""
    named = {p.lower() for v in views if (p := program.views[v].option(option))}
    if len(named) > 1:
        raise SqlError(f"{', '.join(views)} recurse together and must have one {option}, not {sorted(named)}")
    return named.pop() if named else None


def _limit(views: Sequence[str], program: Program, option: str, default: int) -> int:
    given = [v for view in views if (v := program.views[view].option(option))]
    try:
        return max((int(v) for v in given), default=default)
    except ValueError:
        raise SqlError(f"{option} must be a whole number, not {given[0]!r}") from None
