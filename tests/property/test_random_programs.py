"""Random programs on random data under random batches: after each, every view is what DuckDB computes from nothing.

A program is a few tables and a few views, each view built from a template over relations made before it, so joins stand
on recursion and recursion on aggregates. The deep profile (`tests/depth.py`) runs more of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.oracle import POLICIES, Row, Twin, Update, drive

DOMAIN: dict[str, list[Any]] = {
    "INT": [0, 1, 2, 3, 1, 2, None, 4],
    "TEXT": ["a", "b", "ab", None, ""],
    "DECIMAL(6,2)": [Decimal("0.50"), Decimal("1.00"), Decimal("1.25"), None],
    "BOOLEAN": [True, False, None],
}


def profile(count: int) -> settings:
    return settings(
        max_examples=examples(count),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Relation:
    """A table or view; its columns are c0, c1, … of these types."""

    name: str
    types: tuple[str, ...]

    def columns(self, type: str, alias: str) -> list[str]:
        return [f"{alias}.c{i}" for i, t in enumerate(self.types) if t == type]


@dataclass
class Program:
    """What has been drawn so far."""

    draw: Any
    tables: list[Relation] = field(default_factory=list)
    views: list[Relation] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def pick(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    @property
    def relations(self) -> list[Relation]:
        return [*self.views, *self.tables]

    def table(self) -> None:
        types = ("INT", "INT", *self.draw(st.lists(st.sampled_from(list(DOMAIN)), max_size=2)))
        made = Relation(f"t{len(self.tables)}", types)
        self.tables.append(made)
        columns = ", ".join(f"c{i} {t}" for i, t in enumerate(types))
        self.text.append(f"CREATE TABLE {made.name} ({columns})")

    def view(self, query: str, types: tuple[str, ...]) -> Relation:
        made = Relation(f"v{len(self.views)}", types)
        self.views.append(made)
        columns = ", ".join(f"c{i}" for i in range(len(types)))
        self.text.append(f"CREATE VIEW {made.name}({columns}) AS {query}")
        return made

    # -- expressions

    def value(self, type: str, sources: dict[str, Relation], depth: int = 1) -> str:
        """An expression of a type over aliased relations."""
        columns = [c for alias, r in sources.items() for c in r.columns(type, alias)]
        kinds = ["column"] * 4 if columns else []
        kinds += ["literal"] + (["case", "coalesce", "own"] if depth else [])
        match self.pick(kinds):
            case "column":
                return str(self.pick(columns))
            case "literal":
                return literal(self.pick(DOMAIN[type]), type)
            case "case":
                test = self.test(sources, depth - 1)
                return f"CASE WHEN {test} THEN {self.value(type, sources, 0)} ELSE {self.value(type, sources, 0)} END"
            case "coalesce":
                return f"COALESCE({self.value(type, sources, 0)}, {self.value(type, sources, 0)})"
        one, two = self.value(type, sources, 0), self.value(type, sources, 0)
        match type:
            case "INT":
                text = self.value("TEXT", sources, 0)
                return str(
                    self.pick([f"{one} + {two}", f"{one} - {two}", f"ABS({one})", f"CAST(LENGTH({text}) AS INT)"])
                )
            case "TEXT":
                return str(self.pick([f"{one} || {two}", f"UPPER({one})"]))
            case "BOOLEAN":
                return self.test(sources, 0)
        return f"CAST(LEAST({one}, {two}) AS {type})"

    def test(self, sources: dict[str, Relation], depth: int = 1) -> str:
        """A condition over aliased relations."""
        kind = self.pick(["compare"] * 3 + ["null", "in", "like"] + (["and", "or", "not"] if depth else []))
        if kind in ("and", "or"):
            return f"({self.test(sources, depth - 1)} {kind.upper()} {self.test(sources, depth - 1)})"
        if kind == "not":
            return f"NOT ({self.test(sources, depth - 1)})"
        if kind == "like":
            pattern = self.pick(["%b", "a_", ""])
            return f"{self.value('TEXT', sources, 0)} {self.pick(['LIKE', 'NOT LIKE'])} '{pattern}'"
        type = self.pick(list(DOMAIN))
        one = self.value(type, sources, depth)
        if kind == "null":
            return f"({one}) IS {self.pick(['', 'NOT '])}NULL"
        if kind == "in":
            items = ", ".join(literal(v, type) for v in self.draw(st.lists(st.sampled_from(DOMAIN[type]), min_size=1)))
            return f"({one}) {self.pick(['', 'NOT '])}IN ({items})"
        operator = self.pick(["=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        return f"({one}) {operator} ({self.value(type, sources, 0)})"

    def outputs(self, sources: dict[str, Relation]) -> tuple[str, tuple[str, ...]]:
        """A select list and its types."""
        types = tuple(self.draw(st.lists(st.sampled_from(["INT", "INT", *DOMAIN]), min_size=1, max_size=3)))
        return ", ".join(self.value(t, sources) for t in types), types

    def join_on(self, sources: dict[str, Relation]) -> str:
        """A condition between x and y, most often an equality."""
        x, y = sources["x"], sources["y"]
        type = self.pick(["INT", *[t for t in DOMAIN if t in x.types and t in y.types]])
        pairs = [(a, b) for a in x.columns(type, "x") for b in y.columns(type, "y")]
        if not pairs:
            return "TRUE"
        a, b = self.pick(pairs)
        condition = f"{a} {self.pick(['=', '=', '=', '<', 'IS NOT DISTINCT FROM'])} {b}"
        return condition + (f" AND {self.test(sources, 0)}" if self.draw(st.integers(0, 3)) == 0 else "")

    # -- templates

    def select(self) -> None:
        x = self.pick(self.relations)
        chosen, types = self.outputs({"x": x})
        distinct = "DISTINCT " if self.chance() else ""
        where = f" WHERE {self.test({'x': x})}" if self.chance() else ""
        self.view(f"SELECT {distinct}{chosen} FROM {x.name} AS x{where}", types)

    def join(self) -> None:
        sources = {"x": self.pick(self.relations), "y": self.pick(self.relations)}
        kind = self.pick(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self.join_on(sources)
        if kind == "FULL JOIN" and " = " not in on:
            kind = "LEFT JOIN"  # DuckDB joins fully by equality only
        chosen, types = self.outputs(sources)
        where = f" WHERE {self.test(sources)}" if self.chance() else ""
        x, y = sources["x"].name, sources["y"].name
        self.view(f"SELECT {chosen} FROM {x} AS x {kind} {y} AS y ON {on}{where}", types)

    def many_way(self) -> None:
        """Three or four relations in FROM, joined by what WHERE says; some may not be joined at all."""
        names = "xyzw"[: self.draw(st.integers(3, 4))]
        sources = {alias: self.pick(self.relations) for alias in names}
        tests = []
        for at, alias in enumerate(names[1:], 1):
            other = names[self.draw(st.integers(0, at - 1))]
            pairs = [(a, b) for a in sources[other].columns("INT", other) for b in sources[alias].columns("INT", alias)]
            if pairs and self.draw(st.integers(0, 4)):
                tests.append(" = ".join(self.pick(pairs)))
        if self.chance():
            tests.append(self.test(sources, 0))
        chosen, types = self.outputs(sources)
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        self.view(f"SELECT {chosen} FROM {', '.join(f'{r.name} AS {a}' for a, r in sources.items())}{where}", types)

    def set_operation(self) -> None:
        x, y = self.pick(self.relations), self.pick(self.relations)
        types = tuple(self.draw(st.lists(st.sampled_from(["INT", *DOMAIN]), min_size=1, max_size=2)))
        left = ", ".join(self.value(t, {"x": x}) for t in types)
        right = ", ".join(self.value(t, {"y": y}) for t in types)
        kind = self.pick(["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])
        self.view(f"SELECT {left} FROM {x.name} AS x {kind} SELECT {right} FROM {y.name} AS y", types)

    def aggregate(self) -> None:
        x = self.pick(self.relations)
        keys = [f"x.c{i}" for i in self.draw(st.sets(st.integers(0, len(x.types) - 1), max_size=2))]
        chosen, types = list(keys), [x.types[int(k[3:])] for k in keys]
        for _ in range(self.draw(st.integers(1, 3))):
            function = self.pick(["COUNT(*)", "COUNT", "SUM", "MIN", "MAX", "COUNT(DISTINCT"])
            type = self.pick(["INT", "DECIMAL(6,2)"] if function == "SUM" else list(DOMAIN))
            value = self.value(type, {"x": x})
            if function == "COUNT(*)":
                chosen.append("CAST(COUNT(*) AS INT)")
            elif function.startswith("COUNT"):
                chosen.append(f"CAST({function}{'' if 'D' in function else '('} {value}) AS INT)")
            else:
                chosen.append(f"CAST({function}({value}) AS {type})")
            types.append("INT" if function.startswith("COUNT") else type)
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING COUNT(*) > {self.draw(st.integers(0, 2))}" if keys and self.chance() else ""
        self.view(f"SELECT {', '.join(chosen)} FROM {x.name} AS x{group}{having}", tuple(types))

    def subquery(self) -> None:
        sources = {"x": self.pick(self.relations), "y": self.pick(self.relations)}
        x, y = sources["x"], sources["y"]
        kind = self.pick(["EXISTS", "NOT EXISTS", "IN", "NOT IN"])
        if "EXISTS" in kind:
            test = f"{kind} (SELECT 1 FROM {y.name} AS y WHERE {self.join_on(sources)})"
        else:
            type = self.pick(["INT", *x.types])
            inner = f" WHERE {self.test({'y': y})}" if self.chance() else ""
            one, two = self.value(type, {"x": x}, 0), self.value(type, {"y": y}, 0)
            test = f"{one} {kind} (SELECT {two} FROM {y.name} AS y{inner})"
        chosen, types = self.outputs({"x": x})
        self.view(f"SELECT {chosen} FROM {x.name} AS x WHERE {test}", types)

    def top(self) -> None:
        x = self.pick(self.relations)
        order = ", ".join(f"c{i} {self.pick(['', 'DESC', 'NULLS FIRST'])}" for i in range(len(x.types)))
        limit = f"LIMIT {self.draw(st.integers(0, 3))} OFFSET {self.draw(st.integers(0, 1))}"
        self.view(f"SELECT * FROM {x.name} ORDER BY {order} {limit}", x.types)

    # -- recursion

    def edges(self) -> str:
        """A query of two columns to recurse over: any relation's integers."""
        x = self.pick(self.relations)
        columns = x.columns("INT", "x") or ["0"]
        a, b = self.pick(columns), self.pick(columns)
        where = f" WHERE {self.test({'x': x}, 0)}" if self.chance() else ""
        return f"SELECT {a} AS a, {b} AS b FROM {x.name} AS x{where}"

    def step(self) -> str:
        """A further condition on a recursive step from e to r."""
        return str(self.pick(["", "", " AND e.a <> r.c1", " AND r.c1 >= 1", " AND (e.a IS NOT NULL OR r.c1 = 2)"]))

    def closure(self) -> None:
        base, name = self.edges(), f"v{len(self.views)}"
        linear = f"SELECT e.a, r.c1 FROM ({self.edges()}) AS e JOIN {name} AS r ON e.b = r.c0{self.step()}"
        branch = self.pick(
            [
                linear,
                f"SELECT r.c0, e.b FROM {name} AS r JOIN ({base}) AS e ON e.a = r.c1{self.step()}",
                f"SELECT e.c0, r.c1 FROM {name} AS e JOIN {name} AS r ON e.c1 = r.c0",
                f"{linear} UNION SELECT r.c1, r.c0 FROM {name} AS r",
                f"SELECT r.c1, e.b FROM {name} AS r, ({self.edges()}) AS e WHERE e.a > r.c0",
            ]
        )
        self.view(f"{base} UNION {branch}", ("INT", "INT"))

    def guarded(self) -> None:
        """Negation of rows outside, inside the recursion."""
        base, name = self.edges(), f"v{len(self.views)}"
        n = self.pick([r for r in self.relations if "INT" in r.types])
        column = self.pick(n.columns("INT", "n"))
        absent = self.pick(
            [
                f"WHERE NOT EXISTS (SELECT 1 FROM {n.name} AS n WHERE {column} = e.b)",
                f"WHERE NOT EXISTS (SELECT 1 FROM {n.name} AS n WHERE {column} = r.c0 AND {column} = e.b)",
                f"WHERE e.b IN (SELECT {column} FROM {n.name} AS n)",
            ]
        )
        self.view(
            f"{base} UNION SELECT r.c0, e.b FROM {name} AS r JOIN ({base}) AS e ON e.a = r.c1 {absent}", ("INT", "INT")
        )

    def mutual(self) -> None:
        number = len(self.views)
        base, odd, even = self.edges(), f"v{number}", f"v{number + 1}"
        self.view(f"{base} UNION SELECT e.a, r.c1 FROM ({base}) AS e JOIN {even} AS r ON e.b = r.c0", ("INT", "INT"))
        extra = f" UNION SELECT r.c0, s.c1 FROM {odd} AS r JOIN {even} AS s ON r.c1 = s.c0" if self.chance() else ""
        step = self.step()
        self.view(
            f"SELECT e.a, r.c1 FROM ({self.edges()}) AS e JOIN {odd} AS r ON e.b = r.c0{step}{extra}", ("INT", "INT")
        )

    def counted(self) -> None:
        """Computed columns, with an end."""
        base, name, limit = self.edges(), f"v{len(self.views)}", self.draw(st.integers(1, 3))
        start = self.pick(["0", "e.a - 3", "1"])
        grown = self.pick(
            ["r.c2 + 1", "r.c2 + 2", "GREATEST(r.c2, 0) + 1", "CAST(LENGTH(CAST(r.c2 AS TEXT)) AS INT) + r.c2"]
        )
        self.view(
            f"SELECT e.a, e.b, {start} FROM ({base}) AS e UNION SELECT r.c0, e.b, {grown} "
            f"FROM {name} AS r JOIN ({base}) AS e ON e.a = r.c1 WHERE r.c2 < {limit}",
            ("INT", "INT", "INT"),
        )

    def best(self) -> None:
        """MIN and MAX pushed into the recursion. No step is free of charge, so that there is a fixpoint to find."""
        base, name = self.edges(), f"v{len(self.views)}"
        charge = self.pick(["0", "1", "CASE WHEN e.b > 1 THEN 2 ELSE 0 END"])
        kind = self.pick(["cost", "widest", "label", "both"])
        if kind == "cost":
            first, step, function = f"{charge} + 1", f"r.c2 + {charge}", "MIN"
        elif kind == "widest":
            first, step, function = "e.b", "LEAST(r.c2, COALESCE(e.b, 3))", "MAX"
        else:
            first, step, function = "e.b", "r.c2", self.pick(["MIN", "MAX"])
        start = f"SELECT e.a AS a, e.b AS b, {first} AS v FROM ({base}) AS e WHERE e.b IS NOT NULL"
        again = f"SELECT e.a, r.c1, {step} FROM ({base}) AS e JOIN {name} AS r ON e.b = r.c0"
        if kind != "both":
            query = f"SELECT a, b, {function}(v) FROM ({start} UNION {again}) AS q GROUP BY a, b"
            self.view(query, ("INT", "INT", "INT"))
            return
        start = f"SELECT e.a AS a, e.b AS lo, e.b AS hi FROM ({base}) AS e"
        again = f"SELECT e.a, r.c1, r.c2 FROM ({base}) AS e JOIN {name} AS r ON e.b = r.c0"
        self.view(f"SELECT a, MIN(lo), MAX(hi) FROM ({start} UNION {again}) AS q GROUP BY a", ("INT", "INT", "INT"))

    def with_recursive(self) -> None:
        base = self.edges()
        self.view(
            f"WITH RECURSIVE w(a, b) AS ({base} UNION SELECT w.a, e.b FROM w JOIN ({base}) AS e ON e.a = w.b) "
            f"SELECT w.a, w.b FROM w WHERE {self.pick(['TRUE', 'w.a < w.b', 'w.a IS NULL'])}",
            ("INT", "INT"),
        )


