"""Hold: lets the changes of its input wait, and gives them out when it is told to.

Law: output = input - pending. An epoch adds the input's delta to `pending` and gives nothing; one that releases gives
`pending`, and then nothing is pending. State: the pending rows; they are consolidated when they have doubled, so what
comes and goes while it waits is never seen below. Cost: a release is that of one batch; an epoch that only waits costs
the copy of a pointer.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image, StaleImage
from whence.engine.core.operator import Batch, Operator
from whence.plan.algebra.logical import HoldKey

_FEW = 64  # rows that are not worth consolidating


class Hold(Operator):
    """The input as of the last release."""

    def __init__(self, input: Operator, key: HoldKey):
        self.inputs, self.schema, self.key = [input], input.schema, key
        self.releasing = False  # in this epoch
        self._whole = Batch.empty(len(self.schema))  # what is pending, consolidated
        self._latest: list[Batch] = []  # and what came since
        self._before: tuple[Batch, list[Batch]] | None = None  # the epoch that is being run

    @property
    def pending_rows(self) -> int:
        """How many rows are pending; some of them may still cancel."""
        return len(self._whole) + sum(map(len, self._latest))

    @property
    def is_due(self) -> bool:
        return self.releasing and self.pending_rows > 0

    @property
    def pending(self) -> Batch:
        """What is pending, consolidated."""
        if self._latest:
            self._whole = consolidate(concat([self._whole, *self._latest], len(self.schema)))
            self._latest = []
        return self._whole

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if self._before is None:
            self._before = self._whole, self._latest
        self._latest = [*self._latest, delta] if len(delta) else list(self._latest)
        nothing = Batch.empty(len(self.schema))
        if not self.releasing:
            return nothing
        released = self.pending
        self._whole, self._latest = nothing, []
        return released

    def prime(self, contents: list[Batch]) -> Batch:
        self._whole, self._latest, self._before = Batch.empty(len(self.schema)), [], None
        return contents[0]

    def recompute(self) -> Batch:
        contents, pending = self.inputs[0].contents(), self.pending
        if not len(pending):
            return contents
        return consolidate(concat([contents, Batch(pending.rows, -pending.ann, True)], len(self.schema)))

    def commit(self) -> None:
        self._before, self.releasing = None, False
        if self.pending_rows > 2 * len(self._whole) + _FEW:
            _ = self.pending

    def undo(self) -> None:
        self.releasing = False
        if self._before is not None:
            self._whole, self._latest = self._before
            self._before = None

    def image(self) -> Image:
        pending = self.pending
        return {"rows": pending.rows, "ann": pending.ann}

    def restore(self, image: Image) -> None:
        if image.keys() != {"rows", "ann"} or image["rows"].shape != (len(image["ann"]), len(self.schema)):
            raise StaleImage(f"an image of {sorted(image)} that is none of pending rows of {len(self.schema)} columns")
        rows, ann = (np.array(image[name], np.int64) for name in ("rows", "ann"))
        self._whole, self._latest, self._before = Batch(rows, ann, True), [], None

    @property
    def state_rows(self) -> int:
        return self.pending_rows

    @property
    def state_bytes(self) -> int:
        return sum(batch.rows.nbytes + batch.ann.nbytes for batch in (self._whole, *self._latest))

    def describe(self) -> str:
        return f"hold {self.key[1]}"

    def notes(self) -> tuple[str, ...]:
        return (f"pending: {self.pending_rows:,} rows",)
