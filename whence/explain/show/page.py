"""Explanations as pages: one file each, with its style, its script and its drawing in it.

Nothing is fetched, and the page's own policy forbids it. All that comes from rows goes through `html.escape`, or as
JSON without a `<`, so that no value can be taken for markup.
"""

from __future__ import annotations

import html
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.explain.graph import Derivations
from whence.explain.show.choose import Chosen
from whence.explain.show.layout import Drawing, Edge, Mark, draw
from whence.explain.show.shares import AggregateShare
from whence.explain.show.tree import Line, printable
from whence.model.errors import WhenceError
from whence.model.paths import local_path

if TYPE_CHECKING:
    from whence.explain.show.explanation import Contributing, Explanation

ROWS = 500  # of a table in a page
_FEW = 25  # rows that are shown without being asked for
_HIGH, _LAYER = 28.0, 64.0  # of a mark, and from one layer to the next
_KINDS = {
    "view": "row of a view",
    "inner": "row in between",
    "base": "base row",
    "absence": "absence of a row",
    "step": "step",
}


def write_out(text: str, path: str | Path | None) -> str:
    """Return a text, after writing it to a file if one is given."""
    if path is not None:
        try:
            local_path(path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise WhenceError(f"{path}: cannot be written: {error}") from None
    return text


def fill_template(title: str, body: Iterable[str], data: Any) -> str:
    """Fill the three places of the template, each once: what is put in is not looked at again."""
    template = files("whence.explain.show").joinpath("page.html").read_text(encoding="utf-8")
    given = {"title": esc(title), "body": "\n".join(body), "data": json.dumps(data).replace("<", "\\u003c")}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: given[found[1]], template)


def esc(text: object) -> str:
    r"""Escape text for HTML; characters that have no place there are shown as boxes.

    >>> esc('<b> & "'), esc("a\0b")
    ('&lt;b&gt; &amp; &quot;', 'a\ufffdb')
    """
    return html.escape(re.sub("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", str(text)))


def explanation_page(why: Explanation) -> str:
    """Write the page of an explanation."""
    if not why.holds:
        reasons = [f"<li>{esc(reason)}</li>" for reason in why.reasons]
        body = [
            f'<h1>Why not <span class="row">{esc(printable(why.label))}</span>?</h1>',
            f'<p class="sub">It is not in the view <code>{esc(why.view)}</code> at epoch {why.epoch:,}.</p>',
            f"<section><h2>What is missing</h2><ul>{''.join(reasons)}</ul></section>" if reasons else "",
            f"<section><h2>Down to base rows</h2><pre>{esc(_text(why.lines()))}</pre></section>" if why.missing else "",
        ]
        return fill_template(f"Why not {printable(why.label)}?", body, {"witnesses": []})
    graph, chosen = why.graph, why.drawn
    drawing = draw(graph, chosen)
    lit = [_lit(graph, chosen, drawing, found.tolist()) for found in why._witnesses.found]
    body = [
        f'<h1>Why <span class="row">{esc(printable(why.label))}</span>?</h1>',
        f'<p class="sub">A row of the view <code>{esc(why.view)}</code> at epoch {why.epoch:,}.</p>',
        _chips(why),
        f'<section class="warn"><p>{esc(_caveat(why.caveat))}</p></section>' if not why.exact else "",
        _graph_section(why, drawing),
        _witness_section(why),
        *(_group_section(group) for _, group in why._groups),
        f'<section><h2>Formula</h2><pre class="formula">{esc(why.formula)}</pre></section>',
        _base_section(why),
        f"<section><details><summary>As text</summary><pre>{esc(_text(why.lines()))}</pre></details></section>",
    ]
    return fill_template(f"Why {printable(why.label)}?", body, {"witnesses": lit, "marks": _told(why, drawing, lit)})


def _caveat(caveat: str) -> str:
    return f"What follows is not exact under every loss of rows: {caveat}" if caveat else "Not exact under every loss."


