"""Annotations of the slots of a store: what other rows are derived with, and what is buffered.

Each slot has two formulas over base rows: `published`, which rows derived from this one are annotated with, and
`buffered`, derivations that came later and that no other row has been derived with (MinShip's buffer).

Law. For every derivation of a row, published or buffered has the product of what its body rows publish. Formulas are
monotone and only ever get derivations, so each says sets of base rows that suffice, and a row is derivable exactly when
one of them is not false. When base rows die, false is put in their place (`without`), which keeps the law; a row that
then publishes nothing but buffers something publishes that (it is *released*, and rows must be derived with it), and
one that has neither is lost.

Lazily, a row publishes its first derivation until that dies. Eagerly it publishes all. Where rows are sent to other
partitions, what eager ones have come to publish since the last message is noted in `gained`.

State: two handles per slot, and for each variable a list of slots that mention it, which only grows: entries that are
no longer true are skipped, and lists are rebuilt when most are. (A diagram needs none.) What an epoch changes is logged
at its first touch, for `undo`. Cost: what changes; a deletion looks at the slots in its variables' lists, or once at a
whole diagram.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from whence.annotate import AnnotationTooLarge, Provenance
from whence.annotate.absorption import Absorption
from whence.engine.core.image import Image, StaleImage, with_room
from whence.engine.recursion.kernels import annotations as an
from whence.model.codes import Codes

T = TypeVar("T")
_NONE = np.empty(0, np.int64)
_FEW = 4096  # entries of the index that are not worth rebuilding it


class AnnotationSize(NamedTuple):
    """Annotated slots, those that buffer something, and the bytes of all formulas and of what is kept of them."""

    rows: int
    buffered: int
    bytes: int
    state: int


class Annotations:
    """The formulas of one store's slots. Those that share an algebra are `beside` each other: handles move in all.
    `gains`: they are sent to other partitions."""

    def __init__(self, algebra: Provenance, lazy: bool = True, beside: Annotations | None = None, gains: bool = False):
        self.algebra, self.lazy = algebra, lazy
        self.members: list[Annotations] = beside.members if beside is not None else []
        self.members.append(self)
        self.slots = 0
        self.published: Codes = np.zeros(64, np.int64)
        self.buffered: Codes = np.zeros(64, np.int64)
        self.gained: Codes = np.zeros(64 if gains else 0, np.int64)  # what slots have come to publish since it was sent
        self._own: np.ndarray = np.zeros(64, bool)  # slots that publish what was put there: variables
        self._stamps, self._stamp = np.zeros(64, np.int64), 1
        self._log, self._logged = np.empty((64, 3), np.int64), 0
        self._marks, self._mark = np.zeros(64, np.int64), 0
        self._first: Codes = np.full(64, -1, np.int64)  # by variable: its newest entry
        self._entries: Codes = np.zeros((64, 2), np.int64)  # a slot, and the entry before
        self._count = self._settled = 0  # entries, now and when the index was rebuilt

    def make_room(self, slots: int) -> None:
        """Make room for `slots` slots."""
        self.slots = max(self.slots, slots)
        if slots > len(self.published):
            length = max(slots, 2 * len(self.published))
            for name in ("published", "buffered", "_own", "_stamps", "_marks"):
                setattr(self, name, with_room(getattr(self, name), length))
            if len(self.gained):
                self.gained = with_room(self.gained, length)

    # -- changes -----------------------------------------------------------------------------------------------------

    def put(self, slots: Codes, formulas: Codes) -> None:
        """Let slots publish these formulas alone; the caller takes them away again, `without` does not."""
        self._note(slots)
        self._own[slots] |= formulas != 0
        self.published[slots], self.buffered[slots] = formulas, 0
        if len(self.gained):
            self.gained[slots] = 0

    def clear(self, slots: Codes) -> None:
        """Let slots publish and buffer nothing."""
        self.put(slots, np.zeros(len(slots), np.int64))

    def merge(self, slots: Codes, found: Codes) -> Codes:
        """Take derivations found[i], not false, of slots[i], of which there may be several; return the slots that now
        publish something else. AnnotationTooLarge, and no change, if a formula outgrows its form: see `safely`."""
        if not len(slots):
            return _NONE
        order, starts = _grouped(slots)
        rows, found = slots[order[starts]], found[order]
        return self._merge_lazily(rows, found, starts) if self.lazy else self._merge_eagerly(rows, found, starts)

    def _merge_eagerly(self, rows: Codes, found: Codes, starts: Codes) -> Codes:
        algebra, old = self.algebra, self.published[rows]
        found = algebra.total(found, starts)
        new = algebra.plus(old, found)
        changed = new != old
        if len(self.gained):
            self.gained[rows[changed]] = algebra.plus(self.gained[rows], found)[changed]
        rows = rows[changed]
        self._note(rows)
        self._index(rows, found[changed])
        self.published[rows] = new[changed]
        return rows

    def _merge_lazily(self, rows: Codes, found: Codes, starts: Codes) -> Codes:
        fresh = self.published[rows] == 0
        new: Codes = rows[fresh]
        first = found[starts[fresh]]
        later, laters, buffered = self._later(rows, found, starts, fresh)
        self._note(new)
        self._note(later)
        self._index(new, first)
        self._index(later, laters)
        self.published[new] = first
        self.buffered[later] = buffered
        return new

    def _later(self, rows: Codes, found: Codes, starts: Codes, fresh: np.ndarray) -> tuple[Codes, Codes, Codes]:
        """Return the derivations to buffer, without those that rows publish for the first time and those that say
        nothing new: the rows, the sum of what each gets, and what it buffers then."""
        algebra, lengths = self.algebra, np.diff(starts, append=len(found)) - fresh
        some = lengths > 0
        if not some.any():
            return _NONE, _NONE, _NONE
        published = np.where(fresh, found[starts], self.published[rows])[some]
        if fresh.any():
            keep = np.ones(len(found), bool)
            keep[starts[fresh]] = False
            found, lengths = found[keep], lengths[some]
            starts = np.cumsum(lengths) - lengths
        laters, rows = algebra.total(found, starts), rows[some]
        useful = algebra.implied(laters, published) == 0
        rows, laters = rows[useful], laters[useful]
        buffered = algebra.plus(self.buffered[rows], laters)
        useful = buffered != self.buffered[rows]
        return rows[useful], laters[useful], buffered[useful]

    def without(self, variables: Codes) -> tuple[Codes, Codes]:
        """Put false in the place of variables (sorted, each once); return the slots that were released, and those
        lost."""
        slots = self.mentioning(variables)
        if not len(slots):
            return _NONE, _NONE

        def put_false() -> tuple[Codes, Codes]:
            without = self.algebra.without
            return without(self.published[slots], variables), without(self.buffered[slots], variables)

        published, buffered = self.safely(put_false)
        changed = (published != self.published[slots]) | (buffered != self.buffered[slots])
        slots, published, buffered = slots[changed], published[changed], buffered[changed]
        empty = published == 0
        released, lost = empty & (buffered != 0), empty & (buffered == 0)
        self._note(slots)
        self.published[slots] = np.where(empty, buffered, published)
        self.buffered[slots] = np.where(empty, 0, buffered)
        return slots[released], slots[lost]

    def flush(self) -> Codes:
        """Publish what is buffered, all of it; return the slots that now publish something else."""
        slots = np.flatnonzero(self.buffered[: self.slots])
        published = self.safely(lambda: self.algebra.plus(self.published[slots], self.buffered[slots]))
        self._note(slots)
        changed: Codes = slots[published != self.published[slots]]
        self.published[slots], self.buffered[slots] = published, 0
        return changed

    def mentioning(self, variables: Codes) -> Codes:
        """Return the slots whose formulas may mention a variable."""
        marks = self.algebra.mentioning(variables) if isinstance(self.algebra, Absorption) else None
        if marks is not None:
            found = marks[self.published[: self.slots]] | marks[self.buffered[: self.slots]]
            return np.flatnonzero((found != 0) & ~self._own[: self.slots])
        out = np.empty(self.slots, np.int64)
        self._mark += 1
        return out[: an.mentioning(self._first, self._entries, variables, self._marks, self._mark, out)]

    @property
    def _is_diagram(self) -> bool:
        """Return whether one look at all nodes says which slots mention a variable: then there is no index, for a
        diagram shares what an index of long formulas would repeat."""
        return isinstance(self.algebra, Absorption) and self.algebra.form == "bdd"

    def safely(self, step: Callable[[], T], *loose: Codes) -> T:
        """Do a step that changes nothing if it raises; once more, in another form, if a formula is too large.

        Handles have other numbers then: those that the step brings along are in `loose`, and change there."""
        try:
            return step()
        except AnnotationTooLarge:
            if not isinstance(self.algebra, Absorption):
                raise
            self.rename(self.algebra.switch, *loose)
            for member in self.members:
                member._index_all()
            return step()

    def rename(self, how: Callable[[Codes], Codes], *loose: Codes) -> None:
        """Give all formulas of this algebra the handles that `how` says, and the loose ones theirs."""
        members = self.members
        roots = [member._roots() for member in members] + list(loose)
        handles = how(np.concatenate(roots))
        parts = np.split(handles, np.cumsum([len(r) for r in roots])[:-1])
        for member, part in zip(members, parts, strict=False):
            member._take(part)
        for array, part in zip(loose, parts[len(members) :], strict=True):
            array[:] = part

    # -- epochs ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Forget what undo would need, and, where there is much of it, what no formula needs."""
        self._end()
        self.tidy()

    def tidy(self) -> None:
        """Forget formulas that no slot has, if these are many; loose handles are void then."""
        if self.algebra.grown:
            self.rename(self.algebra.collect)

    def undo(self) -> None:
        """Return every slot to what it was at the last commit."""
        log = self._log[: self._logged]
        self.published[log[:, 0]], self.buffered[log[:, 0]] = log[:, 1], log[:, 2]
        self.gained[:] = 0
        self._end()

    def _end(self) -> None:
        """Empty the log, and rebuild the index if most of it is no longer true."""
        self._logged = 0
        self._stamp += 1
        if self._count > 2 * self._settled + _FEW:
            self._index_all()

    def moved(self, places: Codes) -> None:
        """Move slot i to places[i], or forget it if that is -1; between epochs."""
        kept = np.flatnonzero(places >= 0)
        kept = kept[kept < self.slots]
        to = places[kept]
        self.slots = int(to.max()) + 1 if len(to) else 0
        for name in ("published", "buffered", "_own"):
            old = getattr(self, name)
            array = np.zeros(max(64, self.slots + self.slots // 4), old.dtype)
            array[to] = old[kept]
            setattr(self, name, array)
        self._stamps, self._marks = np.zeros_like(self.published), np.zeros_like(self.published)
        if len(self.gained):
            self.gained = np.zeros_like(self.published)
        self._index_all()

    def image(self) -> Image:
        """Return the handles, under the names that are stored; the algebra has an image of its own."""
        own = np.flatnonzero(self._own[: self.slots])
        return {"shown": self.published[: self.slots], "held": self.buffered[: self.slots], "own": own}

    def restore(self, image: Image) -> None:
        """Take handles of the algebra, which has been restored before."""
        published, buffered = image["shown"], image["held"]
        if published.shape != buffered.shape or published.ndim != 1:
            raise StaleImage("the annotations of a recursive component are laid out otherwise")
        self.slots = 0
        self.make_room(len(published))
        self.published[: len(published)], self.buffered[: len(buffered)] = published, buffered
        self._own[image["own"]] = True
        self._index_all()

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def formulas(self) -> Codes:
        """All formulas of slots, each once."""
        return np.unique(np.concatenate([self.published[: self.slots], self.buffered[: self.slots]]))

    @property
    def figures(self) -> AnnotationSize:
        rows, buffered = (int(np.count_nonzero(a[: self.slots])) for a in (self.published, self.buffered))
        return AnnotationSize(rows, buffered, self.algebra.nbytes(self.formulas), self.nbytes)

    @property
    def touched(self) -> int:
        """How many slots the epoch has changed so far."""
        return self._logged

    @property
    def nbytes(self) -> int:
        """Bytes of handles, index and log, without the formulas themselves."""
        slots = (self.published, self.buffered, self._own, self._stamps, self._marks)
        return sum(array.nbytes for array in (*slots, self._log, self._first, self._entries))

    # -- the log and the index ---------------------------------------------------------------------------------------

    def _note(self, slots: Codes) -> None:
        if not len(slots):
            return
        if self._logged + len(slots) > len(self._log):
            self._log = with_room(self._log, 2 * (self._logged + len(slots)))
        self._logged = an.note(self._stamps, self._stamp, slots, self.published, self.buffered, self._log, self._logged)

    def _index(self, slots: Codes, formulas: Codes) -> None:
        """Let slots be found by the variables of formulas."""
        if not len(slots) or self._is_diagram:
            return
        starts, variables = self.algebra.support(formulas)
        if self._count + len(variables) > len(self._entries):
            self._entries = with_room(self._entries, 2 * (self._count + len(variables)))
        if len(variables) and (last := int(variables.max())) >= len(self._first):
            more = np.full(2 * (last + 1) - len(self._first), -1, np.int64)
            self._first = np.concatenate([self._first, more])
        self._count = an.append(self._first, self._entries, self._count, slots, starts, variables)

    def _index_all(self) -> None:
        """Rebuild the index."""
        self._first, self._entries, self._count = np.full(64, -1, np.int64), np.zeros((64, 2), np.int64), 0
        slots = np.repeat(np.arange(self.slots), 2)  # published and buffered of one slot in turn: found once
        formulas = np.column_stack([self.published[: self.slots], self.buffered[: self.slots]]).ravel()
        some = (formulas > 1) & ~self._own[slots]
        self._index(np.ascontiguousarray(slots[some]), np.ascontiguousarray(formulas[some]))
        self._settled = self._count

    def _arrays(self) -> list[Codes]:
        """All handles there are."""
        log, used = self._log[: self._logged], self.slots
        return [self.gained[:used], self.published[:used], self.buffered[:used], log[:, 1], log[:, 2]]

    def _roots(self) -> Codes:
        return np.concatenate(self._arrays())

    def _take(self, handles: Codes) -> None:
        """Take the handles of `_roots`, changed."""
        at = 0
        for array in self._arrays():
            array[:] = handles[at : at + len(array)]
            at += len(array)


def _grouped(slots: Codes) -> tuple[Codes, Codes]:
    """Return an order that brings equal slots together, first come first, and where each run begins in it."""
    order = np.argsort(slots, kind="stable")
    starts = np.empty(len(slots), np.int64)
    return order, starts[: an.runs(slots, order, starts)]
