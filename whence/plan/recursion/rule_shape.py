"""A recursive rule as the search for join orders sees it: its atoms are the inputs of paths, and so is its head.

A changed row of an atom is extended by the other atoms; a row of the head, when another derivation of it is looked for,
by all of them. The head is the input after the last atom. A variable is known when an input that has it was met, when
it is a constant, or when it can be computed. An absence comes when all its columns are known, since it binds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whence.plan.algebra.join_bounds import ColumnBound
from whence.plan.algebra.join_paths import Members, PathStep
from whence.plan.recursion.rule_model import Rule, RuleRelation

_FALLIBLE = frozenset(("+", "-", "*", "must_be", "fits"))


@dataclass
class RuleShape:
    """What paths of a rule may do; sets of inputs are bits."""

    rule: Rule
    relations: Sequence[RuleRelation]
    head: int = field(init=False)
    _columns: list[tuple[int | None, ...]] = field(init=False)  # of each input, those by which it can be looked up
    _has: list[frozenset[int]] = field(init=False)  # the variables that each input brings
    _known: dict[int, frozenset[int]] = field(init=False, default_factory=dict)
    _fallible: bool = field(init=False)

    def __post_init__(self) -> None:
        rule = self.rule
        self.head = len(rule.atoms)
        computed = {op.to for op in rule.ops if not op.is_test}
        given = rule.terms[: self.relations[rule.head].keys]
        self._columns = [atom.terms[: self.relations[atom.relation].keys] for atom in rule.atoms]
        self._columns.append(tuple(None if v in computed else v for v in given))
        every = [*(atom.terms for atom in rule.atoms), self._columns[-1]]
        self._has = [frozenset(v for v in terms if v is not None) for terms in every]
        self._fallible = any(op.name in _FALLIBLE for op in rule.ops)

    def relation(self, input: int) -> int:
        """Return the relation of an atom, or of the head."""
        return self.rule.head if input == self.head else self.rule.atoms[input].relation

    def is_absence(self, input: int) -> bool:
        """Return whether an input holds when no row matches."""
        return self.relations[self.relation(input)].kind == "absence"

    def is_whole(self, input: int, cols: tuple[int, ...]) -> bool:
        """Return whether columns tell the rows of an input apart."""
        return len(cols) == len(self._columns[input])

    def others(self, first: int) -> tuple[int, ...]:
        return tuple(i for i in range(self.head) if i != first)

    def follows(self, input: int, met: int) -> bool:
        cols = self.cols(input, met)
        left = [i for i in range(self.head) if not met >> i & 1 and not self.is_absence(i)]
        if self.is_absence(input):
            return self.is_whole(input, cols) or not left
        if cols or not self._fallible:
            return True
        # A computation that may fail is not to meet combinations that nothing else asks for.
        return not any(self.cols(i, met) for i in left)

    def cols(self, input: int, met: int) -> tuple[int, ...]:
        known = self._variables(met)
        return tuple(c for c, v in enumerate(self._columns[input]) if v is not None and v in known)

    def known(self, input: int, cols: tuple[int, ...], met: int) -> tuple[Members, ...]:
        wanted = [self._columns[input][c] for c in cols]
        return tuple(
            tuple(
                (other, column)
                for other, columns in enumerate(self._columns)
                if met >> other & 1 and not self.is_absence(other)
                for column, v in enumerate(columns)
                if v == variable
            )
            for variable in wanted
        )

    def decided(self, met: int, input: int) -> list[int]:
        before, after = self._variables(met), self._variables(met | 1 << input)
        return [
            number
            for number, op in enumerate(self.rule.ops)
            if op.is_test and after.issuperset(op.reads) and not before.issuperset(op.reads)
        ]

    def bounded(self, input: int, met: int) -> tuple[ColumnBound, ...]:
        return ()

    def range_columns(self, step: PathStep) -> tuple[int, ...]:
        raise TypeError("rules have no ordered indexes")

    def _variables(self, met: int) -> frozenset[int]:
        """Return the variables that are known when these inputs have been met."""
        found = self._known.get(met)
        if found is None:
            known = {v for v, _, _ in self.rule.constants}
            known.update(*(has for i, has in enumerate(self._has) if met >> i & 1))
            computing = [op for op in self.rule.ops if not op.is_test]
            while ready := [op for op in computing if known.issuperset(op.reads)]:
                known.update(op.to for op in ready)
                computing = [op for op in computing if op not in ready]
            found = self._known[met] = frozenset(known)
        return found
