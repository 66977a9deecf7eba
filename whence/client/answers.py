"""Answers of questions that a server was asked: what is plain data of the local classes, under the same names.

An answer is of one epoch and never changes. Printed it is the text that a local one has; `to_dict` and `to_json` have
everything the server sent. Values of rows have the types of their columns.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from whence.model.codes import Interval
from whence.model.types import Kind, Schema

BaseRow = tuple[str, dict[str, Any]]
Schemas = Mapping[str, Schema]
_DURATION = re.compile(r"P(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(-?[\d.]+)S)?")


def read_duration(given: str | list[int]) -> Interval:
    """Read an interval as answers have it.

    >>> read_duration("P1M2DT3.5S"), read_duration([1, 2, 3])
    (Interval(months=1, days=2, micros=3500000), Interval(months=1, days=2, micros=3))
    """
    if isinstance(given, list):
        return Interval(*given)
    found = _DURATION.fullmatch(given)
    if found is None:
        raise ValueError(given)
    return Interval(int(found[1] or 0), int(found[2] or 0), int(Decimal(found[3] or 0) * 1_000_000))


_READERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.DECIMAL: Decimal,
    Kind.DATE: dt.date.fromisoformat,
    Kind.TIMESTAMP: dt.datetime.fromisoformat,
    Kind.INTERVAL: read_duration,
}


def typed_values(relation: str, row: Mapping[str, Any], schemas: Schemas) -> dict[str, Any]:
    """Return a row with values of the types that the relation's columns have, as far as they are known.

    >>> from whence.model.types import Column, DATE
    >>> typed_values("t", {"d": "2026-11-17", "e": "x"}, {"t": Schema((Column("d", DATE),))})
    {'d': datetime.date(2026, 11, 17), 'e': 'x'}
    """
    schema = schemas.get(relation)
    found = dict(row)
    for column in schema.columns if schema is not None else ():
        reader, value = _READERS.get(column.type.kind), found.get(column.name)
        if reader is not None and isinstance(value, (str, list)):
            try:
                found[column.name] = reader(value)
            except (ValueError, TypeError, ArithmeticError):  # the column is another one by now
                continue
    return found


class RemoteAnswer:
    """What all answers have: the question, the text, and everything as a dict.

    view, row, epoch  what was asked, and when
    exact, caveat     False if the answer was sampled, or if losing rows could bring about others; then why
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        self._value, self._schemas = dict(value), schemas
        self._text = str(self._value.pop("text", ""))
        self.position = self._value.pop("position", None)
        for other in ("html", "dot"):
            self._value.pop(other, None)
        self.view: str = self._value.get("view", "")
        self.epoch: int = self._value.get("epoch", 0)
        self.exact: bool = self._value.get("exact", True)
        self.caveat: str = self._value.get("caveat", "")

    @property
    def row(self) -> dict[str, Any] | None:
        found = self._value.get("row")
        return None if found is None else typed_values(self.view, found, self._schemas)

    def _base(self, given: Mapping[str, Any], name: str = "table") -> BaseRow:
        return given[name], typed_values(given[name], given["row"], self._schemas)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as JSON has it: dates and decimals are texts."""
        return dict(self._value)

    def to_json(self, path: str | Path | None = None) -> str:
        """Write JSON, to `path` if that is given."""
        text = json.dumps(self._value, ensure_ascii=False, indent=1)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        from whence.io import html

        return html.fragment(f'<pre class="code">{html.escape(self._text, 1_000_000)}</pre>')

    def __rich__(self) -> str:
        return self._text.replace("[", r"\[")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<{self._text.partition(chr(10))[0]}>"


class RemoteExplanation(RemoteAnswer):
    """Why a row is in a view, or why it is not (`Client.why`): what an `Explanation` says. True if the row is there.

    holds, reasons, base, witnesses, witness_count, complete, critical, formula, contributing, blockers, lacking,
    remedies, missing  as in `Explanation`; what its graph has is in `to_dict`
    tid, tids, rows    of a row of a stream, as in `Origins`
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        found, get = self._value.get("witnesses") or {}, self._value.get
        self.holds: bool = get("holds", False)
        self.reasons: list[str] = get("reasons", [])
        self.base: list[BaseRow] = [self._base(one) for one in get("base", [])]
        self.witnesses: list[list[BaseRow]] = [[self.base[i] for i in one] for one in found.get("found", [])]
        self.witness_count: int = found.get("count", len(self.witnesses))
        self.complete: bool = found.get("complete", not self.holds)
        self.critical: list[BaseRow] = [self.base[i] for i in get("critical", [])]
        self.formula: str = get("formula", "⊥")
        self.contributing = [
            SimpleNamespace(
                name=one["name"],
                row=typed_values(one["name"], one["row"], schemas),
                copies=one["copies"],
                shares=tuple(SimpleNamespace(**share) for share in one["shares"]),
            )
            for one in get("contributing", [])
        ]
        self.blockers: list[BaseRow] = [self._base(one) for one in get("blockers", [])]
        self.lacking: list[BaseRow] = [self._base(one, "relation") for one in get("lacking", [])]
        self.remedies = [
            SimpleNamespace(action=one["action"], table=one["table"], row=self._base(one)[1])
            for one in get("remedies", [])
        ]
        self.missing: dict[str, Any] | None = get("missing")
        self.tid: int | None = get("tid")
        self.tids: dict[str, list[int]] = get("tids", {})

    @property
    def rows(self) -> list[BaseRow]:
        """The base rows behind it."""
        return self.base

    @property
    def summary(self) -> str:
        """Say in one sentence what the row stands on."""
        return self._text.partition("\n")[0]

    def __bool__(self) -> bool:
        return self.holds


