"""Pages of tables: what would change, and base rows with their numbers. As `page.py`, one file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.explain.show.page import ROWS, chip, esc, fill_template, meter
from whence.explain.show.tree import printable

Changed = tuple[str, bool, list[str], list[tuple[Any, ...]], list[tuple[Any, ...]]]


def changes_page(changes: Sequence[Changed], epoch: int) -> str:
    """Write a table for each table or view that would change: its name, whether it is a table, its columns, the rows
    that would go and those that would come."""
    views = sum(not is_table for _, is_table, *_ in changes)
    rows = sum(len(gone) + len(new) for *_, gone, new in changes)
    chips = chip(views, "view{s} would change") + chip(rows, "row{s} would come or go")
    body = [
        "<h1>What if?</h1>",
        f'<p class="sub">Supposed after epoch {epoch:,}; nothing has been changed.</p>',
        f'<ul class="chips">{chips}</ul>' if changes else "<section><p>Nothing would change.</p></section>",
        *(_change_section(*change) for change in changes),
    ]
    return fill_template("What if?", body, {"witnesses": []})


def _change_section(
    name: str, is_table: bool, columns: list[str], gone: list[tuple[Any, ...]], new: list[tuple[Any, ...]]
) -> str:
    heads = "".join(f'<th scope="col">{esc(column)}</th>' for column in ("", *columns))
    rows = [("gone", "−", row) for row in gone] + [("come", "+", row) for row in new]
    lines = "".join(
        f'<tr class="{kind}"><th scope="row" aria-label="{"goes" if kind == "gone" else "comes"}">{mark}</th>'
        + "".join(f'<td class="row">{esc("NULL" if v is None else v)}</td>' for v in row)
        + "</tr>"
        for kind, mark, row in rows[:ROWS]
    )
    what = "table" if is_table else "view"
    more = f" The first {ROWS:,} are shown." if len(rows) > ROWS else ""
    return (
        f'<section><h2>{esc(name)}</h2><table class="find">'
        f"<caption>{what}: {len(gone):,} gone, {len(new):,} new.{more}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></section>"
    )


def answer_page(
    title: str, note: str, facts: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[Any]], whole: float
) -> str:
    """Write one table; a number in the last column is shown as its part of `whole`, too."""
    heads = "".join(f'<th scope="col">{esc(column)}</th>' for column in columns)
    lines = "".join(f"<tr>{''.join(_cell(value, whole) for value in row)}</tr>" for row in rows[:ROWS])
    more = f"<caption>The first {ROWS:,} of {len(rows):,} rows.</caption>" if len(rows) > ROWS else ""
    table = (
        f'<section><table class="find">{more}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></section>'
    )
    body = [
        f"<h1>{esc(printable(title[:1].upper() + title[1:]))}</h1>",
        f'<p class="sub">{esc(note)}</p>',
        f'<ul class="chips">{"".join(f"<li>{esc(fact)}</li>" for fact in facts)}</ul>',
        table if rows else "",
    ]
    return fill_template(title, body, {"witnesses": []})


def _cell(value: Any, whole: float) -> str:
    if isinstance(value, (int, float)):
        return f'<td data-value="{value}">{meter(value / whole if whole else None)}{value:,}</td>'
    return f'<td class="row">{esc(printable(str(value)))}</td>'
