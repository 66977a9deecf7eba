"""The programs behind `whence demo`: each is a script, and the steps that are shown on it.

| module | what it is for |
|---|---|
| `pipeline` | `whence demo pipeline`, a program of its own on Spark |
| `topology` | the network of that program |
| `file_feed` | the files of links that appear while it runs |
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class DemoStep:
    """A step of a demo: its description, and the SQL that it runs."""

    title: str
    sql: str


@dataclass(frozen=True)
class Demo:
    """A program, the views worth looking at, the one whose changes are shown, and its steps."""

    name: str
    views: tuple[str, ...]
    steps: tuple[DemoStep, ...]

    @property
    def program(self) -> str:
        return (files(__package__) / f"{self.name}.sql").read_text(encoding="utf-8")


DEMOS = {
    "network": Demo(
        "network",
        ("reachable", "cheapest", "cut_off"),
        (
            DemoStep("The bridge T2 - U1 is cut: east and west lose each other.",
                 "DELETE FROM cable WHERE a = 'T2' AND b = 'U1'"),
            DemoStep("The bridge comes back, cheaper than before.", "INSERT INTO cable VALUES ('T2', 'U1', 30)"),
            DemoStep("A cable inside a ring is cut: everything is still reachable, some of it at a higher cost.",
                 "DELETE FROM cable WHERE a = 'T1' AND b = 'T2'"),
        ),
    ),
    "access": Demo(
        "access",
        ("can_see", "folders_seen"),
        (
            DemoStep("Developers lose the grant on source.",
                 "DELETE FROM granted WHERE role = 'developer' AND folder = 'source'"),
            DemoStep("They get it back for source/web only.", "INSERT INTO granted VALUES ('developer', 'source/web')"),
            DemoStep("Contractors leave the web group, and with it everything it gave them.",
                 "DELETE FROM member WHERE principal = 'contractors' AND grp = 'web'"),
        ),
    ),
}  # fmt: skip
