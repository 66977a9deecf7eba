"""Access control: nested groups and roles, grants that run down a folder tree, denials in and above the recursion."""

from __future__ import annotations

import pytest

from tests.depth import seeds
from tests.oracle import Row, Tables, Twin, assert_rows, drive, every_policy, stream

ACCESS = """
    CREATE TABLE member (principal TEXT, grp TEXT);
    CREATE TABLE holds (principal TEXT, role TEXT);
    CREATE TABLE implies (role TEXT, other TEXT);
    CREATE TABLE folder (name TEXT PRIMARY KEY, parent TEXT);
    CREATE TABLE granted (role TEXT, folder TEXT);
    CREATE TABLE denied (principal TEXT, folder TEXT);
    CREATE TABLE person (name TEXT PRIMARY KEY);
    CREATE VIEW acts_as(person, principal) AS
      SELECT name, name FROM person
      UNION
      SELECT a.person, m.grp FROM acts_as AS a JOIN member AS m ON m.principal = a.principal;
    CREATE VIEW has_role(person, role) AS
      SELECT a.person, h.role FROM acts_as AS a JOIN holds AS h ON h.principal = a.principal
      UNION
      SELECT r.person, i.other FROM has_role AS r JOIN implies AS i ON i.role = r.role;
    -- Grants run down the tree, and stop where the person himself is denied.
    CREATE VIEW may_read(person, folder) AS
      SELECT r.person, g.folder FROM has_role AS r JOIN granted AS g ON g.role = r.role
      WHERE NOT EXISTS (SELECT 1 FROM denied AS d WHERE d.principal = r.person AND d.folder = g.folder)
      UNION
      SELECT m.person, f.name FROM may_read AS m JOIN folder AS f ON f.parent = m.folder
      WHERE NOT EXISTS (SELECT 1 FROM denied AS d WHERE d.principal = m.person AND d.folder = f.name);
    -- Denials of groups run down the tree too, and win over everything: the next stratum.
    CREATE VIEW forbidden(person, folder) AS
      SELECT a.person, d.folder FROM acts_as AS a JOIN denied AS d ON d.principal = a.principal
      UNION
      SELECT x.person, f.name FROM forbidden AS x JOIN folder AS f ON f.parent = x.folder;
    CREATE VIEW can_read AS
      SELECT person, folder FROM may_read
      WHERE NOT EXISTS (SELECT 1 FROM forbidden AS x WHERE x.person = may_read.person AND x.folder = may_read.folder);
    CREATE VIEW locked_out AS
      SELECT name FROM person WHERE name NOT IN (SELECT person FROM can_read)
"""


@every_policy
def test_access_written_out(policy: str) -> None:
    twin = Twin(ACCESS, policy)
    twin.apply(
        [
            *(("person", (p,), 1) for p in ("ada", "bob", "eve")),
            *(("member", m, 1) for m in [("ada", "core"), ("bob", "web"), ("core", "staff"), ("web", "staff")]),
            ("member", ("staff", "core"), 1),  # groups in a circle
            ("holds", ("staff", "dev"), 1),
            ("implies", ("dev", "reader"), 1),
            *(("folder", f, 1) for f in [("src", None), ("src/web", "src"), ("src/keys", "src"), ("k1", "src/keys")]),
            ("granted", ("reader", "src"), 1),
        ]
    )
    everything = ["src", "src/web", "src/keys", "k1"]
    assert_rows(twin.db["can_read"], [(p, f) for p in ("ada", "bob") for f in everything])
    assert_rows(twin.db["locked_out"], [("eve",)])
    twin.insert("denied", ("web", "src/keys"))
    assert_rows(twin.db["can_read"], [*(("ada", f) for f in everything), ("bob", "src"), ("bob", "src/web")])
    twin.insert("denied", ("ada", "src"))
    assert_rows(twin.db["may_read"], [("bob", f) for f in everything])
    assert_rows(twin.db["locked_out"], [("ada",), ("eve",)])
    twin.delete("denied", ("ada", "src"), ("web", "src/keys"))
    assert_rows(twin.db["can_read"], [(p, f) for p in ("ada", "bob") for f in everything])
    twin.delete("member", ("web", "staff"))
    assert_rows(twin.db["can_read"], [("ada", f) for f in everything])
    twin.delete("holds", ("staff", "dev"))
    assert_rows(twin.db["can_read"], [])


def can_read(tables: Tables) -> set[Row]:
    """The same policy in plain Python."""

    def closed(start: set[Row], step: list[Row]) -> set[Row]:
        seen, todo = set(start), list(start)
        while todo:
            who, at = todo.pop()
            for a, b in step:
                if a == at and (who, b) not in seen:
                    seen.add((who, b))
                    todo.append((who, b))
        return seen

    acts = closed({(p, p) for (p,) in tables["person"]}, tables["member"])
    roles = closed({(p, r) for p, x in acts for y, r in tables["holds"] if x == y}, tables["implies"])
    denied = set(tables["denied"])
    down = [(parent, name) for name, parent in tables["folder"]]
    reads = {(p, f) for p, r in roles for s, f in tables["granted"] if r == s and (p, f) not in denied}
    todo = list(reads)
    while todo:
        person, at = todo.pop()
        for parent, name in down:
            if parent == at and (person, name) not in reads | denied:
                reads.add((person, name))
                todo.append((person, name))
    return reads - closed({(p, f) for p, x in acts for y, f in denied if x == y}, down)


PRINCIPALS, ROLES, FOLDERS = ["ada", "bob", "g1", "g2"], ["r1", "r2", "r3"], ["f1", "f2", "f3", "f4"]
MAKERS = {
    "person": lambda r: (r.choice(["ada", "bob"]),),
    "member": lambda r: (r.choice(PRINCIPALS), r.choice(["g1", "g2"])),
    "holds": lambda r: (r.choice(PRINCIPALS), r.choice(ROLES)),
    "implies": lambda r: (r.choice(ROLES), r.choice(ROLES)),
    "folder": lambda r: (r.choice(FOLDERS), r.choice([None, *FOLDERS])),
    "granted": lambda r: (r.choice(ROLES), r.choice(FOLDERS)),
    "denied": lambda r: (r.choice(PRINCIPALS), r.choice(FOLDERS)),
}


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_access(policy: str, seed: int) -> None:
    drive(
        Twin(ACCESS, policy, brute={"can_read": can_read}),
        stream(seed, MAKERS, steps=20, size=6, start=3),
    )
