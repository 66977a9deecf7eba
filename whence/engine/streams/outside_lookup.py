"""OutsideLookup: each row of a stream joined with a relation that is outside, of which a table has the rows at hand.

Law: an epoch is committed only when the row of every key that it asks for is there (`runtime/lookups/`): else the run
is undone, what is missing is fetched, and the epoch is run again with these rows among its changes. So a run in which a
row is missing gives nothing, and a replay finds them all. NULL is no key. State: what the run under way has asked for.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.lookup import Lookup
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.streams import model as streams


class OutsideLookup(Lookup):
    """A lookup by the key of a table whose rows are fetched."""

    def __init__(self, inputs: list[Operator], node: streams.Lookup, dictionary: Dictionary) -> None:
        super().__init__(inputs, node, dictionary)
        self.outside = node.outside
        self._asked: tuple[Codes, ...] = ()

    def apply(self, deltas: list[Batch]) -> Batch:
        delta = deltas[0]
        if not len(delta):
            return Batch.empty(len(self.schema))
        keys = delta.rows[:, self._known[0]]
        asking = keys != NULL
        known = np.unique(keys[asking])
        at, _ = self._relation.matches(self._index, known[:, None], np.zeros(1, np.int64))
        there = np.zeros(len(known), bool)
        there[at] = True
        found = there[np.searchsorted(known, keys[asking])]
        self._asked += (np.column_stack((delta.rows[asking, -1], keys[asking], found)),)
        if not there.all() and not self.context.replaying:
            return Batch.empty(len(self.schema))
        return super().apply(deltas)

    def take_asked(self) -> Codes | None:
        """Return what was asked for since this was last called: `$at`, key, and whether its row was there."""
        asked, self._asked = self._asked, ()
        return np.concatenate(asked) if asked else None

    def undo(self) -> None:
        super().undo()
        self._asked = ()

    def fresh(self) -> Lookup:
        return OutsideLookup(self.inputs, self.node, self._dictionary)

    def describe(self) -> str:
        return f"{super().describe()}, from outside"
