"""Annotations of the slots of a store: what others join with, and what is held back.

Each slot has two functions of base rows: `shown`, which rows derived from this one are annotated with, and `held`,
derivations that came later and that nobody has been told of (MinShip's buffer).

Law. For every derivation of a row, shown or held has the product of what its body rows show. Functions are monotone
and only ever get derivations, so each says sets of base rows that suffice, and a row is derivable exactly when one of
them is not false. When base rows die, false is put in their place (`without`), which keeps the law; a row that then
shows nothing but holds something shows that (it is *released*, and must be told of), and one that has neither is lost.

Lazily, a row shows its first derivation until that dies. Eagerly it shows all, so that every new derivation is told of.

State: two handles a slot, and for each variable a list of slots that mention it, which only grows: entries that are no
longer true are passed over, and lists are made anew when most are. (A diagram needs none.) What an epoch changes is
logged at its first touch, for `undo`. Cost: what changes; a deletion looks at the slots in its variables' lists, or
once at a whole diagram.
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
_FEW = 4096  # entries of the index that are not worth making it anew


class AnnotationSize(NamedTuple):
    """Annotated slots, those that hold something back, and the bytes of all functions and of what is kept of them."""

    rows: int
    held: int
    bytes: int
    state: int


class Annotations:
    """The functions of one store's slots. Those that share an algebra are `beside` each other: handles move in all."""

    def __init__(self, algebra: Provenance, lazy: bool = True, beside: Annotations | None = None):
        self.algebra, self.lazy = algebra, lazy
        self.members: list[Annotations] = beside.members if beside is not None else []
        self.members.append(self)
        self.slots = 0
        self.shown: Codes = np.zeros(64, np.int64)
        self.held: Codes = np.zeros(64, np.int64)
        self._own: np.ndarray = np.zeros(64, bool)  # slots that show what was put there: variables
        self._stamps, self._stamp = np.zeros(64, np.int64), 1
        self._log, self._logged = np.empty((64, 3), np.int64), 0
        self._marks, self._mark = np.zeros(64, np.int64), 0
        self._first: Codes = np.full(64, -1, np.int64)  # by variable: its newest entry
        self._entries: Codes = np.zeros((64, 2), np.int64)  # a slot, and the entry before
        self._count = self._settled = 0  # entries, now and when the index was made anew

    def make_room(self, slots: int) -> None:
        """Slots below this number may be spoken of."""
        self.slots = max(self.slots, slots)
        if slots > len(self.shown):
            length = max(slots, 2 * len(self.shown))
            for name in ("shown", "held", "_own", "_stamps", "_marks"):
                setattr(self, name, with_room(getattr(self, name), length))

    # -- changes -----------------------------------------------------------------------------------------------------

    def put(self, slots: Codes, shown: Codes) -> None:
        """Let slots show these functions alone; who puts them there sees to them, `without` does not."""
        self._note(slots)
        self._own[slots] |= shown != 0
        self.shown[slots], self.held[slots] = shown, 0

    def clear(self, slots: Codes) -> None:
        """Let slots show and hold nothing."""
        self.put(slots, np.zeros(len(slots), np.int64))

    def merge(self, slots: Codes, found: Codes) -> Codes:
        """Take derivations found[i], not false, of slots[i], of which there may be several; the slots that now show
        something else. TooLarge, and no change, if a function outgrows its form: see `safely`."""
        if not len(slots):
            return _NONE
        order, starts = _grouped(slots)
        rows, found = slots[order[starts]], found[order]
        return self._merge_lazily(rows, found, starts) if self.lazy else self._merge_eagerly(rows, found, starts)

    def _merge_eagerly(self, rows: Codes, found: Codes, starts: Codes) -> Codes:
        algebra, old = self.algebra, self.shown[rows]
        found = algebra.total(found, starts)
        new = algebra.plus(old, found)
        changed = new != old
        rows = rows[changed]
        self._note(rows)
        self._index(rows, found[changed])
        self.shown[rows] = new[changed]
        return rows

    def _merge_lazily(self, rows: Codes, found: Codes, starts: Codes) -> Codes:
        fresh = self.shown[rows] == 0
        new: Codes = rows[fresh]
        first = found[starts[fresh]]
        later, laters, held = self._later(rows, found, starts, fresh)
        self._note(new)
        self._note(later)
        self._index(new, first)
        self._index(later, laters)
        self.shown[new] = first
        self.held[later] = held
        return new

    def _later(self, rows: Codes, found: Codes, starts: Codes, fresh: np.ndarray) -> tuple[Codes, Codes, Codes]:
        """The derivations to hold, without those that rows show for the first time and those that say nothing new: the
        rows, the sum of what each gets, and what it holds then."""
        algebra, lengths = self.algebra, np.diff(starts, append=len(found)) - fresh
        some = lengths > 0
        if not some.any():
            return _NONE, _NONE, _NONE
        shown = np.where(fresh, found[starts], self.shown[rows])[some]
        if fresh.any():
            keep = np.ones(len(found), bool)
            keep[starts[fresh]] = False
            found, lengths = found[keep], lengths[some]
            starts = np.cumsum(lengths) - lengths
        laters, rows = algebra.total(found, starts), rows[some]
        useful = algebra.implied(laters, shown) == 0
        rows, laters = rows[useful], laters[useful]
        held = algebra.plus(self.held[rows], laters)
        useful = held != self.held[rows]
        return rows[useful], laters[useful], held[useful]

    def without(self, variables: Codes) -> tuple[Codes, Codes]:
        """Put false in the place of variables (sorted, each once): the slots that were released, and those lost."""
        slots = self.mentioning(variables)
        if not len(slots):
            return _NONE, _NONE

        def put_false() -> tuple[Codes, Codes]:
            without = self.algebra.without
            return without(self.shown[slots], variables), without(self.held[slots], variables)

        shown, held = self.safely(put_false)
        changed = (shown != self.shown[slots]) | (held != self.held[slots])
        slots, shown, held = slots[changed], shown[changed], held[changed]
        empty = shown == 0
        released, lost = empty & (held != 0), empty & (held == 0)
        self._note(slots)
        self.shown[slots] = np.where(empty, held, shown)
        self.held[slots] = np.where(empty, 0, held)
        return slots[released], slots[lost]

    def flush(self) -> Codes:
        """Show what is held, all of it; the slots that now show something else."""
        slots = np.flatnonzero(self.held[: self.slots])
        shown = self.safely(lambda: self.algebra.plus(self.shown[slots], self.held[slots]))
        self._note(slots)
        changed: Codes = slots[shown != self.shown[slots]]
        self.shown[slots], self.held[slots] = shown, 0
        return changed

    def mentioning(self, variables: Codes) -> Codes:
        """The slots whose functions may mention a variable."""
        marks = self.algebra.mentioning(variables) if isinstance(self.algebra, Absorption) else None
        if marks is not None:
            found = marks[self.shown[: self.slots]] | marks[self.held[: self.slots]]
            return np.flatnonzero((found != 0) & ~self._own[: self.slots])
        out = np.empty(self.slots, np.int64)
        self._mark += 1
        return out[: an.mentioning(self._first, self._entries, variables, self._marks, self._mark, out)]

    @property
    def _is_diagram(self) -> bool:
        """Whether one look at all nodes says who mentions a variable: then there is no index, for a diagram shares what
        an index of long functions would repeat."""
        return isinstance(self.algebra, Absorption) and self.algebra.form == "bdd"

    def safely(self, step: Callable[[], T], *loose: Codes) -> T:
        """Do a step that changes nothing if it raises; once more, in another form, if a function is too large.

        Handles have other numbers then: those that the step brings along stand in `loose`, and change there."""
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
        """Give all functions of this algebra the handles that it says, and the loose ones theirs."""
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
        """Forget what undo would need, and, where there is much of it, what no function needs."""
        self._end()
        self.tidy()

    def tidy(self) -> None:
        """Forget functions that nobody has, if these are many; loose handles are void then."""
        if self.algebra.grown:
            self.rename(self.algebra.collect)

    def undo(self) -> None:
        """Every slot as it was at the last commit."""
        log = self._log[: self._logged]
        self.shown[log[:, 0]], self.held[log[:, 0]] = log[:, 1], log[:, 2]
        self._end()

    def _end(self) -> None:
        """Empty the log, and make the index anew if most of it is no longer true."""
        self._logged = 0
        self._stamp += 1
        if self._count > 2 * self._settled + _FEW:
            self._index_all()

    def moved(self, places: Codes) -> None:
        """Slot i is places[i] from now on, or gone if that is -1; between epochs."""
        kept = np.flatnonzero(places >= 0)
        kept = kept[kept < self.slots]
        to = places[kept]
        self.slots = int(to.max()) + 1 if len(to) else 0
        for name in ("shown", "held", "_own"):
            old = getattr(self, name)
            array = np.zeros(max(64, self.slots + self.slots // 4), old.dtype)
            array[to] = old[kept]
            setattr(self, name, array)
        self._stamps, self._marks = np.zeros_like(self.shown), np.zeros_like(self.shown)
        self._index_all()

    def image(self) -> Image:
        """The handles; the algebra they belong to has an image of its own."""
        own = np.flatnonzero(self._own[: self.slots])
        return {"shown": self.shown[: self.slots], "held": self.held[: self.slots], "own": own}

    def restore(self, image: Image) -> None:
        """Take handles of the algebra, which has been restored before."""
        shown, held = image["shown"], image["held"]
        if shown.shape != held.shape or shown.ndim != 1:
            raise StaleImage("the annotations of a recursive component are laid out otherwise")
        self.slots = 0
        self.make_room(len(shown))
        self.shown[: len(shown)], self.held[: len(held)] = shown, held
        self._own[image["own"]] = True
        self._index_all()

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> Codes:
        """All functions of slots, each once."""
        return np.unique(np.concatenate([self.shown[: self.slots], self.held[: self.slots]]))

    @property
    def figures(self) -> AnnotationSize:
        rows, held = (int(np.count_nonzero(a[: self.slots])) for a in (self.shown, self.held))
        return AnnotationSize(rows, held, self.algebra.nbytes(self.functions), self.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of handles, index and log, without the functions themselves."""
        arrays = (self.shown, self.held, self._own, self._stamps, self._marks, self._log, self._first, self._entries)
        return sum(array.nbytes for array in arrays)

    # -- the log and the index ---------------------------------------------------------------------------------------

    def _note(self, slots: Codes) -> None:
        if not len(slots):
            return
        if self._logged + len(slots) > len(self._log):
            self._log = with_room(self._log, 2 * (self._logged + len(slots)))
        self._logged = an.note(self._stamps, self._stamp, slots, self.shown, self.held, self._log, self._logged)

    def _index(self, slots: Codes, functions: Codes) -> None:
        """Let slots be found by the variables of functions."""
        if not len(slots) or self._is_diagram:
            return
        starts, variables = self.algebra.support(functions)
        if self._count + len(variables) > len(self._entries):
            self._entries = with_room(self._entries, 2 * (self._count + len(variables)))
        if len(variables) and (last := int(variables.max())) >= len(self._first):
            more = np.full(2 * (last + 1) - len(self._first), -1, np.int64)
            self._first = np.concatenate([self._first, more])
        self._count = an.append(self._first, self._entries, self._count, slots, starts, variables)

    def _index_all(self) -> None:
        """Make the index anew."""
        self._first, self._entries, self._count = np.full(64, -1, np.int64), np.zeros((64, 2), np.int64), 0
        slots = np.repeat(np.arange(self.slots), 2)  # shown and held of one slot in turn: found once
        functions = np.column_stack([self.shown[: self.slots], self.held[: self.slots]]).ravel()
        some = (functions > 1) & ~self._own[slots]
        self._index(np.ascontiguousarray(slots[some]), np.ascontiguousarray(functions[some]))
        self._settled = self._count

    def _roots(self) -> Codes:
        log = self._log[: self._logged]
        return np.concatenate([self.shown[: self.slots], self.held[: self.slots], log[:, 1], log[:, 2]])

    def _take(self, handles: Codes) -> None:
        """The handles of `_roots`, changed."""
        log = self._log[: self._logged]
        ends = np.cumsum([self.slots, self.slots, len(log)])
        parts = np.split(handles, ends)
        self.shown[: self.slots], self.held[: self.slots], log[:, 1], log[:, 2] = parts


def _grouped(slots: Codes) -> tuple[Codes, Codes]:
    """An order that brings equal slots together, first come first, and where each run begins in it."""
    order = np.argsort(slots, kind="stable")
    starts = np.empty(len(slots), np.int64)
    return order, starts[: an.runs(slots, order, starts)]
