"""Decide whether the policy `support` is sound for a component: chosen derivations must never form a cycle.

Under MIN or MAX a group may change its chosen derivation when it gets a better value. That derivation must not stand on
the group itself. It cannot where values only ever get worse along a derivation (LEAST under MAX, GREATEST under MIN,
copies), nor where they are only added to: a group that improves through itself would then improve for ever, which the
limit stops. Where a value can be forgotten on the way (a constant in its place, a row whose mere existence counts,
LEAST under MIN) a better value may rightly stand on the group's own older value, which no longer exists; such
components are kept by DRed, which needs no derivations.
"""

from __future__ import annotations

from whence.plan.recursion.rule_model import Rule, RuleProgram

_ADDS = {"+", "-", "*", "+f", "-f", "*f"}


def can_support(program: RuleProgram) -> bool:
    """Return whether the policy `support` is sound for these rules."""
    if not any(r.kind == "best" for r in program.relations):
        return True
    seen: set[str] = set()
    for rule in program.rules:
        found = _ways(rule, program)
        if found is None:
            return False
        seen |= found
    return not {"adds", "bounds"} <= seen


def _ways(rule: Rule, program: RuleProgram) -> set[str] | None:
    """Return how values travel from the body to the head: by adding, by bounding; None if one is forgotten."""
    head = program.relations[rule.head]
    found: set[str] = set()
    for atom in rule.atoms:
        relation = program.relations[atom.relation]
        if relation.kind not in ("set", "best"):
            continue
        value = atom.terms[-1] if relation.kind == "best" else None
        if value is None or head.kind != "best":
            return None
        reached = {value}
        for op in rule.ops:
            if op.is_test or not reached & set(op.reads):
                continue
            reached.add(op.to)
            if op.name in _ADDS:
                found.add("adds")
            elif op.name in ("least", "greatest"):
                if (op.name == "least") == (head.sign > 0):
                    return None
                found.add("bounds")
        if rule.terms[-1] not in reached:
            return None
    return found
