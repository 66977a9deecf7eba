"""Origins: an Explanation of a row of a stream. It stands on the inputs it came from, which have tids."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from whence.explain.show.explanation import BaseRow, Explanation
from whence.explain.show.fragment import explanation_html
from whence.explain.show.tree import Line, Tree, TreeLimits


class Origins(Explanation):
    """The explanation of a row of a stream: the inputs it came from, which have tids.

    tid  of the result

    >>> db = whence.open()
    >>> _ = db.execute("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'lineage') AS "
    ...                "SELECT SUM(x) AS s FROM slide(a, rows => 2, every => 1)")
    >>> _ = db.insert("a", [(1,), (2,), (3,)])
    >>> why = db.why("b", s=5); why.tid, why.tids
    (2, {'a': [2, 3]})
    >>> why.rows
    [('a', {'tid': 2, 'x': 2}), ('a', {'tid': 3, 'x': 3})]
    >>> why.summary, why.to_dict()["tids"]
    ('b:2(5) at epoch 1: from 2 rows of a', {'a': [2, 3]})
    """

    tid: int = 0

    @cached_property
    def tids(self) -> dict[str, list[int]]:
        """The tids of its inputs by source, ascending."""
        graph = self.graph
        found: dict[str, list[int]] = {}
        for number, relation in enumerate(graph.relations):
            if relation.kind == "base" and number:
                found[relation.name] = np.sort(graph.cells[number][:, 0]).tolist()
        return found

    @property
    def rows(self) -> list[BaseRow]:
        """The inputs: pairs of a source and a row, whose first column is the tid."""
        return self.base

    @property
    def summary(self) -> str:
        """Say in one sentence what the result came from."""
        if not self.holds:
            return super().summary
        parts = [f"{len(tids):,} row{'s' * (len(tids) != 1)} of {source}" for source, tids in self.tids.items()]
        came = f"from {' and '.join(parts)}" if parts else "an input" if len(self.graph.base) else "from no traced row"
        return f"{self.graph.label(self.root)} at epoch {self.epoch}: {came}"

    def lines(self, limits: TreeLimits | None = None) -> Iterable[Line]:
        """Yield the text, line by line: the result, and its inputs."""
        yield Line("", self.summary, "bold")
        if not self.holds:
            yield from (Line("  ", reason) for reason in self.reasons)
            return
        yield from Tree(self._ways, limits or TreeLimits()).lines(self.root)

    def _repr_html_(self) -> str:
        return explanation_html(self, losses=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as `to_json` has it; `tid` and `tids` come on top."""
        found = super().to_dict()
        return {**found, "tid": self.tid, "tids": self.tids} if self.holds else found