class RemoteBaseRows(RemoteAnswer):
    """Base rows in an order, as `Answer` has them: iterating yields pairs of a table and a row."""

    @property
    def _listed(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._value.get("rows", [])
        return found

    @property
    def rows(self) -> list[BaseRow]:
        """The base rows: pairs of a table and a row."""
        return [self._base(one) for one in self._listed]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each base row as a dict of its table, the row, and its numbers."""
        return [{**one, "row": self._base(one)[1]} for one in self._listed]

    def __iter__(self) -> Iterator[BaseRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self._listed)

    def __getitem__(self, at: int) -> BaseRow:
        return self._base(self._listed[at])

    def __contains__(self, row: object) -> bool:
        return row in self.rows


class RemoteCritical(RemoteBaseRows):
    """Base rows whose loss alone takes rows along (`Client.critical`): what a `Critical` says.

    counts  how many rows of the view each would take along
    of      how many rows were asked about
    where   the columns that those rows were chosen by, or None
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        self.of: int = self._value.get("of", 0)
        self.counts: list[int] = [one["takes"] for one in self._listed]
        where = self._value.get("where")
        self.where = None if where is None else typed_values(self.view, where, schemas)

    def items(self) -> list[tuple[BaseRow, int]]:
        """Return each base row with how many rows it would take along."""
        return list(zip(self.rows, self.counts, strict=True))


class RemoteResilience(RemoteBaseRows):
    """A smallest set of base rows whose loss removes a row (`Client.resilience`): what a `Resilience` says.

    count, at_least  how many they are, and no smaller set than this removes it; None if no loss removes the row
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        self.count: int | None = self._value.get("count")
        self.at_least: int = self._value.get("at_least", 0)


class RemoteContribution(RemoteBaseRows):
    """How much each base row matters to a row (`Client.contribution`): what a `Contribution` says.

    shapley, banzhaf                    the values, in the order of the rows
    method, samples, error, confidence  how they were found
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        self.shapley: list[float] = [one["shapley"] for one in self._listed]
        self.banzhaf: list[float] = [one["banzhaf"] for one in self._listed]
        get = self._value.get
        self.method, self.samples = get("method", ""), get("samples", 0)
        self.error, self.confidence = get("error"), get("confidence")

    def items(self) -> list[tuple[BaseRow, float, float]]:
        """Return each base row with its Shapley and Banzhaf values."""
        return list(zip(self.rows, self.shapley, self.banzhaf, strict=True))


class RemoteReliability(RemoteAnswer):
    """The probability that a row is there (`Client.reliability`): what a `Reliability` says; `float` of it is that.

    probability, low, high, method, nodes, samples, confidence  as in `Reliability`
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        get = self._value.get
        self.probability: float = get("probability", 0.0)
        self.low, self.high, self.method = get("low"), get("high"), get("method", "")
        self.nodes, self.samples, self.confidence = get("nodes"), get("samples"), get("confidence")

    def __float__(self) -> float:
        return self.probability


class RemoteReached:
    """The results of one view that came from an input: `tids` and `rows`, and whether they are `complete`."""

    def __init__(self, view: str, given: Mapping[str, Any], schemas: Schemas) -> None:
        self.tids: list[int] = [one["tid"] for one in given["results"]]
        self.rows = [typed_values(view, one["row"], schemas) for one in given["results"]]
        self.complete: bool = given["complete"]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


class RemoteTrace(RemoteAnswer):
    """What came of one row of a stream (`Client.trace`): what a `Trace` says. True if it reached any result.

    stream, tid  the row that was asked about
    views        for each view that is traced from the stream, what the row reached; `trace[view]` is one
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        self.stream: str = self._value["stream"]
        self.view = self.stream
        self.tid: int = self._value["tid"]
        self.views = {view: RemoteReached(view, one, schemas) for view, one in self._value["views"].items()}

    def __getitem__(self, view: str) -> RemoteReached:
        return self.views[view]

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return sum(map(len, self.views.values()))

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def tids(self) -> dict[str, list[int]]:
        """The tids of the results, by view."""
        return {view: found.tids for view, found in self.views.items()}

    @property
    def rows(self) -> list[BaseRow]:
        """All results, each with its view."""
        return [(view, row) for view, found in self.views.items() for row in found]

    @property
    def summary(self) -> str:
        """Say in one sentence how many results it reached."""
        return self._text.partition("\n")[0]


class RemoteDifference:
    """What a table or view would change by: `inserted` and `deleted` rows; `len` counts them."""

    def __init__(self, name: str, given: Mapping[str, Any], schemas: Schemas) -> None:
        self.name = name
        deleted, inserted = given.get("deleted", []), given.get("inserted", [])
        schema = schemas.get(name)
        some: Mapping[str, Any] = next(iter([*deleted, *inserted]), {})
        self.columns: list[str] = list(schema.names if schema is not None and not some else some)
        self.deleted = [tuple(typed_values(name, row, schemas).values()) for row in deleted]
        self.inserted = [tuple(typed_values(name, row, schemas).values()) for row in inserted]

    def __len__(self) -> int:
        return len(self.deleted) + len(self.inserted)

    def __bool__(self) -> bool:
        return len(self) > 0


class RemoteWhatIf(RemoteAnswer, Mapping[str, RemoteDifference]):
    """What writes would change (`Client.what_if`): what a `WhatIf` says. A mapping of the views that would change; one
    that would not has an empty difference.

    tables  the changes of the tables, by name
    """

    def __init__(self, value: Mapping[str, Any], schemas: Schemas) -> None:
        super().__init__(value, schemas)
        self.tables = {name: RemoteDifference(name, one, schemas) for name, one in self._value["tables"].items()}
        self._views = {name: RemoteDifference(name, one, schemas) for name, one in self._value["views"].items()}

    def __getitem__(self, view: str) -> RemoteDifference:
        name = view.lower()
        found = self._views.get(name)
        return RemoteDifference(name, {}, self._schemas) if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __bool__(self) -> bool:
        return bool(self.changed)

    @property
    def changed(self) -> list[RemoteDifference]:
        """The tables, and then the views, that would change."""
        return [change for change in (*self.tables.values(), *self._views.values()) if change]


def has_texts(value: Any) -> bool:
    """Return whether rows of an answer have texts, which may be values of other types."""
    if isinstance(value, Mapping):
        rows = [value["row"]] if isinstance(value.get("row"), Mapping) else []
        rows += [one for key in ("deleted", "inserted") for one in value.get(key) or ()]
        if any(isinstance(cell, (str, list)) for row in rows for cell in row.values()):
            return True
        return any(has_texts(one) for key, one in value.items() if key not in ("graph", "row"))
    return any(map(has_texts, value)) if isinstance(value, list) else False
