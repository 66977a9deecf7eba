"""Audit access rights: why a person sees a document, and what would change it. Run `python examples/audit.py`."""

from pathlib import Path

import whence

with whence.open() as db:
    db.execute((Path(__file__).parent / "audit.sql").read_text())
    with db.transaction():
        db.insert("person", [("ada",), ("bob",), ("eve",)])
        db.insert("member", [("ada", "board"), ("ada", "audit"), ("bob", "audit"), ("eve", "board"), ("eve", "guests")])
        db.insert("holds", [("board", "super_admin"), ("audit", "reader")])
        db.insert("implies", [("super_admin", "owner"), ("owner", "reader")])
        db.insert("granted", [("reader", "reports"), ("super_admin", "secrets")])
        db.insert("folder", [("reports", None), ("reports/2026", "reports"), ("secrets", None)])
        db.insert("document", [("budget", "reports/2026"), ("keys", "secrets")])

    why = db.why("sees", person="ada", document="budget")
    print(why)
    print("\nEach of these suffices:")
    for witness in why.witnesses:
        print("  -", ", ".join(f"{table}{tuple(row.values())}" for table, row in witness))

    # Does the right depend on super_admin alone?
    for person, document in sorted(db["sees"]):
        without = db.why("sees", person=person, document=document).holds_without({"holds": [("board", "super_admin")]})
        print(f"{person} sees {document}", "also without super_admin" if without else "through super_admin alone")

    print("\nWhat if the board loses super_admin?")
    print(db.what_if(delete={"holds": [("board", "super_admin")]}))

    print("\nWhat does a denial of reports to guests take away?")
    print(db.what_if(insert={"denied": [("guests", "reports")]}))

    print("\nRows that many rights depend on:")
    print(db.critical("sees"))
