"""HTML of what a notebook shows: fragments that need nothing else, readable on light and on dark backgrounds.

The law: no value is taken for markup, none changes how its neighbours read, and nothing is fetched. Colours come from
the notebook: text inherits its colour, and lines and marks are half transparent or of middle lightness.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

LONGEST = 400  # letters of a value
_KEPT = "\n\t\u200c\u200d\u00a0"  # not printable, but part of a text: lines, tabs, joiners, no-break spaces
_LINE = "rgba(128,128,128,.35)"
_STYLE = (
    "<style>"
    "div.whence{color:inherit;font-size:13px;line-height:1.45;max-width:100%}"
    "div.whence .scroll{overflow:auto;max-width:100%;max-height:42em}"
    "div.whence table{border-collapse:collapse;margin:2px 0;border:0;color:inherit;background:none}"
    "div.whence th,div.whence td{text-align:left!important;padding:2px 10px 2px 0;border:0}"
    f"div.whence th{{font-weight:600;border-bottom:1px solid {_LINE};vertical-align:bottom;white-space:nowrap}}"
    "div.whence td{border-bottom:1px solid rgba(128,128,128,.15);vertical-align:top;white-space:pre-wrap;"
    "overflow-wrap:anywhere;min-width:3ch;max-width:60ch;unicode-bidi:isolate}"
    "div.whence tr,div.whence tr:hover{background:none}"
    "div.whence .num{text-align:right!important;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "div.whence .dim{opacity:.6}div.whence .title{font-weight:600}"
    "div.whence .new,div.whence .base{color:#2f9e5b}div.whence .gone,div.whence .critical{color:#d9534f}"
    "div.whence .step{color:#3b8fc4}div.whence .warn,div.whence .absence{color:#b8860b}"
    "div.whence .tree,div.whence .code{font-family:ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}"
    f"div.whence .tree details,div.whence .tree div{{margin-left:14px;padding-left:6px;border-left:1px solid {_LINE}}}"
    "div.whence summary{cursor:pointer}"
    "div.whence svg{max-width:100%;height:auto;max-height:42em}"
    "</style>"
)


def fragment(*parts: str) -> str:
    """Put parts together as one element, with its style."""
    return f'<div class="whence">{_STYLE}{"".join(parts)}</div>'


def escape(text: object, longest: int = LONGEST) -> str:
    r"""Escape text for HTML. What is not printable, marks of direction among it, is shown as Python writes it. Of a
    long text the beginning is shown, and its length.

    >>> escape('<b> & "'), escape("a\0\u202eb")
    ('&lt;b&gt; &amp; &quot;', 'a\\x00\\u202eb')
    >>> escape("x" * 1000)[-21:]
    'x… (1,000 characters)'
    """
    whole = str(text)
    some = whole if len(whole) <= longest else f"{whole[:longest]}… ({len(whole):,} characters)"
    if not some.isprintable():
        some = "".join(c if c.isprintable() or c in _KEPT else repr(c)[1:-1] for c in some)
    return html.escape(some)


def line(text: object, kind: str = "", longest: int = LONGEST) -> str:
    """Write a line of text."""
    return f'<div class="{kind}">{escape(text, longest)}</div>' if kind else f"<div>{escape(text, longest)}</div>"


def folded(summary: object, inside: str, opened: bool = True) -> str:
    """Write a part that can be folded away."""
    return f"<details{' open' * opened}><summary>{escape(summary)}</summary>{inside}</details>"


def tree(lines: Sequence[tuple[int, str, str]], opened: int = 4) -> str:
    """Write a tree that can be folded, open down to some level. A line is how far it is indented, its text, and its
    class; those that follow it and are indented further stand below it.

    >>> tree([(0, "a", ""), (3, "b", "base")])
    '<div class="tree"><details open><summary>a</summary><div><span class="base">b</span></div></details></div>'
    """
    return f'<div class="tree">{"".join(_branches(lines, opened))}</div>'


def _branches(lines: Sequence[tuple[int, str, str]], opened: int) -> Iterator[str]:
    open_at: list[int] = []  # the indents of the branches that are not closed yet
    for i, (indent, text, kind) in enumerate(lines):
        while open_at and open_at[-1] >= indent:
            open_at.pop()
            yield "</details>"
        shown = f'<span class="{kind}">{escape(text)}</span>' if kind else escape(text)
        if i + 1 < len(lines) and lines[i + 1][0] > indent:
            yield f"<details{' open' * (len(open_at) < opened)}><summary>{shown}</summary>"
            open_at.append(indent)
        else:
            yield f"<div>{shown}</div>"
    yield "</details>" * len(open_at)
