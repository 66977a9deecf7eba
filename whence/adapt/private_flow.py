"""A program on a dataflow of its own: no catalog, no log, no locks, no epochs that others see.

The optimizer's rules are SQL like any user's, planned and run by the same engine. Their rows are integers, so there is
nothing to encode. A run is committed at once; an error leaves the tables as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.components import build_fixpoint, build_outputs
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.program import Program, TableFunction
from whence.plan.partitions.distribute import PlannedComponent, plan_component
from whence.plan.recursion.strata import components
from whence.plan.rewrite.best_rows import select_aggregates
from whence.sql import statements as st
from whence.sql.bind import bind_table, bind_views
from whence.sql.parse import parse

_DEPTH = 1_000_000  # rounds of a recursion


class PrivateFlow:
    """Tables and views of integers, kept by the engine."""

    def __init__(self, script: str, functions: Iterable[TableFunction] = ()) -> None:
        self._dictionary = Dictionary()
        self._flow = Dataflow()
        self._making: dict[str, Operator] = {}
        self._builder = Builder(self._flow, self._dictionary, self._resolve)
        self._program = Program(table_functions={function.name: function for function in functions})
        creates = parse(script)
        for create in creates:
            if isinstance(create, st.CreateTable):
                self._program = bind_table(create, self._program)
        for name, table in self._program.tables.items():
            self._flow.table(name, table.schema, table.key)
        self.add([create for create in creates if isinstance(create, st.CreateView)])

    def _resolve(self, name: str) -> Operator:
        return self._making[name] if name in self._making else self._flow.views[name]

    def add(self, creates: Sequence[st.CreateView] | str) -> None:
        """Keep more views from now on, filled with what there is."""
        if isinstance(creates, str):
            creates = [create for create in parse(creates) if isinstance(create, st.CreateView)]
        self._program = bind_views(creates, self._program)
        planned = select_aggregates(self._program)
        self._making = dict(self._flow.views)
        for component in components(planned):
            if not {*component.views} <= {*self._making}:
                self._making |= self._build(plan_component(component, planned, _DEPTH))
        self._flow.install(self._making)
        self._making = {}
        self._flow.fill()
        self._flow.commit()
        self._builder.forget()

    def _build(self, piece: PlannedComponent) -> dict[str, Operator]:
        if piece.node is not None:
            (name,) = piece.views
            return {name: self._builder.build(piece.node)}
        assert piece.rules is not None
        assert piece.settings is not None
        fixpoint = build_fixpoint(piece.rules, self._builder, piece.views, piece.settings)
        return build_outputs(fixpoint, piece.views, piece.after, self._builder)

    def run(self, deltas: Mapping[str, tuple[Codes, Codes]], wanted: Collection[str] = ()) -> dict[str, Batch]:
        """Add signed rows to tables; return the changes of the views that are wanted."""
        batches = {name: Batch(rows, counts) for name, (rows, counts) in deltas.items() if len(counts)}
        try:
            changes = self._flow.run(batches, wanted=wanted)
        except BaseException:
            self._flow.undo()
            raise
        self._flow.commit()
        return changes

    def rows(self, view: str) -> Codes:
        """Return the rows of a view or table."""
        operator = self._flow.views.get(view) or self._flow.tables[view]
        return np.ascontiguousarray(operator.contents().rows)

    def size(self) -> int:
        """Return the bytes of all state."""
        return sum(part.nbytes for _, _, image in self._flow.parts() for part in _arrays(image))


def _arrays(image: Callable[[], Mapping[str, object]]) -> list[Codes]:
    return [part for part in image().values() if isinstance(part, np.ndarray)]
