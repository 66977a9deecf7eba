"""Maintain access rights through groups, roles and folders. Run with `python examples/access.py`."""

from pathlib import Path

import whence

with whence.open() as db:
    db.execute((Path(__file__).parent / "access.sql").read_text())

    with db.transaction():
        db.insert("person", [("ada", "ada@example.org"), ("bob", "bob@example.org"), ("eve", None)])
        db.insert("member", [("ada", "kernel"), ("bob", "web"), ("eve", "contractors")])
        db.insert("member", [("kernel", "engineering"), ("web", "engineering"), ("contractors", "web")])
        db.insert("role_grant", [("engineering", "developer"), ("ada", "maintainer")])
        db.insert("role_right", [("developer", "read"), ("maintainer", "read"), ("maintainer", "write")])
        db.insert("role_scope", [("developer", "source"), ("maintainer", "source/kernel")])
        db.insert("folder", [("source", None), ("source/web", "source"), ("source/kernel", "source"), ("books", None)])
        db.insert("denial", [("contractors", "read", "source/kernel")])
    print(db["may"])

    may = db.changes("may")
    db.delete("member", [("contractors", "web")])
    print("contractors leave the web group:")
    for change in sorted(may):
        print("  gained" if change.sign > 0 else "  lost  ", *change.row)

    print(db["lonely_folder"])
