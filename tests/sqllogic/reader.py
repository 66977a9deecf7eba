"""Reads sqllogictest files: blocks of a header, SQL and expected lines, separated by blank lines.

Lines that begin with `#` are comments. `skipif NAME` and `onlyif NAME` above a header say who is to run a block; `halt`
ends a file; `loop i 0 3`, `foreach x a b` and `endloop` repeat blocks, with `${i}` replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_ALONE = ("halt", "loop", "foreach", "endloop", "hash-threshold", "mode", "require", "load", "reset-server")


@dataclass(frozen=True)
class Block:
    """One block of a file: its header in words, its SQL, the lines it expects, and who skips it or runs it alone."""

    line: int
    words: list[str]
    sql: str
    rows: list[str]
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    expects: bool = True  # lines, be it none: there is a `----`

    @property
    def ours(self) -> bool:
        """Whether DuckDB is not asked (in files of `tests/sql`)."""
        return self.words[-1] == "ours"


def read(path: Path) -> Iterator[Block]:
    """Yield the blocks of a file."""
    return read_lines(path.read_text().splitlines())


def read_lines(lines: Iterable[str]) -> Iterator[Block]:
    """Yield the blocks of some lines.

    >>> [(b.words, b.sql, b.rows) for b in read_lines(["query I", "SELECT 1", "----", "1", "", "halt"])]
    [(['query', 'I'], 'SELECT 1', ['1']), (['halt'], '', [])]
    """
    start, current = 0, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            start = start if current else number
            current.append(line.rstrip())
            if len(current) == 1 and line.split()[0] in _ALONE:
                yield Block(start, line.split(), "", [], expects=False)
                current = []
        elif current:
            yield _block(start, current)
            current = []


def _block(start: int, lines: list[str]) -> Block:
    conditions: dict[str, list[str]] = {"skipif": [], "onlyif": []}
    while len(lines) > 1 and (word := lines[0].split()[0]) in conditions:
        conditions[word].append(lines[0].split()[1].lower())
        lines = lines[1:]
    body, rows = lines[1:], list[str]()
    expects = "----" in body
    if expects:
        at = body.index("----")
        body, rows = body[:at], body[at + 1 :]
    skip, only = tuple(conditions["skipif"]), tuple(conditions["onlyif"])
    return Block(start, lines[0].split(" "), "\n".join(body), rows, skip, only, expects)


def unrolled(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks up to a `halt`, those in loops as often as they are to be run.

    >>> text = ["loop i 0 2", "", "statement ok", "SELECT ${i}", "", "endloop"]
    >>> [block.sql for block in unrolled(read_lines(text))]
    ['SELECT 0', 'SELECT 1']
    """
    yield from _unrolled(iter(blocks))


def _unrolled(blocks: Iterator[Block]) -> Iterator[Block]:
    for block in blocks:
        match block.words:
            case ["halt", *_]:
                return
            case ["loop", name, first, last, *_]:
                yield from _repeated(name, [str(n) for n in range(int(first), int(last))], _inside(blocks))
            case ["foreach", name, *values]:
                yield from _repeated(name, values, _inside(blocks))
            case _:
                yield block


def _inside(blocks: Iterator[Block]) -> list[Block]:
    """Return the blocks up to the `endloop` of a loop that has begun."""
    found, depth = list[Block](), 1
    for block in blocks:
        depth += {"loop": 1, "foreach": 1, "endloop": -1}.get(block.words[0], 0)
        if not depth:
            break
        found.append(block)
    return found


def _repeated(name: str, values: list[str], inside: list[Block]) -> Iterator[Block]:
    for value in values:
        mark = f"${{{name}}}"
        some = [
            replace(
                block,
                words=[word.replace(mark, value) for word in block.words],
                sql=block.sql.replace(mark, value),
                rows=[row.replace(mark, value) for row in block.rows],
            )
            for block in inside
        ]
        yield from _unrolled(iter(some))
