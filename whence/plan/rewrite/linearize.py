"""Rewrite a transitive closure that joins itself with itself as one step and a closure.

    r(x, z) <- r(x, y), r(y, z)    becomes    r(x, z) <- base(x, y), r(y, z)

when that is the view's only recursive rule: every chain of base rows that the first composes from two halves the second
composes from its first row and the rest. A row then has as many candidate derivations as x has base rows, not as many
as there are nodes between.
"""

from __future__ import annotations

from dataclasses import replace

from whence.plan.algebra.expressions import Call, Col, strip_casts, substitute
from whence.plan.recursion.conjunctive import Body, Derived, product


def linearize(name: str, bodies: list[Body]) -> list[Body]:
    """Make the doubling rule of a view linear, if it is the only recursive one."""
    recursive = [b for b in bodies if any(isinstance(s, Derived) for s in b.sources)]
    base = [b for b in bodies if b not in recursive]
    if len(recursive) != 1 or not base or not _doubles(name, recursive[0]):
        return bodies
    doubling = recursive[0]
    closure = Body((doubling.sources[1],), (), tuple(Col(t, i) for i, t in enumerate(doubling.sources[1].schema.types)))
    linear = []
    for body in base:
        pair = product(body, closure)
        step = doubling.map(lambda e, out=pair.out: substitute(e, lambda c: out[c.index]))  # type: ignore[misc]
        linear.append(replace(pair, tests=(*pair.tests, *step.tests), out=step.out))
    return base + linear


def _doubles(name: str, body: Body) -> bool:
    """r(X, Z) <- r(X, Y), r(Y, Z): the second half of one row equals the first half of the other, and nothing else."""
    if (
        body.absences
        or [s.name for s in body.sources if isinstance(s, Derived)] != [name, name]
        or len(body.sources) != 2
    ):
        return False
    width = len(body.sources[0].schema)
    half = width // 2
    if width % 2 or len(body.tests) != half:
        return False
    met = set()
    for test in body.tests:
        if not isinstance(test, Call) or test.op != "=":
            return False
        a, b = strip_casts(test.args[0]), strip_casts(test.args[1])
        if not isinstance(a, Col) or not isinstance(b, Col):
            return False
        met.add((min(a.index, b.index), max(a.index, b.index)))
    if met != {(half + i, width + i) for i in range(half)}:
        return False
    wanted = [*range(half), *range(width + half, 2 * width)]
    out = [strip_casts(e) for e in body.out]
    return all(isinstance(e, Col) and e.index == w for e, w in zip(out, wanted, strict=True))