def _text(lines: Iterable[Line]) -> str:
    return "\n".join(map(str, lines))


def _chips(why: Explanation) -> str:
    least = "" if why.complete else "at least "
    smallest = len(why.witnesses[0]) if why.witnesses else 0
    chips = [
        chip(len(why.base), "base row{s} behind it"),
        chip(why.witness_count, "minimal witness{es}", least),
        chip(smallest, "row{s} in the smallest"),
        chip(len(why.critical), "critical row{s}"),
    ]
    return f'<ul class="chips">{"".join(chips)}</ul>'


def chip(count: int, what: str, before: str = "") -> str:
    """
    >>> chip(1, "row{s}"), chip(2, "witness{es}")
    ('<li><b>1</b> row</li>', '<li><b>2</b> witnesses</li>')
    """
    many = count != 1
    return f"<li><b>{before}{count:,}</b> {what.format(s='s' * many, es='es' * many)}</li>"


def _graph_section(why: Explanation, drawing: Drawing) -> str:
    kinds = {mark.kind for mark in drawing.marks}
    legend = "".join(
        f'<li><svg width="26" height="18" viewBox="0 0 26 18" aria-hidden="true"><g class="{kind}">'
        f"{_shape(kind, 13, 9, 22, 14)}</g></svg>{name}</li>"
        for kind, name in _KINDS.items()
        if kind in kinds
    )
    part = (
        ""
        if drawing.whole
        else '<p class="note">The graph is too large to be drawn: this is what its smallest witnesses need. '
        "The numbers and tables are of the whole.</p>"
    )
    return (
        '<section aria-labelledby="graph"><div class="bar"><h2 id="graph" style="margin:0">How it follows</h2>'
        f'<ul class="legend">{legend}</ul></div>'
        f'<div class="bar tools" role="toolbar" aria-label="Drawing">{_TOOLS}</div>'
        '<div class="graph"><div class="canvas" tabindex="0" '
        'aria-label="Drawing: arrows move it, + and - zoom, 0 fits, / searches">'
        f'{draw_svg(why, drawing)}</div><aside id="details" aria-live="polite"></aside></div>{part}'
        '<p class="note">A row follows if everything below one of its steps does. Drag to move, turn the wheel to '
        "zoom. Choose a row to see its columns and a witness through it; a double click, or Space, folds what is below "
        "it or unfolds it (dashed: folded). Escape ends a choice.</p></section>"
    )


_TOOLS = (
    '<input id="search" type="search" placeholder="Search rows and steps" aria-label="Search rows and steps">'
    '<button id="previous" type="button" aria-label="previous hit">↑</button>'
    '<button id="next" type="button" aria-label="next hit">↓</button>'
    '<span id="hits" class="note" aria-live="polite"></span>'
    '<button id="out" type="button" aria-label="zoom out">−</button>'
    '<button id="in" type="button" aria-label="zoom in">+</button><button id="fit" type="button">Fit</button>'
    '<button id="reset" type="button">Reset</button><button id="unfold" type="button">Expand all</button>'
    '<button id="fold" type="button">Collapse all</button><span id="state" class="note" aria-live="polite"></span>'
)


