"""Answers of questions: base rows as people know them, (table, row by column), each with its numbers.

An answer is of one row of a view, or of a view as a whole, as of one epoch, and never changes. `exact` is False if it
was sampled, or if losing rows could bring about what the derivations do not have; then `caveat` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.explain.graph import Derivations, Ints
from whence.explain.show.tree import printable
from whence.io import html
from whence.io.grid import SHOWN, Grid, plain
from whence.model.codes import Codes

if TYPE_CHECKING:
    from whence.explain.ask import contribution, reliability, resilience

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
    """Base rows in an order, as `Critical`, `Resilience` and `Contribution` have them. Iterating yields pairs of a
    table and a row; `len`, `in` and `answer[0]` work as on a list.

    view, row, epoch  what was asked, and when; `row` is None if it was not about one row
    exact             False if the answer was sampled, or if losing rows could bring about what the derivations do not
                      have
    caveat            why it is not exact

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
    >>> found = db.critical("b", x=1); found.rows, len(found), found[0] in found, found.exact
    ([('a', {'x': 1, 'y': 1})], 1, True, True)
    """

    def __init__(self, asked: Question, nodes: Ints):
        self._asked, self._nodes = asked, nodes
        self.view, self.row, self.epoch = asked.view, asked.row, asked.epoch
        self.exact, self.caveat = asked.graph.exact, asked.graph.caveat

    @property
    def rows(self) -> list[BaseRow]:
        """The base rows: pairs of a table and a row."""
        return list(self)

    def __iter__(self) -> Iterator[BaseRow]:
        return iter(self._asked.graph.rows(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int) -> BaseRow:
        return self._asked.graph.rows(self._nodes[at : at + 1] if at >= 0 else self._nodes[at:][:1])[0]

    def __contains__(self, row: object) -> bool:
        return any(row == mine for mine in self)

    def _grid(self, title: str, columns: Sequence[tuple[str, Sequence[str]]], caption: str) -> Grid:
        """Describe a table of the first base rows, each with what else there is to say of it."""
        if self.caveat:
            caption += _MAY_DIFFER + self.caveat
        if len(self) > SHOWN:
            caption = f"{SHOWN} of {caption}"
        labels = map(printable, self._asked.graph.labels(self._nodes[:SHOWN]))
        rows = [(label, *(values[i] for _, values in columns)) for i, label in enumerate(labels)]
        names = ["base row", *(name for name, _ in columns)]
        return Grid(names, rows, len(self), printable(title), caption, right=[i > 0 for i in range(len(names))])

    def __rich__(self) -> Grid:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.__rich__().html()

    def __repr__(self) -> str:
        return plain(self)


class Critical(Answer):
    """Base rows whose loss alone takes rows along (`Database.critical`), most first. A base row is a distinct row of a
    table: losing it is losing all its copies.

    counts  how many rows of the view each would take along; of one row, just that one
    of      how many rows were asked about
    where   the columns that those rows were chosen by, or None

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
    >>> found = db.critical("b"); found.items(), found.of
    ([(('a', {'x': 1, 'y': 1}), 1)], 2)
    >>> found.to_dicts()
    [{'table': 'a', 'row': {'x': 1, 'y': 1}, 'takes': 1}]
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
        """Return each base row as a dict of its table, the row, and how many rows it takes along."""
        return [{"table": table, "row": row, "takes": count} for (table, row), count in self.items()]

    def __rich__(self) -> Grid:
        takes = [f"{count:,}" for count in self.counts[:SHOWN].tolist()]
        columns = [(f"takes along, of {self.of:,}", takes)] if self.row is None else []
        return self._grid(f"critical for {self._asked}", columns, _many(len(self)))


