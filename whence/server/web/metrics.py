"""Counters of a server and of its database, in Prometheus' text format.

The law: a counter only rises while the server runs, every family has one TYPE and one HELP, and names of tables and
views are labels only for a caller who may read everything.

| kind      | what it is | how it is fed |
|-----------|------------|---------------|
| counter   | rises | `Counter.add` |
| histogram | how many took how long | `Histogram.observe` |
| sampled   | a number, or numbers by label, that is looked up when asked for | `MetricRegistry.sample` |
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper ends of a histogram's buckets."""

MetricKind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Samples = float | Mapping[str, float] | None
"""A number, numbers by the value of the family's one label, or nothing."""


@dataclass(frozen=True)
class MetricFamily:
    """What one metric is: its name, its kind, what it says, and the names of its labels."""

    name: str
    kind: MetricKind
    help: str
    labels: Labels = ()


class Counter:
    """A number that rises, one for each combination of its labels' values. Any thread may add to it.

    >>> requests = Counter(MetricFamily("requests_total", "counter", "requests answered", ("status",)))
    >>> requests.add(1, "200"); requests.add(2, "200"); list(requests.lines())
    ['requests_total{status="200"} 3']
    """

    def __init__(self, family: MetricFamily) -> None:
        self.family = family
        self._guard = threading.Lock()
        self._values: dict[Labels, float] = {} if family.labels else {(): 0}

    def add(self, value: float = 1, *labels: str) -> None:
        with self._guard:
            self._values[labels] = self._values.get(labels, 0) + value

    def lines(self) -> Iterator[str]:
        """Yield a line for each value."""
        with self._guard:
            found = sorted(self._values.items())
        for labels, value in found:
            yield _line(self.family.name, zip(self.family.labels, labels, strict=True), value)


class Histogram:
    """How many took at most so many seconds, by label.

    >>> seconds = Histogram(MetricFamily("seconds", "histogram", "time"), (1.0, 2.0)); seconds.observe(1.5)
    >>> list(seconds.lines())
    ['seconds_bucket{le="1"} 0', 'seconds_bucket{le="2"} 1', 'seconds_bucket{le="+Inf"} 1', 'seconds_sum 1.5', \
'seconds_count 1']
    """

    def __init__(self, family: MetricFamily, bounds: tuple[float, ...] = SECONDS) -> None:
        self.family, self._bounds = family, bounds
        self._guard = threading.Lock()
        self._found: dict[Labels, tuple[list[int], float]] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        with self._guard:
            counts, total = self._found.get(labels) or ([0] * (len(self._bounds) + 1), 0.0)
            counts[bisect_left(self._bounds, seconds)] += 1
            self._found[labels] = counts, total + seconds

    def lines(self) -> Iterator[str]:
        """Yield the lines of each combination of labels; each bucket has what is in the smaller ones, too."""
        with self._guard:
            found = sorted((labels, list(counts), total) for labels, (counts, total) in self._found.items())
        name = self.family.name
        for values, counts, total in found:
            labels, so_far = list(zip(self.family.labels, values, strict=True)), 0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                so_far += count
                yield _line(f"{name}_bucket", [*labels, ("le", _number(bound))], so_far)
            yield _line(f"{name}_sum", labels, total)
            yield _line(f"{name}_count", labels, so_far)


