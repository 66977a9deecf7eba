"""Results that joins in bounded memory have missed: `db.missed(view)`, and what metrics say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whence.engine.core.dataflow import Dataflow
from whence.engine.streams.late import operators_of
from whence.engine.streams.stream import Missed
from whence.model.errors import CatalogError

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def missed(coordinator: Coordinator, name: str) -> Missed:
    """Return what the join of a view has missed."""
    with coordinator.reading():
        coordinator.reader.schema(name)
        view = coordinator.program.views.get(name)
        if view is None or view.memory is None:
            raise CatalogError(f'"{name}" is exact: only views WITH (memory = …) miss rows')
        return add_up(coordinator.catalog.backend.missed(name))


def add_up(parts: Iterable[Missed]) -> Missed:
    """Add up what several joins have missed, each for itself.

    >>> add_up([Missed(3), Missed(20, 4.0, False), Missed(10, 3.0, False)])
    Missed(rows=33, error=5.0, is_exact=False)
    """
    found = list(parts)
    error = math.hypot(*(part.error for part in found))
    return Missed(sum(part.rows for part in found), error, all(part.is_exact for part in found))


def missed_under(flow: Dataflow, name: str) -> list[Missed]:
    """Return what each join of a view in a dataflow has missed."""
    operators = operators_of(flow.views[name], flow.views)
    return [found for op in operators if isinstance(found := getattr(op, "missed", None), Missed)]


def missed_rows(coordinator: Coordinator) -> dict[str, int]:
    """Return how many rows each view that misses some has missed."""
    bounded = [name for name, view in coordinator.program.views.items() if view.memory is not None]
    backend = coordinator.catalog.backend
    return {name: add_up(backend.missed(name)).rows for name in bounded}
