"""Find the external relations that are edges of a graph which rules follow, and their columns.

A rule `head(… s …) <- ext(s, x), rec(… x …)` walks one edge further: a column of the recursive row is bound to one end
of an external row, and the same column of the head to the other. The variables of such rows are then ordered as a walk
along the graph meets them (`annotate/order.py`).
"""

from __future__ import annotations

from whence.plan.recursion.rule_model import Atom, Rule, RuleProgram


def edges(program: RuleProgram) -> dict[int, tuple[int, int]]:
    """For each external relation whose rows are edges, the columns of their start and their end.

    The start is the end that the head has: a fact of `start` follows from one of `end`."""
    found: dict[int, tuple[int, int]] = {}
    for rule in program.rules:
        for atom in rule.atoms:
            if program.relations[atom.relation].kind == "external" and atom.relation not in found:
                edge = _edge(rule, atom, program)
                if edge is not None:
                    found[atom.relation] = edge
    return found


def _edge(rule: Rule, external: Atom, program: RuleProgram) -> tuple[int, int] | None:
    """Return the columns of an external atom between which a rule walks."""
    column = {v: c for c, v in reversed(list(enumerate(external.terms))) if v is not None}
    for atom in rule.atoms:
        if atom.relation != rule.head or program.relations[atom.relation].kind not in ("set", "best"):
            continue
        for end, start in zip(atom.terms, rule.terms, strict=False):
            if end is not None and end != start and end in column and start in column:
                return column[start], column[end]
    return None
