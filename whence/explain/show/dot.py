"""Derivations in the language of Graphviz: rows and steps, told apart by shape and colour."""

from __future__ import annotations

from whence.explain.graph import Derivations
from whence.explain.show.choose import Chosen

_LOOK = {
    "base": 'shape=box, style="filled,rounded", fillcolor="#d5f0dc", color="#1a7f4b"',
    "absence": 'shape=octagon, style="filled,dashed", fillcolor="#fdf0d0", color="#9a6700"',
    "view": 'shape=ellipse, style=filled, fillcolor="#dbe7fb", color="#2258a8"',
    "inner": 'shape=ellipse, style="filled,dashed", fillcolor="#eeeeee", color="#777777"',
}


def to_dot(graph: Derivations, chosen: Chosen, root: int) -> str:
    """Write a digraph from the root down; a step is a small diamond that says its rule."""
    lines = ["digraph why {", '  rankdir=TB; node [fontname="sans-serif", fontsize=11]; edge [color="#888888"];']
    if not chosen.whole:
        lines.append("  // only a part of the graph: what the smallest derivations need")
    for n, label in zip(chosen.nodes, graph.labels(chosen.nodes), strict=True):
        more = ", penwidth=2.5" if n == root else ""
        lines.append(f"  n{n} [label={quote(label)}, {_LOOK[graph.kind(n)]}{more}];")
    for d, body in chosen.derivations.items():
        text = quote(graph.steps[graph.step[d]].text)
        lines.append(
            f'  d{d} [shape=diamond, width=0.25, height=0.25, fixedsize=true, label="", xlabel={text}, '
            f'fontsize=9, style=filled, fillcolor="#b5a2d8", tooltip={text}];'
        )
        lines.append(f"  n{graph.head[d]} -> d{d} [arrowhead=none];")
        lines += [f"  d{d} -> n{n};" for n in body]
    return "\n".join([*lines, "}", ""])


def quote(text: str) -> str:
    r"""Write a string of Graphviz.

    >>> print(quote('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "") + '"'
