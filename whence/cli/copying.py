r"""`\copy`: rows from a file into a table, and a table, a view or a query to a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.cli.console import Bar, count_of
from whence.cli.variables import used_params
from whence.io import files
from whence.model.errors import WhenceError
from whence.model.paths import local_path

if TYPE_CHECKING:
    from whence.runtime.database import Database

USAGE = r"\copy TABLE FROM 'file', or \copy TABLE TO 'file', or \copy (SELECT …) TO 'file'"
_COPY = re.compile(r"(\(.*\)|[^\s(]+)\s+(FROM|TO)\s+('(?:[^']|'')+'|[^\s']+)", re.IGNORECASE | re.DOTALL)


def copy(db: Database, text: str, variables: Mapping[str, Any]) -> str:
    r"""Carry out what follows `\copy`; return what was done. The name of the file implies its format.

    >>> import tempfile, whence
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); INSERT INTO a VALUES (1), (2)")
    >>> folder = tempfile.TemporaryDirectory(); path = f"{folder.name}/a.csv"
    >>> copy(db, f"(SELECT x FROM a WHERE x > :n) TO '{path}'", {"n": 1}).removesuffix(path)
    '1 row written to '
    >>> copy(db, f"a FROM {path}", {})
    '1 row inserted'
    >>> sorted(db["a"])
    [(1,), (2,), (2,)]
    """
    found = _COPY.fullmatch(text.strip().rstrip(";").strip())
    if found is None:
        raise WhenceError(USAGE)
    what, direction, file = found.groups()
    if file.startswith("'"):
        file = file[1:-1].replace("''", "'")
    path = local_path(file if file.startswith("file:") else Path(file).expanduser())
    files.format_of(path)
    if direction.upper() == "FROM":
        if what.startswith("("):
            raise WhenceError(f"rows go into a table, not a query: {USAGE}")
        with Bar(f"reading {path}"):
            return f"{count_of(db.insert(_unquoted(what), path), 'row')} inserted"
    with Bar(f"writing {path}"):
        if what.startswith("("):
            rows = db.query(what[1:-1], used_params(what[1:-1], variables)).to_arrow()
        else:
            rows = db[_unquoted(what)].to_arrow()
        files.write(rows, path)
    return f"{count_of(rows.num_rows, 'row')} written to {path}"


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') and name.endswith('"') and len(name) > 1 else name
