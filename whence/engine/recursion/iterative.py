"""Iterative operators: what the dataflow asks of an operator whose stages repeat until no message is in flight.

An epoch has phases, the same in all partitions, which are stages of the dataflow (`engine/core/dataflow.py`). Such an
operator takes external changes by `apply`, does rounds by `work`, and has the net changes after `finish`. One without
peers (`delay` is 0) is an operator like any other: `apply` does it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.exchange.traffic import Shipped


class IterativeOperator(Operator):
    """A partition's share of a recursive component; `delay` is the number of its phases."""

    shipped = Shipped()  # by this partition, to others

    @property
    def channels(self) -> list[str]:
        """Return the names of the channels of its messages, the same in every partition."""
        raise NotImplementedError

    def waits(self, phase: int) -> bool:
        """Return whether a phase has something to do here with what is here already."""
        raise NotImplementedError

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        """Do one round of a phase, with what came by its channels; return what is to be sent."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the phases, which are over everywhere: have the net change of each view's rows here; once."""
        raise NotImplementedError


def has_peers(op: Operator) -> TypeGuard[IterativeOperator]:
    """Return whether an operator takes messages of other partitions within an epoch."""
    return isinstance(op, IterativeOperator) and op.delay > 0
