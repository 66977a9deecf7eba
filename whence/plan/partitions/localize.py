"""Plan recursion in which each partition reaches its own fixpoint, and together these are the whole one.

Law of *local* recursion: give every derived relation a key column so that in each rule the head's key is the very
variable in the key column of every derived atom. Then a derivation never leaves the partition that its key routes to,
and neither does a row that a deletion asks for: the partitions' fixpoints share nothing. What a rule reads from outside
is needed where the key routes to, if the key is one of its columns, and everywhere otherwise. A rule without derived
atoms must get its key from an external row, or every partition would derive its head.

    reachable(x, y) <- link(x, y)                    keyed by y: link by its dst,
    reachable(x, y) <- link(x, z), reachable(z, y)   and a copy of link

Where no such keys exist, or what would have to be copied is not small, the whole component runs in the first partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from whence.plan.algebra.logical import Node
from whence.plan.recursion.rule_model import Atom, Rule, RuleProgram, RuleRelation

COPY = -1  # wanted of an external relation: all rows everywhere; else the column it is wanted by
_TRIES = 20_000  # steps of the search for keys
_FOUND = 500  # assignments that are compared


@dataclass(frozen=True)
class Local:
    """Key columns of the derived relations, and what each atom of each rule wants (None: it is derived)."""

    keys: dict[int, int]
    wants: tuple[tuple[int | None, ...], ...]

    def uses(self, rules: RuleProgram) -> list[tuple[int, int]]:
        """Return the (external relation, want) pairs that occur, in the order of the relations, then of the rules."""
        found = dict.fromkeys(
            (atom.relation, want)
            for rule, wants in zip(rules.rules, self.wants, strict=True)
            for atom, want in zip(rule.atoms, wants, strict=True)
            if want is not None
        )
        return sorted(found, key=lambda use: use[0])

    def copies(self, rules: RuleProgram) -> list[int]:
        """Return the external relations that are wanted everywhere."""
        return [relation for relation, want in self.uses(rules) if want == COPY]


def is_derived(rules: RuleProgram, relation: int) -> bool:
    return rules.relations[relation].kind in ("set", "best")


def localize(rules: RuleProgram, small: Callable[[Node], bool]) -> Local | None:
    """Find the best way to recurse locally: with the fewest copies of what is not small, then the fewest copies."""
    best: Local | None = None
    least = (0, 0)
    for keys in _assignments(rules):
        found = Local(keys, tuple(_wants(rule, keys, rules) for rule in rules.rules))
        found = _with_copies_shared(found, rules)
        copies = [rules.relations[r].source for r in found.copies(rules)]
        cost = (sum(node is not None and not small(node) for node in copies), len(copies))
        if best is None or cost < least:
            best, least = found, cost
    return best


# -- the search for keys -----------------------------------------------------------------------------------------------


def _assignments(rules: RuleProgram) -> Iterator[dict[int, int]]:
    """Key columns for all derived relations that every rule passes on, in a fixed order."""
    allowed = _allowed(rules)
    names = list(allowed)
    steps = found = 0

    def extend(keys: dict[int, int], at: int) -> Iterator[dict[int, int]]:
        nonlocal steps, found
        if at == len(names):
            found += 1
            yield dict(keys)
            return
        for column in allowed[names[at]]:
            steps += 1
            if steps > _TRIES or found >= _FOUND:
                return
            keys[names[at]] = column
            if all(_passes_on(rule, keys, rules) for rule in rules.rules):
                yield from extend(keys, at + 1)
            del keys[names[at]]

    return extend({}, 0)


def _allowed(rules: RuleProgram) -> dict[int, list[int]]:
    """Return the columns of each derived relation that no single rule forbids, whatever the other relations choose."""
    allowed = {i: list(range(r.keys)) for i, r in enumerate(rules.relations) if is_derived(rules, i)}
    changed = True
    while changed:
        changed = False
        for rule in rules.rules:
            for column in list(allowed[rule.head]):
                if not _may_pass_on(rule, column, allowed, rules):
                    allowed[rule.head].remove(column)
                    changed = True
    return allowed


def _may_pass_on(rule: Rule, column: int, allowed: dict[int, list[int]], rules: RuleProgram) -> bool:
    if column >= len(rule.terms):  # computed in Python, after the row has been found
        return False
    key = rule.terms[column]
    derived = [atom for atom in rule.atoms if is_derived(rules, atom.relation)]
    if not derived:
        return any(key in atom.terms and rules.relations[atom.relation].kind == "external" for atom in rule.atoms)
    return all(any(atom.terms[c] == key for c in allowed[atom.relation]) for atom in derived)


def _passes_on(rule: Rule, keys: dict[int, int], rules: RuleProgram) -> bool:
    """Return whether the relations that have a key so far agree in the rule."""
    if rule.head not in keys:
        return True
    key = rule.terms[keys[rule.head]]
    return all(atom.terms[keys[atom.relation]] == key for atom in rule.atoms if atom.relation in keys)


# -- what the rules want of the outside --------------------------------------------------------------------------------


def _wants(rule: Rule, keys: dict[int, int], rules: RuleProgram) -> tuple[int | None, ...]:
    key = rule.terms[keys[rule.head]]

    def want(atom: Atom) -> int | None:
        if is_derived(rules, atom.relation):
            return None
        return atom.terms.index(key) if key in atom.terms else COPY

    return tuple(map(want, rule.atoms))


def _with_copies_shared(local: Local, rules: RuleProgram) -> Local:
    """Let what is everywhere for one rule serve all rules that have their key from a derived atom too."""
    copied = set(local.copies(rules))
    made = []
    for rule, wants in zip(rules.rules, local.wants, strict=True):
        tied = None in wants
        pairs = zip(rule.atoms, wants, strict=True)
        made.append(tuple(COPY if tied and w is not None and a.relation in copied else w for a, w in pairs))
    return Local(local.keys, tuple(made))


def with_sources(rules: RuleProgram, local: Local, source: Callable[[Node, int], Node]) -> RuleProgram:
    """Give the rules an external relation for each way one is wanted; `source` gives its rows in that way."""
    number: dict[tuple[int, int | None], int] = {}
    relations: list[RuleRelation] = []
    uses = local.uses(rules)
    for old, relation in enumerate(rules.relations):
        if relation.source is None:
            number[old, None] = len(relations)
            relations.append(relation)
        for _, want in (use for use in uses if use[0] == old):
            assert relation.source is not None
            number[old, want] = len(relations)
            relations.append(replace(relation, source=source(relation.source, want)))
    made = []
    for rule, wants in zip(rules.rules, local.wants, strict=True):
        pairs = zip(rule.atoms, wants, strict=True)
        atoms = tuple(replace(atom, relation=number[atom.relation, want]) for atom, want in pairs)
        made.append(replace(rule, head=number[rule.head, None], atoms=atoms))
    outputs = {name: number[relation, None] for name, relation in rules.outputs.items()}
    return RuleProgram(relations, made, outputs, [])


def describe_local(rules: RuleProgram, local: Local) -> str:
    """Keys and copies, by the names users know."""
    shown = set(rules.outputs.values())
    keys = [rules.relations[r].schema.names[c] for r, c in local.keys.items() if r in shown]
    copies = [rules.relations[r].name for r in local.copies(rules)]
    text = "local by " + ", ".join(dict.fromkeys(keys))
    return text + (f", {' and '.join(dict.fromkeys(copies))} copied" if copies else "")
