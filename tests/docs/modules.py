"""Write the tables of modules in docs/architecture.md: `python -m tests.docs.modules`.

Each package of whence/ has a table of its modules: what the table in its `__init__` says of each, or else the first
sentence of the module's docstring. The page keeps its prose; the tables stand between `<!-- modules -->` and
`<!-- end -->`. `test_docs.py` checks that every module is named.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
ORDER = (
    "model",
    "annotate",
    "plan",
    "sql",
    "engine",
    "adapt",
    "state",
    "io",
    "explain",
    "subscribe",
    "runtime",
    "server",
    "client",
    "cli",
)
_TABLES = re.compile(r"(?<=<!-- modules -->\n).*?(?=<!-- end -->)", re.DOTALL)


def modules() -> dict[str, list[Path]]:
    """Return the modules of each package, packages in the order in which they may import each other."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "whence").rglob("*.py"), key=_place):
        if path.stem not in ("__init__", "__main__") and path.parent.name != "whence":
            found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path)
    return found


def _place(path: Path) -> tuple[int, Path, str]:
    room = path.relative_to(ROOT / "whence").parts[0]
    return ORDER.index(room) if room in ORDER else -1, path.parent, path.name


def purpose(path: Path) -> str:
    """Return what the package's table says of a module, or the first sentence of its docstring."""
    said = re.search(rf"^\| *`?{path.stem}`? *\|(.*)\|$", _docstring(path.with_name("__init__.py")), re.MULTILINE)
    if said:
        return said[1].strip()
    first = re.split(r"(?<=\.)\s", " ".join(_docstring(path).split("\n\n")[0].split()))[0].rstrip(".")
    return first.replace("|", "\\|")


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def tables() -> str:
    """Return a table per package."""
    parts = []
    for package, paths in modules().items():
        lines = [f"**`{package}/`**", "", "| module | purpose |", "|---|---|"]
        parts.append("\n".join([*lines, *(f"| `{path.stem}` | {purpose(path)} |" for path in paths)]))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLES.sub(lambda _: tables(), page), encoding="utf-8")


if __name__ == "__main__":
    main()
