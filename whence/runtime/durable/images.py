"""An exact image of one epoch, written while later epochs go on.

It begins between two epochs: the epoch and the end of the log are noted, and the operators that have changed since the
image before. These are copied one by one, each under the state lock; an epoch that is about to change one of them that
is not copied yet copies it first. What is copied is hashed, compressed and written without any lock, and only blocks
that the chain does not hold already. A change of the catalog does not disturb: operators that it drops stand still, and
its statements are in the log behind the image.

Cost: reading the state of the operators that have changed and writing their changed blocks; others wait for one
operator's copy at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.engine.core.dataflow import Dataflow
from whence.engine.core.image import Image
from whence.engine.core.operator import Operator
from whence.model.codes import Dictionary
from whence.plan.rewrite.keep_joins import to_json
from whence.state.chain import Writer
from whence.state.codec import pack_words
from whence.state.directory import Directory
from whence.state.store import WORDS, Store

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


class Capture:
    """The state of a dataflow at one moment. Made, asked and told of changes under the state lock.

    `known` parts that have not changed since the last capture are `kept`: they need no copy.
    """

    def __init__(self, flow: Dataflow, known: Collection[str]):
        self._flow = flow
        self._waiting: dict[Operator, list[tuple[str, Callable[[], Image]]]] = {}
        self._copied: deque[tuple[str, Image]] = deque()
        self._changed: set[Operator] = set()  # since then
        self.kept: list[str] = []
        for key, op, image in flow.parts(transient=False):
            if key in known and not op.changed:
                self.kept.append(key)
            else:
                self._waiting.setdefault(op, []).append((key, image))
        self._asked = list(self._waiting)
        flow.before = self._before

    def _before(self, op: Operator) -> None:
        self._changed.add(op)
        self._copy(op)

    def _copy(self, op: Operator) -> None:
        for key, image in self._waiting.pop(op, ()):
            self._copied.append((key, {name: array.copy() for name, array in image().items()}))

    def take(self) -> tuple[str, Image] | None:
        """The next part, copied now unless an epoch has made that necessary before; None when all are taken."""
        if not self._copied:
            if not self._waiting:
                return None
            self._copy(next(iter(self._waiting)))
        return self._copied.popleft()

    def end(self, kept: bool) -> None:
        """Stop watching; if the image is kept, what has not changed since need not be copied for the next one."""
        self._flow.before = None
        if kept:
            for op in self._asked:
                op.changed = op in self._changed


def begin_image(coordinator: Coordinator, flow: Dataflow, store: Store) -> Callable[[], int]:
    """Begin an image of a database whose one dataflow is here, under both locks; return what writes it, without."""
    words, epoch = coordinator.dictionary, coordinator.epoch
    store.write_words(words, epoch, coordinator.time)
    store.rotate()
    writer, before = store.begin_image(epoch)
    known = before.parts if before is not None else ()
    capture = Capture(flow, known)
    meta: dict[str, Any] = {"epoch": epoch, "time": coordinator.time}
    meta |= {"statements": coordinator.catalog.statements(), **words_meta(words)}
    meta["keeps"] = to_json(coordinator.catalog.planner.keeps)
    meta["marks"] = dict(coordinator.source_positions)
    meta["horizons"] = coordinator.horizon_history.image()
    meta["arrivals"] = coordinator.arrivals.image()
    meta["plans"] = coordinator.adaptation.image()
    return partial(_write_image, coordinator, store, capture, writer, before, words, meta)


def _write_image(
    coordinator: Coordinator,
    store: Store,
    capture: Capture,
    writer: Writer,
    before: Directory | None,
    words: Dictionary,
    meta: dict[str, Any],
) -> int:
    """Write what was captured; return the epoch. The database may meanwhile begin anew from its storage: what was
    captured was stable, and stands still then."""
    kept = False
    try:
        for key in capture.kept:
            writer.keep_unchanged(key)
        while (part := _next(coordinator, capture)) is not None:
            writer.add(*part)
        write_words(writer, before, words, meta)
        store.publish(writer, meta, coordinator.epoch, coordinator.time)
        kept = True
    finally:
        with coordinator.looking():
            capture.end(kept)
        if not kept:
            writer.abort()
    return int(meta["epoch"])


def words_meta(words: Dictionary) -> dict[str, int]:
    """Return what an image says of the dictionary: its length, forgotten words, and what was kept last time."""
    return {"words": len(words), "holes": words.holes, "kept_words": words.kept}


def write_words(writer: Writer, before: Directory | None, words: Dictionary, meta: dict[str, Any]) -> None:
    """Write the dictionary as of `meta`: what is new since the image before, or all of it if words were forgotten."""
    first = 0
    if before is not None and before.meta.get("holes", 0) == meta["holes"]:
        first = before.meta["words"]
        for key in before.parts:
            if key.startswith(WORDS):
                writer.keep_unchanged(key)
    if meta["words"] > first:
        writer.add(f"{WORDS}{first}", pack_words(words.since(first)[: meta["words"] - first]))


def _next(coordinator: Coordinator, capture: Capture) -> tuple[str, Image] | None:
    with coordinator.looking():
        return capture.take()
