"""Random programs: tables, views and steps, all from one seed, each view from a record of choices of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.programs.dice import Dice
from tests.programs.queries import Queries, Relation, named, with_ties, without_ties
from tests.programs.values import BOOL, INT, TYPES, literal, value

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A base table; with `keyed` its first column is the primary key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keyed: bool = False

    @property
    def relation(self) -> Relation:
        return Relation(self.name, self.columns)

    def create(self) -> str:
        marks = [" PRIMARY KEY" if self.keyed and not i else "" for i in range(len(self.columns))]
        inside = ", ".join(f"{name} {kind}{mark}" for (name, kind), mark in zip(self.columns, marks, strict=True))
        return f"CREATE TABLE {self.name} ({inside})"


@dataclass(frozen=True)
class View:
    """A view: its query for Whence; that for DuckDB says how ties are broken."""

    name: str
    query: str
    types: tuple[str, ...]

    @property
    def oracle(self) -> str:
        return with_ties(self.query)

    def create(self) -> str:
        return f"CREATE VIEW {self.name} AS {without_ties(self.query)}"


@dataclass(frozen=True)
class Write:
    """A change of one table: a row put in or taken out, or SQL that changes rows by a condition."""

    table: str
    row: Row = ()
    sign: int = 1
    sql: str = ""


@dataclass(frozen=True)
class Step:
    """What happens: a transaction, which fails in its end if `poisoned`; or a view made or dropped, or a reopening."""

    writes: tuple[Write, ...] = ()
    poisoned: bool = False
    create: int | None = None  # the number of a view
    drop: int | None = None
    reopen: int | None = None  # on so many partitions; 0: embedded
    snapshot: bool = False  # before it


@dataclass(frozen=True)
class Program:
    """Tables, the choices that views are made of, and steps. `partitions` is None for a database in memory."""

    tables: tuple[Table, ...]
    choices: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    partitions: int | None = None
    failing: bool = False

    def views(self, source: random.Random | None = None) -> list[View]:
        """Return the views: v0, v1, …; each may read those before it."""
        return [view for view, _ in self._made(source)]

    def recorded(self, source: random.Random) -> Program:
        """Return the program with all choices that its views take, those not recorded yet from a source."""
        return replace(self, choices=tuple(tuple(taken) for _, taken in self._made(source)))

    def _made(self, source: random.Random | None) -> list[tuple[View, list[int]]]:
        found: list[tuple[View, list[int]]] = []
        relations = [table.relation for table in self.tables]
        for number, record in enumerate(self.choices):
            dice = Dice(record, source)
            view = make_view(f"v{number}", dice, relations, self.failing)
            found.append((view, dice.taken))
            relations = [*relations, Relation(view.name, named(view.types))]
        return found


def make_view(name: str, dice: Dice, relations: list[Relation], failing: bool) -> View:
    """Return a random view over some relations; one in six is recursive, if there are columns to recurse over."""
    if dice.chance(16):
        edges = [(r, [c for c, kind in r.columns if kind == INT]) for r in relations]
        edges = [(r, columns) for r, columns in edges if len(columns) > 1]
        if edges:
            return _recursive(name, dice, edges)
    types = tuple(dice.of(TYPES) for _ in range(1 + dice.below(4)))
    return View(name, Queries(dice, relations, failing).query(types), types)


def _recursive(name: str, d: Dice, edges: list[tuple[Relation, list[str]]]) -> View:
    """Return a recursion over a finite domain: paths, walks to the best, or what is not blocked."""
    edge, columns = d.of(edges)
    a, b = d.of(columns), d.of(columns)
    other, across = d.of(edges)
    base = f"SELECT e.{a} AS c0, e.{b} AS c1 FROM {edge.name} AS e"
    step = f"SELECT r.c0 AS c0, f.{b} AS c1 FROM {name} AS r JOIN {edge.name} AS f ON r.c1 = f.{a}"
    match d.below(6):
        case 1:
            step = f"SELECT r.c0 AS c0, o.c1 AS c1 FROM {name} AS r JOIN {name} AS o ON r.c1 = o.c0"
        case 2:
            c = d.of(across)
            step += f" WHERE NOT EXISTS (SELECT 1 FROM {other.name} AS x WHERE x.{c} = f.{b})"
        case 3:
            step = f"SELECT r.c1 AS c0, CAST((r.c0 + 1) % 4 AS INTEGER) AS c1 FROM {name} AS r"
        case 4:
            best = d.of(("MIN", "MAX"))
            worse = "f.{b}" if best == "MAX" else "abs(f.{b})"
            way = "LEAST" if best == "MAX" else "GREATEST"
            inner = f"{base} UNION ALL SELECT f.{a} AS c0, {way}({worse.format(b=b)}, r.c1) AS c1 FROM {name} AS r "
            inner += f"JOIN {edge.name} AS f ON r.c0 = f.{b}"
            return View(name, f"SELECT z.c0, {best}(z.c1) AS c1 FROM ({inner}) AS z GROUP BY z.c0", (INT, INT))
        case 5:
            c = d.of(across)
            step += f" JOIN {other.name} AS x ON x.{c} = r.c0"
    return View(name, f"{base} UNION {step}", (INT, INT))


def make_program(seed: int) -> Program:
    """Return the program of a seed."""
    rng = random.Random(seed)
    dice = Dice(source=rng)
    tables = tuple(_table(f"t{number}", dice) for number in range(2 + dice.below(2)))
    failing = dice.chance(35)
    views = 1 + dice.below(4)
    partitions = dice.of((None, None, None, 0, 2, 3))
    program = Program(tables, ((),) * views, (), partitions, failing).recorded(rng)
    return replace(program, steps=_steps(dice, tables, views, partitions is not None))


def _table(name: str, d: Dice) -> Table:
    kinds = [INT, *(d.of(TYPES) for _ in range(1 + d.below(3)))]
    if d.chance(40):
        kinds.append(INT)
    return Table(name, tuple((f"{name}c{i}", kind) for i, kind in enumerate(kinds)), keyed=d.chance(15))


def _steps(d: Dice, tables: tuple[Table, ...], views: int, lasting: bool) -> tuple[Step, ...]:
    """Return transactions, with the views made somewhere between them, and what else happens to a database."""
    there: dict[str, list[Row]] = {table.name: [] for table in tables}
    count = 4 + d.below(5)
    when = sorted(d.below(count) if d.chance(50) else 0 for _ in range(views))
    steps: list[Step] = []
    for number in range(count):
        steps += [Step(create=view) for view in range(views) if when[view] == number]
        if lasting and d.chance(20):
            steps.append(Step(reopen=d.of((0, 2, 3)), snapshot=d.chance(50)))
        trial = {name: list(rows) for name, rows in there.items()}
        writes = tuple(_write(d, d.of(tables), trial) for _ in range(1 + d.below(6)))
        if d.chance(25):
            steps.append(Step(writes=writes, poisoned=True))
        else:
            steps.append(Step(writes=writes))
            there = trial
        if d.chance(8):
            steps.append(Step(drop=views - 1))
            steps.append(Step(create=views - 1))
    return tuple(steps)


def _write(d: Dice, table: Table, there: dict[str, list[Row]]) -> Write:
    rows = there[table.name]
    if rows and d.chance(35):
        return Write(table.name, rows.pop(d.below(len(rows))), -1)
    if d.chance(12):
        return Write(table.name, sql=_statement(d, table))
    row = tuple(value(d, kind) for _, kind in table.columns)
    if table.keyed:
        row = (row[0] or 0, *row[1:])
        rows[:] = [other for other in rows if other[0] != row[0]]
    rows.append(row)
    return Write(table.name, row)


def _statement(d: Dice, table: Table) -> str:
    """Return an UPDATE or DELETE of some rows. What it does to rows that later writes delete shows in both systems."""
    name, kind = d.of(table.columns[1:])
    first, last = table.columns[0][0], table.columns[-1]
    where = f"{first} = {d.below(4)}" if kind == BOOL or d.chance(70) else f"{name} IS NULL"
    if d.chance(50):
        return f"DELETE FROM {table.name} WHERE {where}"
    return f"UPDATE {table.name} SET {last[0]} = {literal(value(d, last[1]), last[1])} WHERE {where}"
