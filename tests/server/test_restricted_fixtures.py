"""The queries of `tests/sql` under row rights that let every row through: the same rows, columns and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import whence
from tests.sqllogic.reader import Block, read
from whence.server.access.rights import Rights
from whence.sql import statements as st
from whence.sql.parse import parse_one

FILES = sorted((Path(__file__).parents[1] / "sql").glob("*.slt"))
ALLOWED = "CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)"
EVERY_ROW = ("read where TRUE", "read where 1 IN (SELECT 1 FROM allowed) OR FALSE")


def _outcome(run: Callable[[], whence.Result]) -> object:
    try:
        found = run()
        return [name.lower() for name in found.columns], Counter(map(repr, found.rows))
    except whence.WhenceError as error:
        return type(error).__name__, str(error).replace(" (cte)", "")


def _grant(db: whence.Database) -> None:
    """Let ann and bob read every row by a condition, but of streams all without one."""
    with db.transaction():
        db.delete("allowed", where="TRUE")
        for name in [*db.tables, *db.streams, *db.views]:
            conditional = not db._coordinator.reader.is_stream(name)
            whats = EVERY_ROW if conditional else ("read", "read")
            db.insert("allowed", [(who, name, what) for who, what in zip(("ann", "bob"), whats, strict=True)])


def _query(block: Block) -> st.Query | None:
    try:
        statement = parse_one(block.sql)
    except whence.WhenceError:
        return None
    return statement if isinstance(statement, st.Query) else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_fixtures_under_rights_to_every_row(path: Path) -> None:
    db = whence.open()
    db.execute(ALLOWED)
    rights, reader, asked = Rights(db), db._coordinator.reader, 0
    for block in read(path):
        query = _query(block)
        if query is None:
            if block.words[0] == "statement":
                try:
                    db.execute(block.sql)
                except whence.WhenceError:
                    assert block.words[1] == "error"
            continue
        _grant(db)
        wanted = _outcome(lambda sql=block.sql: db.query(sql))
        for who in ("ann", "bob"):
            found = _outcome(
                lambda who=who, tree=query.query: whence.Result(reader.query(rights.restricted(who, tree)))
            )
            where = f"{path.name}, line {block.line}: {block.sql}"
            if isinstance(wanted[0], list):  # type: ignore[index]  # either way a pair
                assert found[1] == wanted[1], where  # type: ignore[index]
                assert len(found[0]) == len(wanted[0]), where  # type: ignore[index]
            else:
                assert found == wanted, where
        asked += 1
    assert asked or path.stem in ("ddl", "dml", "errors")
    db.close()
