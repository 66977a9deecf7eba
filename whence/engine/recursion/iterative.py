"""Rounds: what an operator is whose rows cross partitions inside a recursion.

An epoch has phases, the same in all partitions, which are stages of the dataflow (`engine/core/dataflow.py`): each is
repeated until nothing is on its way for it. Such an operator takes external changes by `apply`, does rounds by `work`,
and has the net changes after `finish`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.exchange.traffic import Shipped
from whence.engine.recursion.kernels import exchange as ex
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.limits import RecursionLimits, described, no_end
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes, Dictionary
from whence.plan.partitions.exchange import Exchange
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.settings import makes_values


class IterativeOperator(Operator):
    """A partition's share of a recursive component; `delay` is the number of its phases."""

    shipped = Shipped()  # by this partition, to others

    @property
    def channels(self) -> list[str]:
        """What its letters are addressed with, the same in every partition."""
        raise NotImplementedError

    def waits(self, phase: int) -> bool:
        """Whether a phase has something to do here with what is here already."""
        raise NotImplementedError

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        """One round of a phase, with what came by its channels; what is to be sent."""
        raise NotImplementedError

    def finish(self) -> None:
        """All phases are over everywhere: have the net change of each view's rows here; once."""
        raise NotImplementedError


def settled(memory: SlotStore, wanted: Codes) -> dict[int, Batch]:
    """End an epoch of a store: the net changes of the relations that are wanted."""
    k, compiled = memory.k, memory.compiled
    out = np.empty((2 * int(k.scalar[st.S_TOUCHED]), 2 + compiled.columns), np.int64)
    out = out[: ex.settle(k.address, wanted, out)]
    found = {}
    for relation in np.flatnonzero(wanted).tolist():
        mine = out[out[:, 0] == relation]
        if len(mine):
            end = 2 + len(compiled.program.relations[relation].schema)
            found[relation] = Batch(np.ascontiguousarray(mine[:, 2:end]), mine[:, 1].copy(), True)
    return found


def shared_limits(spec: Exchange, depth_limit: int, row_limit: int) -> RecursionLimits:
    """The limits of a component that is spread over partitions."""
    copies = {copy.relation for _, copies in spec.copies for copy in copies}
    return RecursionLimits(depth_limit, row_limit, makes_values(spec.rules, copies))


def refuse(program: RuleProgram, dictionary: Dictionary, name: str, changes: Codes, met: str) -> None:
    """Name the view that does not end, the limit it met, and the last of some changes, if there are any."""
    cause = ""
    if len(changes):
        relation = program.relations[int(changes[-1, 0])]
        cause = described(relation, changes[-1, 2:], dictionary)
    view = next((r.view for r in program.relations if r.view), "")
    raise no_end(view.partition("$")[0] or name, met, cause)
