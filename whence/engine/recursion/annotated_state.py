"""Annotated state: the store of a component, the formulas of its rows, and the variables of its external rows.

It is one object, so that an epoch that has to begin anew can set it aside whole, and put it back.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image, inside, nested, with_room
from whence.engine.recursion.annotations import Annotations
from whence.engine.recursion.kernels import heads as hd
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.row_variables import RowVariables
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import Codes
from whence.model.word_marks import WordMarks


class AnnotatedState:
    """What an annotated policy keeps; `origin` gives, for each relation, the one that its rows' variables are of."""

    def __init__(self, runner: RuleRunner, annotations: Annotations, origin: Codes):
        self.store, self.annotations, self._origin = runner.store, annotations, origin
        self.formulas = annotations.algebra
        self.variables = RowVariables(runner.rules.columns)
        self.variable_of: Codes = np.full(64, -1, np.int64)  # by slot: the variable of its row, -1 for none yet
        self.placed: np.ndarray = np.zeros(64, bool)  # by variable: whether it has a place in the order of formulas

    # -- variables ---------------------------------------------------------------------------------------------------

    def variables_of(self, slots: Codes) -> Codes:
        """Return the variables of external slots."""
        if (used := int(self.store.k.scalar[st.S_ROWS])) > len(self.variable_of):
            longer = np.full(2 * used, -1, np.int64)
            longer[: len(self.variable_of)] = self.variable_of
            self.variable_of = longer
        variables = self.variable_of[slots]
        if (variables < 0).any():
            new = slots[variables < 0]
            relations, cells = self.store.describe(new)
            self.variable_of[new] = self.variables.of(self._origin[relations], cells)
            variables = self.variable_of[slots]
        return variables

    def variables_now(self, slots: Codes) -> Codes:
        """Return the variables of rows as they are, derived ones too: a group by its value; -1 for slot -1."""
        variables = np.full(len(slots), -1, np.int64)
        there = slots >= 0
        relations, cells = self.store.describe(slots[there])
        variables[there] = self.variables.of(self._origin[relations], cells)
        return variables

    def move(self, places: Codes) -> None:
        """Follow slots that have moved to `places`; give up variables that nothing has any more."""
        self.annotations.moved(places)
        variable_of = np.full(max(64, self.annotations.slots), -1, np.int64)
        known = self.variable_of[: len(places)]
        kept = np.flatnonzero((places[: len(known)] >= 0) & (known >= 0))
        variable_of[places[kept]] = self.variable_of[kept]
        self.variable_of = variable_of
        mentioned, _ = self.formulas.pack(self.annotations.formulas)
        self.variables.keep(np.concatenate([mentioned, variable_of[variable_of >= 0]]))

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        own = self.store.nbytes + self.variables.nbytes + self.variable_of.nbytes
        return own + sum(self.annotations.figures[2:])

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that slots and variables refer to, between two epochs."""
        self.store.mark_words(marks, dead=True)
        self.variables.mark_words(marks, [r.schema.types for r in self.store.compiled.program.relations])

    def image(self) -> Image:
        """Return the state between two epochs, under the names that are stored."""
        return {
            **nested("memory", self.store.image()),
            **nested("annotations", self.annotations.image()),
            **nested("functions", self.formulas.image()),
            **nested("names", self.variables.image()),
            "named": self.variable_of[: int(self.store.k.scalar[st.S_ROWS])],
            "placed": self.placed[: len(self.variables.image()["rows"])],
        }

    def restore(self, image: Image) -> None:
        """Take the state from an image; if it does not fit, an error is raised and this is not to be used."""
        self.store.restore(inside("memory", image))
        self.formulas.restore(inside("functions", image))
        self.annotations.restore(inside("annotations", image))
        self.variables.restore(inside("names", image))
        self.variable_of = np.full(max(64, len(image["named"])), -1, np.int64)
        self.variable_of[: len(image["named"])] = image["named"]
        self.placed = with_room(image["placed"], max(64, len(image["placed"])))

    # -- reading -----------------------------------------------------------------------------------------------------

    def annotations_together(self, parts: list[tuple[int, Codes]]) -> Codes:
        """Return what is known to suffice for the first row of each part at once, for the second of each, and so on."""
        annotations, slots = self.annotations, [np.empty(len(rows), np.int64) for _, rows in parts]
        for (relation, rows), found in zip(parts, slots, strict=True):
            hd.find_rows(self.store.k.address, relation, np.ascontiguousarray(rows), found)

        def product() -> Codes:
            whole, formulas = np.ones(len(slots[0]), np.int64), self.formulas
            for found in slots:
                known = formulas.plus(annotations.published[found], annotations.buffered[found])
                whole = formulas.times(whole, np.where(found >= 0, known, 0))
            return whole

        return annotations.safely(product)
