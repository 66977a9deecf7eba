"""Maintain the routes of a network while its links change. Run with `python examples/network.py`."""

from pathlib import Path

import whence

with whence.open() as db:
    db.execute((Path(__file__).parent / "network.sql").read_text())

    links = [("A", "B", 5), ("B", "C", 5), ("C", "A", 5), ("C", "D", 1), ("A", "D", 20)]
    db.insert("link", links)
    print(db["best"])

    changes = db.changes("best")

    # One epoch: every view goes from one consistent state to the next.
    with db.transaction():
        db.delete("link", [("B", "C", 5)])
        db.insert("link", [{"src": "B", "dst": "D", "cost": 1}])

    for change in changes:
        print(f"epoch {change.epoch}: {'+' if change.sign > 0 else '-'} {change.row}")

    print(db.query("SELECT src, nodes FROM reach_of ORDER BY nodes DESC, src"))
    print(db["reachable"].to_pandas())
