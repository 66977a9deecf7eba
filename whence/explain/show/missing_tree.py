"""A missing row as text, as JSON and for Graphviz: what it lacks, what excludes it, and what would let it in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from whence.explain.ask.witnesses import find_witnesses, order_by_derivation
from whence.explain.graph import Derivations
from whence.explain.missing import FailedWay, MissingRows, Remedy
from whence.explain.show.choose import Ways
from whence.explain.show.dot import quote
from whence.explain.show.tree import Line, Tree, TreeLimits

REMEDIES = 5  # that are printed
_LINES = 80  # of the tree
_FEW = 6  # base rows of a sentence


def write_lines(missing: MissingRows, remedies: list[Remedy], limits: TreeLimits | None = None) -> Iterator[Line]:
    """Yield the tree of what stands in the way, and what would let the row in."""
    limits = limits or TreeLimits()
    lines = list(_below(missing, "", limits))
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield Line("", f"… and {len(lines) - _LINES:,} more lines", "dim")
    for remedy in remedies[:REMEDIES]:
        yield Line("", str(remedy), "green")
    if len(remedies) > REMEDIES:
        yield Line("", f"and {len(remedies) - REMEDIES:,} more changes of one row would", "dim")


def _below(missing: MissingRows, guide: str, limits: TreeLimits) -> Iterator[Line]:
    notes = [missing.note] if missing.note and missing.note != "see above" else []
    parts: list[str | FailedWay] = [*notes, *missing.ways]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        start, under = guide + ("└─ " if last else "├─ "), guide + ("   " if last else "│  ")
        if isinstance(part, str):
            yield Line(start, part, "yellow")
            continue
        yield Line(start, part.rule + _lead(part), "cyan")
        yield from _way(part, under, limits)


def _lead(way: FailedWay) -> str:
    if len(way.lacking) > 1:
        return ", which lacks one of these" if way.any_of else ", which lacks all of these"
    return ""


def _way(way: FailedWay, guide: str, limits: TreeLimits) -> Iterator[Line]:
    items: list[Any] = [*([way.reason] if way.reason else []), *way.excluded_by, *way.lacking]
    more = sum(e.more for e in way.exclusions)
    items += [f"and by {more:,} more rows"] if more else []
    for number, item in enumerate(items):
        last = number == len(items) - 1
        start, under = guide + ("└─ " if last else "├─ "), guide + ("   " if last else "│  ")
        if isinstance(item, str):
            yield Line(start, item, "yellow")
        elif isinstance(item, MissingRows):
            text = f"○ no {item.label}"
            yield Line(start, text + ("  (see above)" if item.note == "see above" else _nearest(item)), "yellow")
            yield from _below(item, under, limits)
        else:
            graph, node = item
            lines = list(Tree(Ways(graph), limits).lines(node))
            yield Line(start, f"excluded by {'● ' if graph.kind(node) == 'base' else ''}{lines[0].text}", "red")
            yield from (Line(under + line.guide, line.text, line.style) for line in lines[1:])


def _nearest(missing: MissingRows) -> str:
    return f": {'; '.join(missing.nearest)}" if missing.nearest else ""


def write_reasons(missing: MissingRows) -> list[str]:
    """Return the tree's first level in sentences."""
    told = [missing.note] if missing.note else []
    told += missing.nearest if missing.is_table or not (missing.ways or missing.note) else []
    for way in missing.ways:
        before = f"{way.rule}: " if len(missing.ways) > 1 else ""
        told += [before + sentence for sentence in _sentences(way)]
    return told or [f"there is no {missing.label}"]


def _sentences(way: FailedWay) -> Iterator[str]:
    if way.reason:
        yield way.reason
    for graph, node in way.excluded_by:
        label = graph.label(node)
        base = _stands_on(graph, node)
        yield f"excluded by {label}" + (f", because of {base}" if base and base != label else "")
    either = "there is no " if way.any_of else "it lacks "
    for lack in way.lacking:
        yield f"{either}{lack.label}{_nearest(lack)}"


def _stands_on(graph: Derivations, node: int) -> str:
    """Return the base rows of the smallest witness of a node."""
    from dataclasses import replace

    own = replace(graph, roots=np.array([node], np.int32))
    found = order_by_derivation(own, find_witnesses(own, 1).found[:1])
    labels = graph.labels(found[0]) if found else []
    rest = f" and {len(labels) - _FEW:,} more" if len(labels) > _FEW else ""
    return ", ".join(labels[:_FEW]) + rest


def to_dict(missing: MissingRows) -> dict[str, Any]:
    """Return the tree as JSON has it."""
    return {
        "relation": missing.relation,
        "table": missing.is_table,
        "rows": missing.rows,
        "count": missing.count,
        "where": missing.where,
        "nearest": missing.nearest,
        "note": missing.note,
        "ways": [
            {
                "rule": way.rule,
                "reason": way.reason,
                "excluded_by": [
                    {"relation": graph.relations[graph.relation[node]].name, "row": graph.row(node)}
                    for graph, node in way.excluded_by
                ],
                "lacking": [to_dict(lack) for lack in way.lacking],
                "any_of": way.any_of,
            }
            for way in missing.ways
        ],
    }


def to_dot(missing: MissingRows) -> str:
    """Write the tree for Graphviz: what is missing, the ways to it, what excludes it."""
    lines = ["digraph why_not {", '  rankdir=TB; node [fontname="sans-serif", fontsize=11]; edge [color="#888888"];']
    for number, (above, label, look) in enumerate(islice(_marks(missing), 2000)):
        lines.append(f"  n{number} [label={quote(label)}, {look}];")
        if above >= 0:
            lines.append(f"  n{above} -> n{number};")
    return "\n".join([*lines, "}", ""])


_GONE = 'shape=octagon, style="filled,dashed", fillcolor="#fdf0d0", color="#9a6700"'
_STEP = 'shape=box, style="filled", fillcolor="#eeeeee", color="#777777", fontsize=9'
_BLOCKS = 'shape=ellipse, style=filled, fillcolor="#fbdcdc", color="#a82222"'


def _marks(missing: MissingRows) -> Iterator[tuple[int, str, str]]:
    """Yield what is drawn, each with the number of what it hangs on (-1: nothing)."""
    count, todo = 0, [(missing, -1)]
    while todo:
        goal, above = todo.pop(0)
        yield above, f"no {goal.label}", _GONE
        at, count = count, count + 1
        for way in goal.ways:
            yield at, f"{way.rule}\n{way.reason}".strip(), _STEP
            step, count = count, count + 1
            for graph, node in way.excluded_by:
                yield step, f"excluded by {graph.label(node)}", _BLOCKS
                count += 1
            todo += [(lack, step) for lack in way.lacking]