def _told(why: Explanation, drawing: Drawing, lit: list[list[int]]) -> dict[int, dict[str, Any]]:
    """Return what there is to say of each mark: label, kind, columns, facts, and the witnesses that it is part of."""
    graph, lost = why.graph, set(why._critical.tolist())
    rows = [m.item for m in drawing.marks if m.kind not in ("step", "bend")]
    labels, values = dict(zip(rows, graph.labels(rows), strict=True)), dict(zip(rows, graph.rows(rows), strict=True))
    parts = [set(some) for some in lit]
    told = {}
    for i, mark in enumerate(drawing.marks):
        if mark.kind == "bend":
            continue
        within = [w for w, some in enumerate(parts) if i in some]
        facts = [f"in {len(within):,} of the {len(lit):,} witnesses shown"]
        row: list[tuple[str, str]] = []
        if mark.kind != "step":
            row = [
                (name, "NULL" if value is None else printable(str(value)))
                for name, value in values[mark.item][1].items()
            ]
            steps = {graph.steps[graph.step[d]].text for d in graph.derivations_of(mark.item)}
            ways = len(graph.derivations_of(mark.item))
            facts = [
                *([f"{ways:,} way{'s' * (ways != 1)}: {'; '.join(sorted(steps))}"] if ways else []),
                *([f"{graph.copies[mark.item]:,} copies"] if graph.copies.get(mark.item, 1) > 1 else []),
                *facts,
                *(["critical: without it the row is gone"] if mark.item in lost else []),
            ]
        label = printable(mark.label if mark.kind == "step" else labels[mark.item])
        told[i] = {"label": label, "kind": _KINDS[mark.kind], "row": row, "facts": facts, "witnesses": within}
    return told


def draw_svg(why: Explanation, drawing: Drawing) -> str:
    across, along = drawing.width + 10, len(drawing.layers) * _LAYER
    if drawing.sideways:
        depths = _columns(drawing)
        wide, high = depths[-1] + 20, across
    else:
        depths = [20 + _HIGH / 2 + i * _LAYER for i in range(len(drawing.layers))]
        wide, high = across, along + 10
    place = {
        i: (depths[m.layer], m.x) if drawing.sideways else (m.x, depths[m.layer]) for i, m in enumerate(drawing.marks)
    }
    edges = "".join(_path(edge, place, drawing) for edge in drawing.edges)
    rows = [m.item for m in drawing.marks if m.kind not in ("step", "bend")]
    labels = dict(zip(rows, why.graph.labels(rows), strict=True))
    marks = "".join(_mark(i, m, *place[i], why.root, labels) for i, m in enumerate(drawing.marks) if m.kind != "bend")
    name = f"Derivations of {printable(why.label)}: {len(drawing.edges)} edges, told in words under As text."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'role="group" aria-label="{esc(name)}"><defs><marker id="arrow" '
        'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
        f'<path d="M0 0L8 4L0 8z"/></marker></defs>{edges}{marks}</svg>'
    )


def _columns(drawing: Drawing) -> list[float]:
    """Return the middle of each layer from left to right; then the end."""
    middles, at = [], 20.0
    for layer in drawing.layers:
        wide = max((_label_width(drawing.marks[i]) for i in layer), default=20.0)
        middles.append(at + wide / 2)
        at += wide + 46
    return [*middles, at]


def _label_width(mark: Mark) -> float:
    return 18.0 if mark.kind in ("step", "bend") else len(mark.label) * 7.3 + 24


def _shape(kind: str, x: float, y: float, wide: float, high: float) -> str:
    left, top = x - wide / 2, y - high / 2
    if kind == "step":
        r = min(wide, high) / 2
        return f'<path class="shape" d="M{x:.1f} {y - r:.1f}l{r:.1f} {r:.1f}l{-r:.1f} {r:.1f}l{-r:.1f} {-r:.1f}z"/>'
    if kind == "absence":
        c = min(7.0, high / 3)
        return (
            f'<path class="shape" d="M{left + c:.1f} {top:.1f}h{wide - 2 * c:.1f}l{c:.1f} {c:.1f}v{high - 2 * c:.1f}'
            f'l{-c:.1f} {c:.1f}h{2 * c - wide:.1f}l{-c:.1f} {-c:.1f}v{2 * c - high:.1f}z"/>'
        )
    round_ = 4 if kind == "base" else high / 2
    size = f'width="{wide:.1f}" height="{high:.1f}" rx="{round_:.1f}"'
    return f'<rect class="shape" x="{left:.1f}" y="{top:.1f}" {size}/>'


