"""A Trace: where an input of a stream went, view by view."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.explain.show.page import write_out
from whence.explain.show.tree import Line, printable, text_of, tree_html
from whence.io import html
from whence.io.files import json_line
from whence.model.codes import Codes

if TYPE_CHECKING:
    import rich.text

SHOWN = 10  # results of a view that are told


@dataclass(frozen=True)
class Reached:
    """The results of one view that came from an input (`Trace.views`). Iterating yields their rows, `len` counts them.

    tids      of the results
    rows      the results, as dicts
    complete  False if there may have been others, which the view no longer retains

    >>> db = whence.open(); _ = db.execute("CREATE STREAM s (x INT)")
    >>> _ = db.execute("CREATE VIEW v WITH (provenance = 'lineage') AS SELECT x * 2 AS y FROM s")
    >>> _ = db.insert("s", [(1,), (2,)]); found = db.trace("s", 2)["v"]; found.tids.tolist(), found.rows, found.complete
    ([2], [{'y': 4}], True)
    """

    tids: Codes
    rows: list[dict[str, Any]]
    complete: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


@dataclass(frozen=True)
class Trace:
    """What came of one row of a stream (`Database.trace`). Printed, it is a tree: the row, the views, their results.

    stream, tid, row  the row that was asked about
    epoch             when
    views             for each view that is traced from the stream, the results that the row `Reached`; `trace[view]` is
                      one

    >>> db = whence.open()
    >>> _ = db.execute("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'lineage') AS "
    ...                "SELECT SUM(x) AS s FROM slide(a, rows => 2, every => 1)")
    >>> _ = db.insert("a", [(1,), (2,), (3,)])
    >>> trace = db.trace("a", 2); trace.tids, trace.rows, len(trace)
    ({'b': [1, 2]}, [('b', {'s': 3}), ('b', {'s': 5})], 2)
    >>> print(trace)
    a:2(2) at epoch 1: reached 2 results
      b: 2
        b:1(3)
        b:2(5)
    >>> trace.label, trace.summary == trace.text().plain.splitlines()[0]
    ('a:2(2)', True)
    >>> trace.to_dict()["views"]["b"]["results"][0], len(trace.to_json("trace.json")) > 100
    ({'tid': 1, 'row': {'s': 3}}, True)
    """

    stream: str
    tid: int
    row: dict[str, Any]
    epoch: int
    views: dict[str, Reached]

    def __getitem__(self, view: str) -> Reached:
        return self.views[view]

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        """Count the results."""
        return sum(map(len, self.views.values()))

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def tids(self) -> dict[str, list[int]]:
        """Return the tids of the results, by view."""
        return {view: found.tids.tolist() for view, found in self.views.items()}

    @property
    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all results, each with its view."""
        return [(view, row) for view, found in self.views.items() for row in found]

    @property
    def label(self) -> str:
        """The row as people read it."""
        return _label(self.stream, self.tid, self.row)

    @property
    def summary(self) -> str:
        """Say in one sentence how many results it reached."""
        count = len(self)
        return f"{self.label} at epoch {self.epoch}: reached {count:,} result{'s' * (count != 1)}"

    def lines(self, limit: int = SHOWN) -> Iterable[Line]:
        """Yield the text, line by line."""
        yield Line("", self.summary, "bold")
        for view, found in self.views.items():
            more = "" if found.complete else "; there may have been others, which are no longer kept"
            yield Line("  ", f"{view}: {len(found):,}{more}", "cyan")
            for tid, row in zip(found.tids[:limit].tolist(), found.rows, strict=False):
                yield Line("    ", _label(view, tid, row), "green")
            if len(found) > limit:
                yield Line("    ", f"… and {len(found) - limit:,} more", "dim")

    def text(self, limit: int = SHOWN) -> rich.text.Text:
        """Return the tree as rich text, with at most `limit` results per view."""
        return text_of(self.lines(limit))

    def __rich__(self) -> rich.text.Text:
        return self.text()

    def _repr_html_(self) -> str:
        return html.fragment(tree_html(self.lines()))

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines()))

    def __repr__(self) -> str:
        return f"<{printable(self.summary)}>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything: stream, tid, row, epoch, and by view the results, each with its tid."""
        views = {
            view: {
                "complete": found.complete,
                "results": [{"tid": t, "row": r} for t, r in zip(found.tids.tolist(), found.rows, strict=True)],
            }
            for view, found in self.views.items()
        }
        return {"stream": self.stream, "tid": self.tid, "row": self.row, "epoch": self.epoch, "views": views}

    def to_json(self, path: str | Path | None = None) -> str:
        """Write JSON, to `path` if that is given; values are as in JSON lines that `whence` writes."""
        return write_out(json.dumps(json.loads(json_line(self.to_dict())), ensure_ascii=False, indent=1), path)


def _label(name: str, tid: int, row: dict[str, Any]) -> str:
    shown = ", ".join("NULL" if value is None else str(value) for value in row.values())
    return f"{name}:{tid}({shown})"
