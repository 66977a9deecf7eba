"""Answers of questions: base rows as people know them, (table, row by column), each with its numbers.

An answer is of one row of a view, or of a view as a whole, as of one epoch, and never changes. `exact` is False if it
was sampled, or if losing rows could bring about what the derivations do not have; then `caveat` says why.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.explain.graph import Derivations, Ints
from whence.explain.show.tree import printable
from whence.model.codes import Codes

if TYPE_CHECKING:
    import rich.table

    from whence.explain.ask import contribution, reliability, resilience

SHOWN = 20  # rows of a repr
BaseRow = tuple[str, dict[str, Any]]


_MAY_DIFFER = "; the true answer may differ: "  # where derivations do not say everything


@dataclass(frozen=True)
class Question:
    """What was asked: of which row of which view, when, and the derivations behind it. Without a row, of those rows
    that have the values of `where`, or of all."""

    graph: Derivations
    view: str
    row: dict[str, Any] | None
    epoch: int
    where: dict[str, Any] | None = None

    def __str__(self) -> str:
        return asked_about(self.view, self.row, self.where)


def asked_about(view: str, row: Mapping[str, Any] | None, where: Mapping[str, Any] | None = None) -> str:
    """Say what a question is about: a row, the rows of a view that have some values, or a view.

    >>> asked_about("v", {"a": 1, "b": None}), asked_about("v", None, {"a": 1}), asked_about("v", None)
    ('v(1, NULL)', 'v where a = 1', 'v')
    """
    if row is not None:
        return f"{view}({', '.join(map(_value, row.values()))})"
    if where is not None:
        return f"{view} where {', '.join(f'{name} = {_value(value)}' for name, value in where.items())}"
    return view


def _value(value: Any) -> str:
    return "NULL" if value is None else str(value)


class Answer:
    """Base rows in an order, as an answer has them."""

    def __init__(self, asked: Question, nodes: Ints):
        self._asked, self._nodes = asked, nodes
        self.view, self.row, self.epoch = asked.view, asked.row, asked.epoch
        self.exact, self.caveat = asked.graph.exact, asked.graph.caveat

    @property
    def rows(self) -> list[BaseRow]:
        return list(self)

    def __iter__(self) -> Iterator[BaseRow]:
        return iter(self._asked.graph.rows(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int) -> BaseRow:
        return self._asked.graph.rows(self._nodes[at : at + 1] if at >= 0 else self._nodes[at:][:1])[0]

    def __contains__(self, row: object) -> bool:
        return any(row == mine for mine in self)

    def _grid(self, title: str, columns: Sequence[tuple[str, Sequence[str]]], caption: str) -> rich.table.Table:
        """Draw a table of the first base rows, each with what else there is to say of it."""
        import rich.box
        import rich.table
        import rich.text

        if self.caveat:
            caption += _MAY_DIFFER + self.caveat
        if len(self) > SHOWN:
            caption = f"{SHOWN} of {caption}"
        out = rich.table.Table(
            title=rich.text.Text(printable(title), style="table.title"),
            caption=rich.text.Text(caption, style="table.caption"),
            box=rich.box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
            min_width=min(100, max(len(title), len(caption))),
        )
        out.add_column("base row", overflow="fold")
        for name, _ in columns:
            out.add_column(name, justify="right")
        for i, node in enumerate(self._nodes[:SHOWN].tolist()):
            out.add_row(rich.text.Text(printable(self._asked.graph.label(node))), *(values[i] for _, values in columns))
        return out

    def __rich__(self) -> rich.table.Table:
        raise NotImplementedError

    def __repr__(self) -> str:
        import rich.console

        out = io.StringIO()
        rich.console.Console(file=out, width=120, no_color=True).print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


class Critical(Answer):
    """Base rows whose loss alone takes rows along, and how many rows of the view each would take: most first.

    Of one row of a view every critical base row takes just that one. `of` is how many rows were asked about: all of the
    view, or those with the values of `where`. A base row is a distinct row of a table: losing it is losing all its
    copies.
    """

    def __init__(self, asked: Question, nodes: Ints, counts: Codes):
        super().__init__(asked, nodes)
        self.counts = counts
        self.of = len(asked.graph.roots)  # the rows that were asked about
        self.where = asked.where

    def items(self) -> list[tuple[BaseRow, int]]:
        """Return each base row with how many rows it would take along."""
        return list(zip(self, self.counts.tolist(), strict=True))

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"table": table, "row": row, "takes": count} for (table, row), count in self.items()]

    def __rich__(self) -> rich.table.Table:
        takes = [f"{count:,}" for count in self.counts[:SHOWN].tolist()]
        columns = [(f"takes along, of {self.of:,}", takes)] if self.row is None else []
        return self._grid(f"critical for {self._asked}", columns, _many(len(self)))


class Resilience(Answer):
    """A smallest set of base rows whose loss removes a row, and how many they are: `count`, None if no loss removes it.

    No set smaller than `at_least` removes it; if that is less than `count`, the search ended before it was certain that
    the set found is the smallest."""

    def __init__(self, asked: Question, found: resilience.SmallestLoss):
        super().__init__(asked, np.empty(0, np.int32) if found.rows is None else found.rows)
        self.count, self.at_least = found.size, found.low
        self.exact &= found.exact

    def to_dict(self) -> dict[str, Any]:
        rows = [{"table": table, "row": row} for table, row in self]
        return {"count": self.count, "at_least": self.at_least, "rows": rows, "exact": self.exact}

    def __rich__(self) -> rich.table.Table:
        if self.count is None:
            return self._grid(f"no loss removes {self._asked}", [], _many(0))
        least = (
            "the least" if self.count == self.at_least else f"the fewest found; at least {self.at_least:,} are needed"
        ) + (", by its present derivations" if self.caveat else "")
        return self._grid(f"a loss that removes {self._asked}", [], f"{_many(len(self))}, {least}")


class Contribution(Answer):
    """How much each base row matters to a row: its Shapley and Banzhaf values, greatest Shapley value first.

    `method` says whether they are exact or sampled; sampled ones are `error` away from the truth at most, each with
    this `confidence`."""

    def __init__(self, asked: Question, found: contribution.ShapleyValues):
        super().__init__(asked, found.rows)
        self.shapley, self.banzhaf = found.shapley, found.banzhaf
        self.method, self.nodes, self.samples = found.method, found.nodes, found.samples
        self.error, self.confidence = found.error, found.confidence
        self.exact &= found.method == "exact"

    def items(self) -> list[tuple[BaseRow, float, float]]:
        """Return each base row with its Shapley and Banzhaf values."""
        return list(zip(self, self.shapley.tolist(), self.banzhaf.tolist(), strict=True))

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"table": t, "row": r, "shapley": s, "banzhaf": b} for (t, r), s, b in self.items()]

    def __rich__(self) -> rich.table.Table:
        how = "by its present derivations" if self.caveat else "exact"
        if self.method == "sampled":
            how = f"from {self.samples:,} samples, within {self.error:.2g} at {self.confidence:.0%}"
        columns = [
            (name, [f"{value:.4f}" for value in values[:SHOWN].tolist()])
            for name, values in (("Shapley", self.shapley), ("Banzhaf", self.banzhaf))
        ]
        return self._grid(f"contributions to {self._asked}", columns, f"{_many(len(self))}, {how}")


class Reliability:
    """The probability that a row is there, and the interval it lies in with this `confidence`; of an exact one that is
    the probability itself. `method` says whether it is exact or sampled."""

    def __init__(self, asked: Question, found: reliability.Probability):
        self._asked = asked
        self.view, self.row, self.epoch = asked.view, asked.row, asked.epoch
        self.exact, self.caveat = asked.graph.exact and found.method == "exact", asked.graph.caveat
        self.probability, self.low, self.high = found.probability, found.low, found.high
        self.method, self.nodes, self.samples, self.confidence = (
            found.method,
            found.nodes,
            found.samples,
            found.confidence,
        )

    def __float__(self) -> float:
        return self.probability

    def to_dict(self) -> dict[str, Any]:
        names = ("view", "row", "epoch", "probability", "low", "high", "method", "nodes", "samples", "confidence")
        return {name: getattr(self, name) for name in (*names, "exact", "caveat")}

    def __str__(self) -> str:
        how = "by its present derivations" if self.caveat else "exact"
        if self.method == "sampled":
            how = f"{self.low:.6g} to {self.high:.6g} at {self.confidence:.0%}, from {self.samples:,} samples"
        more = _MAY_DIFFER + self.caveat if self.caveat else ""
        return f"{self._asked} is there with probability {self.probability:.6g} ({how}){more}"

    __repr__ = __str__


def _many(count: int) -> str:
    return f"{count:,} base row{'s' * (count != 1)}"
