"""A database with everything, and for each caller the database that they should see: what tests compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import whence
from whence.server.access.rights import Rights
from whence.sql.parse import parse_query

Row = tuple[Any, ...]

DEFINED = {
    "note": "CREATE TABLE note (id INT PRIMARY KEY, owner TEXT, body TEXT)",
    "task": "CREATE TABLE task (team TEXT, points INT)",
    "plain": "CREATE TABLE plain (id INT, word TEXT)",
    "event": "CREATE STREAM event (at INT, owner TEXT)",
    "Quoted Name": 'CREATE TABLE "Quoted Name" ("Odd Column" INT, owner TEXT)',
    "open_event": "CREATE STREAM open_event (at INT, kind TEXT)",
}
HIDDEN = """
    CREATE TABLE member (who TEXT, team TEXT);
    CREATE TABLE secret (id INT, owner TEXT, pin TEXT);
    CREATE STREAM secret_event (at INT, pin TEXT);
    CREATE VIEW secret_view AS SELECT pin FROM secret;
    CREATE VIEW notes_by_owner AS SELECT owner, COUNT(*) AS notes FROM note GROUP BY owner;
    CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)
"""
ROWS: dict[str, list[Row]] = {
    "note": [
        (1, "ann", "11"),
        (2, "bob", "bob's body"),
        (3, None, "nobody's body"),
        (4, "ann", "44"),
        (5, "cy", "cy's"),
    ],
    "task": [("red", 1), ("red", 2), ("blue", 30), (None, 40)],
    "plain": [(1, "one"), (2, "two"), (4, "four")],
    "event": [(1, "ann"), (2, "bob"), (3, "ann"), (4, None)],
    "Quoted Name": [(1, "ann"), (2, "bob")],
    "open_event": [(1, "a"), (2, "b")],
}
SECRETS = {
    "member": [("ann", "red"), ("bob", "blue")],
    "secret": [(1, "ann", "1234"), (2, "bob", "5678")],
    "secret_event": [(1, "9999")],
}
OWN = "owner = :who"
TEAM = "team IN (SELECT team FROM member WHERE member.who = :who)"
ALLOWED = [
    ("*", "note", f"read where {OWN}"),
    ("*", "task", f"read where {TEAM}"),
    ("*", "plain", "read"),
    ("*", "event", f"read where {OWN}"),
    ("*", "Quoted Name", f"read where {OWN}"),
    ("*", "open_event", "define"),
    ("eve", "*", "define"),
]
TEAMS = {"ann": ["red"], "bob": ["blue"]}


def whole_database(**options: Any) -> whence.Database:
    """Return the database with everything."""
    db = whence.open(**options)
    db.execute(";".join([*DEFINED.values(), HIDDEN]))
    for name, rows in [*ROWS.items(), *SECRETS.items()]:
        db.insert(name, rows)
    db.insert("allowed", ALLOWED)
    return db


def rows_of(who: str, name: str) -> list[Row]:
    """Return the rows of a table that a caller may read, by hand."""
    match name:
        case "note" | "event" | "Quoted Name":
            return [row for row in ROWS[name] if row[1] == who]
        case "task":
            return [row for row in ROWS[name] if row[0] in TEAMS.get(who, [])]
    return ROWS[name]


def seen_database(who: str) -> whence.Database:
    """Return the database as a caller should see it."""
    db = whence.open()
    db.execute(";".join(DEFINED.values()))
    for name in DEFINED:
        db.insert(name, rows_of(who, name))
    return db


@dataclass
class Worlds:
    """Everything, with its rights, and what callers should see."""

    whole: whence.Database = field(default_factory=whole_database)
    seen: dict[str, whence.Database] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rights = Rights(self.whole)
        self.seen |= {who: seen_database(who) for who in ("ann", "bob", "stranger")}

    def restricted(self, who: str, sql: str) -> list[Row]:
        """Return the answer that a caller gets."""
        tree = self.rights.restricted(who, parse_query(sql).query)
        return whence.Result(self.whole._coordinator.reader.query(tree)).rows

    def columns(self, who: str, sql: str) -> list[str]:
        """Return the names of the columns that a caller gets."""
        tree = self.rights.restricted(who, parse_query(sql).query)
        return list(self.whole._coordinator.reader.query(tree).column_names)

    def close(self) -> None:
        for db in (self.whole, *self.seen.values()):
            db.close()
