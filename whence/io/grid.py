"""Tables as people see them: described once as a `Grid`, and drawn for a terminal and for a notebook."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whence.io import html
from whence.io.json_lines import duration
from whence.model.codes import Interval

if TYPE_CHECKING:
    import rich.table

SHOWN = 20  # rows of a table that are shown
_KIND = {"+": "new", "-": "gone"}


@dataclass(frozen=True)
class Grid:
    """Some rows of a table.

    columns  their names
    rows     the rows that are shown
    total    how many there are
    title    what it is a table of
    caption  what is said below it, if not how many rows there are
    types    the types of the columns, shown where there is room
    right    whether each column is aligned to the right; if not given, those that only have numbers
    signs    of each row "+" or "-", if rows come and go
    longest  how much of a long text a notebook shows

    >>> print(Grid(["x"], [(1,), (None,)], 7).html_table().replace("><", ">\\n<"))
    <div class="scroll">
    <table>
    <thead>
    <tr>
    <th class="num">x</th>
    </tr>
    </thead>
    <tbody>
    <tr>
    <td class="num">1</td>
    </tr>
    <tr>
    <td class="num">
    <span class="dim">NULL</span>
    </td>
    </tr>
    </tbody>
    </table>
    </div>
    <div class="dim">2 of 7 rows</div>
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int
    title: str | None = None
    caption: str | None = None
    types: Sequence[str] = ()
    right: Sequence[bool] | None = None
    signs: Sequence[str] = ()
    longest: int = html.LONGEST

    @property
    def note(self) -> str:
        """What is said below it."""
        return count_rows(len(self.rows), self.total) if self.caption is None else self.caption

    @property
    def aligned(self) -> Sequence[bool]:
        """Whether each column is aligned to the right."""
        if self.right is not None:
            return self.right
        some = self.rows
        return [bool(some) and all(_is_number(row[i]) for row in some) for i in range(len(self.columns))]

    def __rich__(self) -> rich.table.Table:
        """Draw it for a terminal."""
        import rich.box
        import rich.table
        import rich.text

        out = rich.table.Table(
            title=None if self.title is None else rich.text.Text(self.title, style="table.title"),
            caption=rich.text.Text(self.note, style="table.caption"),
            box=rich.box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
            min_width=min(100, max(len(self.title or ""), len(self.note))),
        )
        for name, right in zip(self.columns, self.aligned, strict=True):
            out.add_column(rich.text.Text(name), justify="right" if right else "left", overflow="fold")
        for row in self.rows:
            out.add_row(*(rich.text.Text(text_of(v), style="dim" if v is None else "") for v in row))
        return out

    def html(self) -> str:
        """Draw it for a notebook."""
        title = "" if self.title is None else html.line(self.title, "title")
        return html.fragment(title, self.html_table())

    def html_table(self) -> str:
        """Draw it as a part of something larger."""
        aligned = self.aligned
        types = self.types or [""] * len(self.columns)
        heads = "".join(
            f"<th{_attribute('class', 'num' * right)}{_attribute('title', kind)}>{html.escape(name)}</th>"
            for name, kind, right in zip(self.columns, types, aligned, strict=True)
        )
        signs = self.signs or [""] * len(self.rows)
        lines = "".join(
            f"<tr{_attribute('class', _KIND.get(sign, ''))}>"
            + "".join(
                f"<td{_attribute('class', 'num' * right)}>{self._cell(v)}</td>"
                for v, right in zip(row, aligned, strict=True)
            )
            + "</tr>"
            for row, sign in zip(self.rows, signs, strict=True)
        )
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
        return f'<div class="scroll">{table}</div>{html.line(self.note, "dim") if self.note else ""}'

    def _cell(self, value: Any) -> str:
        return '<span class="dim">NULL</span>' if value is None else html.escape(text_of(value), self.longest)


def plain(renderable: Any) -> str:
    """Write what rich can show as plain text; in a notebook, too, where rich would display it."""
    import rich.console

    out = io.StringIO()
    rich.console.Console(file=out, width=120, no_color=True, force_jupyter=False).print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def text_of(value: Any) -> str:
    """Write a value as a table shows it.

    >>> [text_of(value) for value in (None, True, 1.5, Interval(1, 0, 0))]
    ['NULL', 'true', '1.5', 'P1M']
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return duration(value) if isinstance(value, Interval) else str(value)


def count_rows(shown: int, total: int, what: str = "row") -> str:
    """
    >>> count_rows(1, 1), count_rows(20, 5000)
    ('1 row', '20 of 5,000 rows')
    """
    return f"{shown:,} of {total:,} {what}s" if shown < total else f"{total:,} {what}{'s' * (total != 1)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or value is None


def _attribute(name: str, value: str) -> str:
    return f' {name}="{html.escape(value)}"' if value else ""


class FactSheet:
    """A dataclass whose fields a notebook shows as a table of two columns: reports of work on folders."""

    def _repr_html_(self) -> str:
        rows = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # a dataclass is made of it
            facts = _facts(getattr(self, field.name))
            rows += [(field.name * (not i), fact) for i, fact in enumerate(facts[:SHOWN])]
            rows += [("", f"… and {len(facts) - SHOWN:,} more")] * (len(facts) > SHOWN)
        return Grid(["", ""], rows, len(rows), type(self).__name__.lower(), "").html()


def _facts(value: Any) -> list[str]:
    """Write the value of a field, of several things each.

    >>> _facts(1000), _facts(()), _facts({"a": 1}), _facts(["x", Grid([], [], 7)])
    (['1,000'], ['none'], ['a: 1'], ['x', '7, 400'])
    """
    if isinstance(value, Mapping):
        return [f"{name}: {fact}" for name, one in value.items() for fact in _facts(one)] or ["none"]
    if isinstance(value, (tuple, list)):
        return [fact for one in value for fact in _facts(one)] or ["none"]
    if dataclasses.is_dataclass(value) and type(value).__str__ is object.__str__:
        parts = (getattr(value, field.name) for field in dataclasses.fields(value))
        return [", ".join(fact for part in parts if part or part == 0 for fact in _facts(part))]
    return ["none" if value is None else f"{value:,}" if type(value) is int else text_of(value)]
