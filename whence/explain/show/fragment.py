"""An explanation as a notebook shows it: its sentence, the tree, the witnesses, the critical rows, a small graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.explain.show import page
from whence.explain.show.choose import choose
from whence.explain.show.layout import draw
from whence.explain.show.tree import Tree, TreeLimits, printable, tree_html
from whence.io import html
from whence.io.grid import Grid

if TYPE_CHECKING:
    from whence.explain.show.explanation import Explanation

_MARKS = 60  # rows and steps of a graph that is drawn
_ROWS = 12  # base rows of a witness, and critical rows, that are shown
_LONGEST = 5000  # letters of these together
_DIRECTIONS = dict.fromkeys([0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
_STYLE = (
    "<style>div.whence svg text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:currentColor}"
    "div.whence svg .shape{fill:rgba(128,128,128,.12);stroke:currentColor;stroke-width:1}"
    "div.whence svg .base .shape{stroke:#2f9e5b}div.whence svg .absence .shape{stroke:#b8860b}"
    "div.whence svg .step .shape{fill:#3b8fc4;stroke:none}div.whence svg .asked .shape{stroke-width:2}"
    "div.whence svg .edge{fill:none;stroke:rgba(128,128,128,.7)}div.whence svg marker path{fill:rgba(128,128,128,.9)}"
    "</style>"
)


def explanation_html(why: Explanation, losses: bool = True) -> str:
    """Write an explanation as a fragment of HTML, with what its row needs, unless it is not asked about `losses`."""
    head = html.line(printable(why.summary), "title")
    if not why.holds:
        return html.fragment(head, tree_html(list(why.lines())[1:]))
    inexact = "" if why.exact or not losses else html.line(f"not exact under every loss: {why.caveat}", "warn")
    tree = tree_html(Tree(why._ways, TreeLimits()).lines(why.root))
    return html.fragment(head, inexact, tree, *(_needed(why) if losses else ()), _graph(why))


def _needed(why: Explanation) -> Iterator[str]:
    """Yield its witnesses and its critical rows."""
    found = why._witnesses
    if found.count > 1:
        shown = [(len(witness), _labels(why, witness.tolist())) for witness in found.found]
        least = "" if found.complete else "at least "
        count = f"{len(shown):,} of {least}{found.count:,}" if len(shown) < found.count else "all"
        order = ", smallest first" if found.smallest else ""
        yield html.folded(
            f"minimal witnesses: {count}{order}",
            Grid(["rows", "base rows"], shown, found.count, caption="", longest=_LONGEST).html_table(),
            opened=len(shown) <= _ROWS,
        )
    lost = why._critical.tolist()
    if lost:
        yield html.line(f"critical: {_labels(why, lost)}", "critical", _LONGEST)


def _graph(why: Explanation) -> str:
    """Draw the graph, if it is small."""
    chosen = choose(why._ways, why.root, _MARKS)
    if not chosen.whole or not chosen.derivations:
        return ""
    drawn = page.draw_svg(why, draw(why.graph, chosen)).translate(_DIRECTIONS)
    return html.folded("graph", _STYLE + drawn, opened=False)


def _labels(why: Explanation, nodes: list[int]) -> str:
    more = f" and {len(nodes) - _ROWS:,} more" if len(nodes) > _ROWS else ""
    return ", ".join(map(printable, why.graph.labels(nodes[:_ROWS]))) + more
