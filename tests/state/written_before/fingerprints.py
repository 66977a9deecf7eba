"""Fingerprints of the operators of many views, as an earlier version computed them.

State on disk is found by fingerprint, so a fingerprint that changes makes stored state unusable. `fingerprints.sql` has
programs under headings `-- == name`: scripts, separated by blank lines. A script ends with the views it makes, one in a
line `-- view fingerprint`; that is the fingerprint of the view's last operator, which contains those of the operators
below it. What is there is never changed;

    python -m tests.state.written_before.fingerprints

appends the views of `tests/sql/*.slt` files and of `PROGRAMS` that have no heading yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import whence
from tests import inside
from tests.oracle import statements, view_text
from tests.sqllogic.reader import read
from tests.state.written_before.programs import PROGRAMS, with_functions

FILE = Path(__file__).with_name("fingerprints.sql")
FIXTURES = sorted((Path(__file__).parents[2] / "sql").glob("*.slt"))


@dataclass(frozen=True)
class Script:
    """Some statements, and the fingerprints of the views that they make."""

    sql: str
    fingerprints: dict[str, str]

    def __str__(self) -> str:
        return "\n".join([self.sql, *(f"-- {view} {found}" for view, found in self.fingerprints.items())])


def recorded() -> dict[str, list[Script]]:
    """Read the scripts of `fingerprints.sql`, by the name of their program."""
    text = FILE.read_text() if FILE.exists() else ""
    sections = (section.partition("\n") for section in re.split(r"^-- == ", text, flags=re.MULTILINE)[1:])
    return {name: [_script(part) for part in rest.strip().split("\n\n")] for name, _, rest in sections}


def computed(scripts: Iterable[str]) -> Iterator[Script]:
    """Run scripts in a new database; yield each with the fingerprints of the views that it makes."""
    with whence.open(setup=with_functions) as db:
        for sql in scripts:
            db.execute(sql)
            views = [view.name for statement in statements(sql) if (view := view_text(statement)) is not None]
            yield Script(sql, {view: fingerprint(db, view) for view in views})


def fingerprint(db: whence.Database, view: str) -> str:
    """Return the fingerprint of a view's last operator."""
    return inside.operator(db, view).fingerprint


def _script(text: str) -> Script:
    found = re.findall(r"^-- (\w+) (\w+)$", text, re.MULTILINE)
    return Script(re.sub(r"^-- .*\n?", "", text, flags=re.MULTILINE).strip(), dict(found))


def _programs() -> Iterator[tuple[str, list[str]]]:
    """Yield the scripts of each program: declarations, and queries as views."""
    for path in FIXTURES:
        scripts = []
        for number, block in enumerate(read(path)):
            match block.words:
                case ["statement", "ok", *_] if re.match(r"CREATE|DROP", block.sql):
                    scripts.append(block.sql)
                case ["query", *_]:
                    scripts.append(f"CREATE VIEW query_{number} AS {block.sql}")
        yield path.stem, scripts
    for name, program in PROGRAMS.items():
        yield name, [re.sub(r"\n\s*\n", "\n", program.script.strip())]


if __name__ == "__main__":
    known = recorded()
    with FILE.open("a") as out:
        for name, scripts in _programs():
            if name not in known:
                out.write("\n\n".join([f"-- == {name}", *map(str, computed(scripts))]) + "\n\n")