class Resilience(Answer):
    """A smallest set of base rows whose loss removes a row (`Database.resilience`).

    count     how many they are; None if no loss removes the row
    at_least  no smaller set removes it; if that is less than `count`, the search ended before it was certain that the
              set found is the smallest
    exact     whether the set is a smallest one

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
    >>> found = db.resilience("b", x=2); found.count, found.rows
    (2, [('a', {'x': 2, 'y': 1}), ('a', {'x': 2, 'y': 2})])
    >>> found.to_dict()["at_least"], found.exact
    (2, True)
    """

    def __init__(self, asked: Question, found: resilience.SmallestLoss):
        super().__init__(asked, np.empty(0, np.int32) if found.rows is None else found.rows)
        self.count, self.at_least = found.size, found.low
        self.exact &= found.exact

    def to_dict(self) -> dict[str, Any]:
        """Return everything: count, at_least, rows, exact."""
        rows = [{"table": table, "row": row} for table, row in self]
        return {"count": self.count, "at_least": self.at_least, "rows": rows, "exact": self.exact}

    def __rich__(self) -> Grid:
        if self.count is None:
            return self._grid(f"no loss removes {self._asked}", [], _many(0))
        least = (
            "the least" if self.count == self.at_least else f"the fewest found; at least {self.at_least:,} are needed"
        ) + (", by its present derivations" if self.caveat else "")
        return self._grid(f"a loss that removes {self._asked}", [], f"{_many(len(self))}, {least}")


class Contribution(Answer):
    """How much each base row matters to a row (`Database.contribution`), greatest Shapley value first.

    shapley, banzhaf  the values, in the order of the rows
    method            "exact" or "sampled"
    nodes, samples    the size of the decision diagram, and how many samples were drawn
    error             sampled values are at most so far from the truth, each with this `confidence`
    exact             whether they are exact

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
    >>> found = db.contribution("b", x=1); found.method, found.items()
    ('exact', [(('a', {'x': 1, 'y': 1}), 1.0, 1.0)])
    >>> found.to_dicts()
    [{'table': 'a', 'row': {'x': 1, 'y': 1}, 'shapley': 1.0, 'banzhaf': 1.0}]
    """

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
        """Return each base row as a dict of its table, the row, and its values."""
        return [{"table": t, "row": r, "shapley": s, "banzhaf": b} for (t, r), s, b in self.items()]

    def __rich__(self) -> Grid:
        how = "by its present derivations" if self.caveat else "exact"
        if self.method == "sampled":
            how = f"from {self.samples:,} samples, within {self.error:.2g} at {self.confidence:.0%}"
        columns = [
            (name, [f"{value:.4f}" for value in values[:SHOWN].tolist()])
            for name, values in (("Shapley", self.shapley), ("Banzhaf", self.banzhaf))
        ]
        return self._grid(f"contributions to {self._asked}", columns, f"{_many(len(self))}, {how}")


class Reliability:
    """The probability that a row is there (`Database.reliability`); `float` of it is the probability.

    view, row, epoch  what was asked, and when
    probability       of the row
    low, high         the interval that it lies in with this `confidence`; of an exact one, the probability itself
    method            "exact" or "sampled"
    nodes, samples    the size of the decision diagram, and how many samples were drawn
    exact, caveat     False if it was sampled, or if losing rows could bring about others; then `caveat` says why

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
    >>> found = db.reliability("b", x=2, given={"a": 0.5}); found.probability, found.method, float(found)
    (0.75, 'exact', 0.75)
    >>> print(found)
    b(2) is there with probability 0.75 (exact)
    >>> found.to_dict()["high"]
    0.75
    """

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
        """Return everything, by the names above."""
        names = ("view", "row", "epoch", "probability", "low", "high", "method", "nodes", "samples", "confidence")
        return {name: getattr(self, name) for name in (*names, "exact", "caveat")}

    def __str__(self) -> str:
        how = "by its present derivations" if self.caveat else "exact"
        if self.method == "sampled":
            how = f"{self.low:.6g} to {self.high:.6g} at {self.confidence:.0%}, from {self.samples:,} samples"
        more = _MAY_DIFFER + self.caveat if self.caveat else ""
        return f"{self._asked} is there with probability {self.probability:.6g} ({how}){more}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        kind = "" if self.exact else "warn"
        return html.fragment(html.line(self, kind))


def _many(count: int) -> str:
    return f"{count:,} base row{'s' * (count != 1)}"
