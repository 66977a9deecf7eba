"""Derivations as a tree of text: a row, the ways it follows, what each of them stands on, down to base rows.

The law: the way with the smallest derivation comes first, everywhere; a row is told once, and where it comes again the
tree says "(see above)", so that cycles end. Ways, rows and lines beyond the limits are counted, not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whence.explain.show.choose import Chosen, Ways, choose
from whence.explain.show.shares import shares_of
from whence.io import html

if TYPE_CHECKING:
    import rich.text

_STYLE = {"base": "green", "absence": "yellow", "view": "bold", "inner": "dim"}
_LONGEST = 400  # letters of a line
_MARK = {"base": "● ", "absence": "○ "}


@dataclass(frozen=True)
class TreeLimits:
    """How much of a tree is shown: ways of a row, rows of a body, steps down, rows and ways in all."""

    ways: int = 4
    rows: int = 8
    depth: int = 40
    room: int = 60


@dataclass(frozen=True)
class Line:
    """One line: the guides before it, the text, and how it looks."""

    guide: str
    text: str
    style: str = ""

    def __str__(self) -> str:
        return self.guide + printable(self.text)


def printable(text: str) -> str:
    r"""Return text that stays on its line, and moves no cursor.

    >>> printable("a\nb"), len(printable("x" * 1000))
    ('a\\nb', 400)
    """
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass
class Tree:
    """A tree being told."""

    ways: Ways
    limits: TreeLimits = field(default_factory=TreeLimits)
    _chosen: Chosen = field(init=False)
    _told: set[int] = field(init=False)
    _labels: dict[int, str] = field(init=False)

    def lines(self, root: int) -> Iterator[Line]:
        """Yield the tree of a node."""
        self._chosen, self._told = choose(self.ways, root, self.limits.room, self.limits.ways), set()
        self._labels = dict(zip(self._chosen.nodes, self.ways.graph.labels(self._chosen.nodes), strict=True))
        yield Line("", self._labels[root], _STYLE[self.ways.graph.kind(root)])
        yield from self._below(root, "", 0)

    def _below(self, node: int, guide: str, depth: int) -> Iterator[Line]:
        graph = self.ways.graph
        self._told.add(node)
        ways = self.ways.of(node)
        some = [d for d in ways if d in self._chosen.derivations]
        for number, d in enumerate(some):
            last = number == len(some) - 1 and len(some) == len(ways)
            which = f"way {number + 1} of {len(ways):,}: " if len(ways) > 1 else ""
            yield _line(guide, last, which + graph.steps[graph.step[d]].text, "cyan")
            yield from self._body(d, guide + ("   " if last else "│  "), depth)
        if len(ways) > len(some):
            rest = len(ways) - len(some)
            yield _line(guide, True, f"… and {rest:,} more way{'s' * (rest != 1)}", "dim")

    def _body(self, derivation: int, guide: str, depth: int) -> Iterator[Line]:
        graph, head = self.ways.graph, int(self.ways.graph.head[derivation])
        body = list(dict.fromkeys(graph.bodies(derivation).tolist()))
        notes = dict(zip(graph.bodies(derivation).tolist(), shares_of(graph, head), strict=False))
        some = self._chosen.derivations[derivation][: self.limits.rows]
        for number, node in enumerate(some):
            last = number == len(some) - 1 and len(some) == len(body)
            kind = graph.kind(node)
            copies = f"  ×{graph.copies[node]:,}" if graph.copies.get(node, 1) > 1 else ""
            text = _MARK.get(kind, "") + self._labels[node] + copies + (f"  {notes[node]}" if node in notes else "")
            leaf = not graph.derivations_of(node)
            again = not leaf and node in self._told
            deeper = not leaf and not again and depth < self.limits.depth
            more = "  (see above)" if again else "  …" if not leaf and not deeper else ""
            yield _line(guide, last, text + more, _STYLE[kind])
            if deeper:
                yield from self._below(node, guide + ("   " if last else "│  "), depth + 1)
        if len(body) > len(some):
            rest = len(body) - len(some)
            yield _line(guide, True, f"… and {rest:,} more row{'s' * (rest != 1)}", "dim")


def _line(guide: str, last: bool, text: str, style: str) -> Line:
    return Line(guide + ("└─ " if last else "├─ "), text, style)


_KIND = {"green": "base", "yellow": "absence", "cyan": "step", "bold": "title", "dim": "dim"}


def tree_html(lines: Iterable[Line]) -> str:
    """Write a tree whose branches can be folded."""
    return html.tree([(len(line.guide), printable(line.text), _KIND.get(line.style, "")) for line in lines])


def text_of(lines: Iterable[Line]) -> rich.text.Text:
    """Colour the lines."""
    import rich.text

    parts = [rich.text.Text.assemble((line.guide, "dim"), (printable(line.text), line.style)) for line in lines]
    return rich.text.Text("\n").join(parts)
