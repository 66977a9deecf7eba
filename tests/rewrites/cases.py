"""Reads, runs and writes the cases of `*.plans` files (README.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from whence.plan import rewrite
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import Body, External, Flattener
from whence.plan.rewrite.best_rows import select_aggregates
from whence.plan.rewrite.linearize import linearize
from whence.sql import statements as st
from whence.sql.bind import bind_query, bind_table, bind_views
from whence.sql.parse import parse

FILES = sorted(Path(__file__).parent.glob("*.plans"))
_COLUMNS = {**dict.fromkeys("rstu", "a INT, b INT, c INT, d INT"), "n": ", ".join(f"{c} INT NOT NULL" for c in "abcd")}


@dataclass(frozen=True)
class Case:
    """A query or script, under its comment, with the plan before and after."""

    sql: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.sql}\n----\n{self.before}\n----\n{self.after}\n"

    @property
    def line(self) -> str:
        """The first line of the SQL."""
        return next(line for line in self.sql.splitlines() if not line.startswith("#"))


def read(path: Path) -> list[Case]:
    """Read the cases of a file."""
    return [Case(*(part.strip() for part in text.split("----"))) for text in path.read_text().strip().split("\n\n")]


def rewritten(name: str, case: Case) -> Case:
    """Return the case with the plans that the rewrite with this name gives."""
    sql = "\n".join(line for line in case.sql.splitlines() if not line.startswith("#"))
    before, after = _OF_VIEWS[name](_views(sql)) if name in _OF_VIEWS else _plans(_OF_PLANS[name], sql)
    return replace(case, before=before, after=after)


def tables() -> Program:
    """Return a program of the tables that cases read."""
    program = Program()
    for name, columns in _COLUMNS.items():
        create = parse(f"CREATE TABLE {name} ({columns})")[0]
        assert isinstance(create, st.CreateTable)
        program = bind_table(create, program)
    return program


def tree(node: Node, depth: int = 0) -> str:
    """Print a plan, each node under its consumer."""
    return "\n".join([f"{'  ' * depth}{node.describe()}", *(tree(child, depth + 1) for child in node.inputs)])


def _plans(change: Callable[[Node], Node], sql: str) -> tuple[str, str]:
    plan = bind_query(parse(sql)[0].query, tables())
    return tree(plan), tree(change(plan))


def _views(sql: str) -> Program:
    return bind_views([s for s in parse(sql) if isinstance(s, st.CreateView)], tables())


def _selected(program: Program) -> tuple[str, str]:
    shown = [
        "\n".join(f"{v.name}:\n{tree(v.query, 1)}" for v in p.views.values())
        for p in (program, select_aggregates(program))
    ]
    return shown[0], shown[1]


def _linearized(program: Program) -> tuple[str, str]:
    (view,) = program.views.values()
    bodies = Flattener({view.name: view.query}, {view.name: view.schema}).flatten(view.query)
    return _rules(view.name, bodies), _rules(view.name, linearize(view.name, bodies))


def _rules(name: str, bodies: list[Body]) -> str:
    """Print rules, with `#n` counting the columns of all sources."""
    lines = []
    for body in bodies:
        sources = [s.node.describe() if isinstance(s, External) else s.name for s in body.sources]
        tests = [str(test) for test in body.tests]
        lines.append(f"{name}({', '.join(map(str, body.out))}) <- {', '.join([*sources, *tests])}")
    return "\n".join(lines)


_OF_PLANS: dict[str, Callable[[Node], Node]] = {
    "null_safe_keys": rewrite.push_predicates,  # which takes equalities for keys
    **{name: getattr(rewrite, name) for name in rewrite.__all__},
    "distinct_inputs": lambda plan: rewrite.distinct_inputs(rewrite.optimize(plan)),  # comes after all the others
}
_OF_VIEWS: dict[str, Callable[[Program], tuple[str, str]]] = {"select_aggregates": _selected, "linearize": _linearized}