def _mark(i: int, mark: Mark, x: float, y: float, root: int, labels: Mapping[int, str]) -> str:
    asked = " asked" if mark.kind != "step" and mark.item == root else ""
    full = printable(mark.label if mark.kind == "step" else labels[mark.item])
    title = esc(f"{_KINDS[mark.kind]}: {full}")
    inside = (
        _shape("step", x, y, 15, 15)
        if mark.kind == "step"
        else _shape(mark.kind, x, y, _label_width(mark), _HIGH)
        + f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{esc(mark.label)}</text>'
    )
    return (
        f'<g class="mark {mark.kind}{asked}" data-mark="{i}" tabindex="0" role="button" aria-label="{title}">'
        f"<title>{title}</title>{inside}</g>"
    )


def _path(edge: Edge, place: dict[int, tuple[float, float]], drawing: Drawing) -> str:
    """Draw a smooth line from mark to mark, through the bends."""
    points = [place[i] for i in (edge.source, *edge.through, edge.target)]
    down = -1 if drawing.marks[edge.source].layer > drawing.marks[edge.target].layer else 1
    points[0] = _border(points[0], drawing.marks[edge.source], down, drawing.sideways)
    points[-1] = _border(points[-1], drawing.marks[edge.target], -down, drawing.sideways)
    d = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (ax, ay), (bx, by) in pairwise(points):
        if drawing.sideways:
            d += f"C{(ax + bx) / 2:.1f} {ay:.1f} {(ax + bx) / 2:.1f} {by:.1f} {bx:.1f} {by:.1f}"
        else:
            d += f"C{ax:.1f} {(ay + by) / 2:.1f} {bx:.1f} {(ay + by) / 2:.1f} {bx:.1f} {by:.1f}"
    arrow = ' marker-end="url(#arrow)"' if drawing.marks[edge.source].kind == "step" else ""
    back = " back" if edge.back else ""
    return f'<path class="edge{back}" data-from="{edge.source}" data-to="{edge.target}" d="{d}"{arrow}/>'


def _border(point: tuple[float, float], mark: Mark, side: int, sideways: bool) -> tuple[float, float]:
    """Return where an edge meets a mark, on its far (1) or near (-1) side."""
    if sideways:
        return point[0] + side * (7.5 if mark.kind == "step" else _label_width(mark) / 2), point[1]
    return point[0], point[1] + side * (7.5 if mark.kind == "step" else _HIGH / 2)


def _lit(graph: Derivations, chosen: Chosen, drawing: Drawing, witness: Sequence[int]) -> list[int]:
    """Return the marks of a derivation of the root from a witness and absences alone, as far as it is drawn."""
    there = {n for n in chosen.nodes if graph.kind(n) == "absence"} | set(witness)
    by: dict[int, tuple[int, list[int]]] = {}  # the first derivation found of a node, and the body that is there
    uses: dict[int, list[int]] = {}
    for d, body in chosen.derivations.items():
        for n in body:
            uses.setdefault(n, []).append(d)
    waiting = deque(chosen.derivations)
    while waiting:
        d = waiting.popleft()
        head, body = int(graph.head[d]), chosen.derivations[d]
        left = [n for n in body if n in there]
        if head not in there and (len(left) == len(body) or (left and head in graph.tallies)):
            by[head] = d, left
            there.add(head)
            waiting.extend(uses.get(head, ()))
    nodes, steps, todo = set[int](), set[int](), [chosen.nodes[0]] if chosen.nodes[0] in there else list(witness)
    while todo:
        n = todo.pop()
        if n not in nodes:
            nodes.add(n)
            if n in by:
                steps.add(by[n][0])
                todo += by[n][1]
    return [i for i, m in enumerate(drawing.marks) if m.item in (steps if m.kind == "step" else nodes) and m.item >= 0]


def _tags(rows: Iterable[str]) -> str:
    return "".join(f'<span class="tag row">{esc(label)}</span>' for label in rows)