FLAT = (
    Program.select,
    Program.join,
    Program.many_way,
    Program.set_operation,
    Program.aggregate,
    Program.subquery,
    Program.top,
)
RECURSIVE = (
    Program.closure,
    Program.guarded,
    Program.mutual,
    Program.counted,
    Program.best,
    Program.with_recursive,
)


def literal(value: Any, type: str) -> str:
    if value is None:
        return f"CAST(NULL AS {type})"
    if isinstance(value, str):
        return f"'{value}'"
    return f"CAST({value} AS {type})" if type.startswith("DECIMAL") else str(value).upper()


@dataclass(frozen=True)
class Case:
    """A program with the batches it meets; shown by Hypothesis when it fails."""

    sql: str
    policy: str
    batches: list[list[Update]]

    def run(self) -> None:
        twin = Twin(self.sql, self.policy)
        drive(twin, self.batches)
        twin.close()


@st.composite
def cases(draw: Any, recursive: bool) -> Case:
    program = Program(draw)
    for _ in range(draw(st.integers(1, 2))):
        program.table()
    if recursive:
        templates = [draw(st.sampled_from(RECURSIVE)), *draw(st.lists(st.sampled_from(FLAT + RECURSIVE), max_size=2))]
        if draw(st.booleans()):
            templates.insert(0, draw(st.sampled_from(FLAT)))
    else:
        templates = draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=4))
    for template in templates:
        template(program)
    return Case(";\n".join(program.text), draw(st.sampled_from(POLICIES)), draw(batches(program.tables)))


@st.composite
def batches(draw: Any, tables: list[Relation]) -> list[list[Update]]:
    """A load, then a few changes, half of them deletions of rows that are there."""

    def made() -> tuple[str, Row]:
        table = draw(st.sampled_from(tables))
        return table.name, tuple(draw(st.sampled_from(DOMAIN[t])) for t in table.types)

    present = [made() for _ in range(draw(st.integers(2, 10)))]
    found: list[list[Update]] = [[(table, row, 1) for table, row in present]]
    for size in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
        batch: list[Update] = []
        for _ in range(size):
            if present and draw(st.booleans()):
                gone = present.pop(draw(st.integers(0, len(present) - 1)))
                batch.append((*gone, -1))
            else:
                present.append(made())
                batch.append((*present[-1], 1))
        found.append(batch)
    return found


@profile(60)
@given(cases(recursive=False))
def test_random_queries(case: Case) -> None:
    case.run()


@profile(60)
@given(cases(recursive=True))
def test_random_recursive_programs(case: Case) -> None:
    case.run()