class MetricRegistry:
    """All metrics of a server.

    >>> registry = MetricRegistry(); registry.counter("whence_requests_total", "requests answered").add()
    >>> registry.sample("whence_connections", "gauge", "open connections", lambda: 7)
    >>> print(registry.render(), end="")
    # HELP whence_requests_total requests answered
    # TYPE whence_requests_total counter
    whence_requests_total 1
    # HELP whence_connections open connections
    # TYPE whence_connections gauge
    whence_connections 7
    """

    def __init__(self) -> None:
        self._parts: dict[str, tuple[MetricFamily, Callable[[], Iterable[str]]]] = {}

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """Return a new counter."""
        found = Counter(MetricFamily(name, "counter", help, labels))
        self._parts[name] = found.family, found.lines
        return found

    def histogram(self, name: str, help: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> Histogram:
        """Return a new histogram of seconds."""
        found = Histogram(MetricFamily(name, "histogram", help, labels), bounds)
        self._parts[name] = found.family, found.lines
        return found

    def sample(self, name: str, kind: MetricKind, help: str, read: Callable[[], Samples], label: str = "") -> None:
        """Have a number, or numbers by `label`, looked up whenever metrics are asked for."""
        family = MetricFamily(name, kind, help, (label,) if label else ())
        self._parts[name] = family, lambda: _sampled(family, read())

    def render(self, more: Iterable[tuple[MetricFamily, Samples]] = ()) -> str:
        """Write all metrics, and more that are given."""
        lines = list[str]()
        for family, read in self._parts.values():
            lines += _headed(family, read())
        for family, samples in more:
            lines += _headed(family, _sampled(family, samples))
        return "".join(f"{line}\n" for line in lines)


def _headed(family: MetricFamily, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    if not found:
        return []
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {family.name} {text}", f"# TYPE {family.name} {family.kind}", *found]


def _sampled(family: MetricFamily, samples: Samples) -> Iterator[str]:
    if samples is None:
        return
    if isinstance(samples, Mapping):
        for value, number in samples.items():
            yield _line(family.name, [(family.labels[0], value)], number)
    else:
        yield _line(family.name, (), samples)


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    """Write a sample.

    >>> _line("rows", [("table", 'a"b\\n')], 2.5)
    'rows{table="a\\\\"b\\\\n"} 2.5'
    """
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


# -- of the database -------------------------------------------------------------------------------------------------

_OF_DATABASE: dict[str, tuple[MetricKind, str]] = {
    "epoch": ("gauge", "number of the last committed epoch"),
    "epoch_seconds": ("counter", "seconds spent in epochs"),
    "rows_in": ("counter", "rows that tables changed by"),
    "rows_out": ("counter", "rows that views changed by"),
    "rows_expired": ("counter", "rows whose time-to-live was up"),
    "operators": ("gauge", "operators of all views"),
    "state_bytes": ("gauge", "bytes of tables and operators in memory"),
    "dictionary": ("gauge", "distinct texts in memory"),
    "words_forgotten": ("counter", "texts that were forgotten"),
    "synced_epoch": ("gauge", "number of the last epoch on stable storage"),
    "log_bytes": ("gauge", "bytes of the log"),
    "log_bytes_since_snapshot": ("gauge", "bytes of the log since the last image"),
    "image_bytes": ("gauge", "bytes of images"),
    "snapshots": ("counter", "images written"),
    "snapshot_seconds": ("counter", "seconds spent writing images"),
    "messages": ("counter", "messages between partitions"),
    "supersteps": ("counter", "supersteps of all epochs"),
}
_BY_NAME: dict[str, tuple[str, str]] = {
    "tables": ("table_rows", "rows of a table or stream"),
    "views": ("view_rows", "rows of a view"),
    "owed": ("owed_rows", "rows that a table owes"),
    "late": ("late_rows", "rows that came too late for a view"),
    "missed": ("missed_rows", "rows that a join in bounded memory has missed"),
}
_OF_LOOKUP: dict[str, tuple[MetricKind, str]] = {
    "rows": ("gauge", "rows that a lookup keeps"),
    "hits": ("counter", "references to keys whose row was there"),
    "misses": ("counter", "rows that were fetched"),
    "failures": ("counter", "fetches that failed"),
    "seconds": ("counter", "seconds spent fetching"),
}


def database_families(found: Mapping[str, Any], *, names: bool) -> Iterator[tuple[MetricFamily, Samples]]:
    """Yield what `Database.metrics` says as metrics; with `names`, those of single tables and views, too.

    >>> for family, samples in database_families({"epoch": 7, "rows_in": 9, "tables": {"a": 3}}, names=True):
    ...     print(family.name, family.kind, samples)
    whence_epoch gauge 7
    whence_rows_in_total counter 9
    whence_table_rows gauge {'a': 3}
    """
    for key, value in found.items():
        if _is_number(value):
            kind, help = _OF_DATABASE.get(key, ("gauge", key.replace("_", " ")))
            yield MetricFamily(f"whence_{key}{'_total' if kind == 'counter' else ''}", kind, help), value
        elif key in _BY_NAME and names:
            name, help = _BY_NAME[key]
            numbers = {each: rows for each, rows in value.items() if _is_number(rows)}
            yield MetricFamily(f"whence_{name}", "gauge", help, ("name",)), numbers
        elif key == "streams" and names:
            for part in ("rows", "kept", "dropped", "bytes"):
                family = MetricFamily(f"whence_stream_{part}", "gauge", f"{part} of a stream", ("name",))
                yield family, {each: figures[part] for each, figures in value.items() if part in figures}
        elif key == "lookups" and names:
            for part, (sort, help) in _OF_LOOKUP.items():
                ending = "_total" if sort == "counter" else ""
                family = MetricFamily(f"whence_lookup_{part}{ending}", sort, help, ("name",))
                yield family, {each: figures[part] for each, figures in value.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