def _witness_section(why: Explanation) -> str:
    graph, found = why.graph, why._witnesses
    rows = "".join(
        f'<tr><td><button type="button" data-witness="{i}" aria-pressed="false">{i + 1}</button></td>'
        f'<td class="num">{len(w):,}</td><td>{_tags(map(printable, graph.labels(w[:60])))}'
        f"{f'… and {len(w) - 60:,} more' if len(w) > 60 else ''}</td></tr>"
        for i, w in enumerate(found.found)
    )
    least = "" if found.complete else "at least "
    shown = f"{len(found.found):,} of {least}{found.count:,}" if len(found.found) < found.count else "all"
    return (
        f"<section><h2>Minimal witnesses</h2><table><caption>Each suffices alone, and none of its rows can be spared: "
        f'{shown}, smallest first.</caption><thead><tr><th scope="col" class="num">show</th>'
        '<th scope="col" class="num">rows</th>'
        f'<th scope="col">base rows</th></tr></thead><tbody>{rows}</tbody></table></section>'
    )


def _group_section(group: list[Contributing]) -> str:
    names = [share.function.upper() for share in group[0].shares] if group else []
    lines = []
    for one in group[:ROWS]:
        cells = "".join(f"<td>{meter(share.part)}{esc(_share(share))}</td>" for share in one.shares)
        row = ", ".join(f"{name}={value}" for name, value in one.row.items())
        lines.append(
            f'<tr><td class="row">{esc(one.name)}({esc(row)})</td><td class="num">{one.copies:,}</td>{cells}</tr>'
        )
    heads = "".join(f'<th scope="col">{esc(name)}</th>' for name in names)
    return (
        f"<section><h2>Rows of the group</h2><table><caption>{_shown(len(group))} that its aggregates are made of."
        f'</caption><thead><tr><th scope="col">row</th><th scope="col" class="num">copies</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></section>"
    )


def _share(share: AggregateShare) -> str:
    """
    >>> [_share(AggregateShare(*given)) for given in (("sum", 3, 0.25), ("min", 3, None, True), ("count", 1, 0.5))]
    ['3, 25 %', '3, the best', '50 %']
    """
    value = [] if share.function == "count" else ["NULL" if share.value is None else str(share.value)]
    part = [] if share.part is None else [f"{round(share.part * 100, 1):g} %"]
    return ", ".join([*value, *part, *(["the best"] if share.best else [])])


def meter(part: float | None) -> str:
    if part is None:
        return ""
    return f'<span class="meter" aria-hidden="true"><i style="width:{max(0.0, min(part, 1.0)) * 100:.1f}%"></i></span>'


def _base_section(why: Explanation) -> str:
    graph, lost = why.graph, set(why._critical.tolist())
    nodes = sorted(graph.base.tolist(), key=lambda n: (n not in lost, n))
    rows = "".join(
        f'<tr><td class="row">{esc(printable(label))}</td><td class="num">{graph.copies.get(n, 1):,}</td>'
        f"<td>{'<span class=critical>critical: without it the row is gone</span>' if n in lost else ''}</td></tr>"
        for n, label in zip(nodes[:ROWS], graph.labels(nodes[:ROWS]), strict=True)
    )
    return (
        f'<section><details{" open" if len(nodes) <= _FEW else ""}><summary>Base rows</summary><table class="find">'
        f"<caption>{_shown(len(nodes))} behind it.</caption><thead><tr>"
        '<th scope="col">row</th><th scope="col" class="num">copies</th><th scope="col">if it is lost</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></details></section>"
    )


def _shown(rows: int) -> str:
    """
    >>> _shown(1), _shown(1000)
    ('1 row', '500 of 1,000 rows')
    """
    return f"{ROWS:,} of {rows:,} rows" if rows > ROWS else f"{rows:,} row{'s' * (rows != 1)}"
