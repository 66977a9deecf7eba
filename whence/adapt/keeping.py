"""Choose which joins of some inputs views keep, by what the running joins have met.

Parts of all joins are weighed (`plan/optimizer/kept_joins.py`). Those of several views that would be the same operator
pay for it once. The part that saves most is taken first, one for each join. It has to save half of what its joins cost,
and more than it takes to build.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from whence.engine.core.fingerprint import canonical
from whence.engine.core.operator import Operator, upwards
from whence.engine.relational.join import Join
from whence.plan.algebra.logical import Node
from whence.plan.algebra.multiway_join import MultiwayJoin
from whence.plan.optimizer.kept_joins import KeptPart, weigh_parts
from whence.plan.rewrite.keep_joins import KeptJoin, can_keep, in_order, read_outside, top_joins

WORTH = 50_000_000_000  # picoseconds: what a kept join must save at least of the work that was done
_PART = 0.5  # of what its joins cost


class _Candidate(NamedTuple):
    view: str
    join: int
    flat: MultiwayJoin
    part: KeptPart


def choose_keeps(
    plans: Mapping[str, Node], operators: Mapping[str, Operator], worth: int = WORTH
) -> frozenset[KeptJoin]:
    """Return the joins that views should keep, given their plans without any and the operators that run."""
    shared: dict[str, list[_Candidate]] = {}
    for view, node in plans.items():
        running = [op for op in upwards([operators[view]]) if isinstance(op, Join)]
        for number, flat in enumerate(top_joins(node)):
            op = next((op for op in running if op.join == flat), None)
            if op is None or not can_keep(flat):
                continue
            for part in weigh_parts(op.shape, *op.weigh()):
                shared.setdefault(_name(flat, part.inputs), []).append(_Candidate(view, number, flat, part))
    found: dict[tuple[str, int], KeptJoin] = {}
    for candidates in sorted(shared.values(), key=_saved, reverse=True):
        free = [c for c in candidates if (c.view, c.join) not in found]
        if free and _saved(free) > max(worth, free[0].part.build, round(_PART * sum(c.part.flat for c in free))):
            columns = _columns(free)
            found |= {(c.view, c.join): _kept(c, columns) for c in free}
    return frozenset(found.values())


def _saved(candidates: Sequence[_Candidate]) -> int:
    """Return what one kept join saves for all that use it; inside it is maintained once."""
    inside = max(c.part.inside for c in candidates)
    return sum(c.part.flat - c.part.over for c in candidates) - inside


def _name(flat: MultiwayJoin, inputs: Iterable[int]) -> str:
    """Return a name for what the operator of a part computes, but for the columns that it shows."""
    order = in_order(flat, inputs)
    place = _places(flat, order)
    classes = sorted(sorted(place[c] for c in members if c in place) for members in flat.classes)
    return canonical((tuple(flat.sources[i] for i in order), tuple(tuple(c) for c in classes if len(c) > 1)))


def _places(flat: MultiwayJoin, order: Sequence[int]) -> dict[int, int]:
    """Return where inputs in an order of their own have the columns of a join."""
    starts = [0]
    for source in flat.sources:
        starts.append(starts[-1] + len(source.schema))
    columns = [c for i in order for c in range(starts[i], starts[i + 1])]
    return {column: at for at, column in enumerate(columns)}


def _columns(candidates: Sequence[_Candidate]) -> set[tuple[int, int]]:
    """Return the columns that some joins read of the same part, by the place of the input in it."""
    found: set[tuple[int, int]] = set()
    for _, _, flat, part in candidates:
        order = in_order(flat, part.inputs)
        found |= {(order.index(input), column) for input, column in read_outside(flat, part.inputs)}
    return found


def _kept(candidate: _Candidate, columns: set[tuple[int, int]]) -> KeptJoin:
    order = in_order(candidate.flat, candidate.part.inputs)
    shown = tuple((order[at], column) for at, column in sorted(columns))
    return KeptJoin(candidate.view, candidate.join, order, shown)
