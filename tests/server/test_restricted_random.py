"""Random queries under random row rights give what they give in a database that has only the rows a caller may read."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from sqlglot import exp

import whence
from tests.oracle import assert_rows
from tests.programs.dice import Dice
from tests.programs.expressions import Scope, expression
from tests.programs.generate import Row, make_program
from tests.programs.queries import Queries, Relation, named, with_ties, without_ties
from tests.programs.values import BOOL, INT, TYPES, value
from whence.server.access.restrict import restrict_query
from whence.server.access.rights import Rights
from whence.sql.parse import parse_query
from whence.sql.position import write_sql
from whence.sql.reader import WhenceDialect

WHO = "ann"
HIDDEN = "CREATE TABLE gate (who TEXT, k INTEGER); CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)"
SEEDS, QUERIES = range(20), 6


@dataclass
class Pair:
    """A database with everything, and one with what the caller may read; by table the columns."""

    whole: whence.Database
    seen: whence.Database
    rights: Rights
    relations: list[Relation]

    def check(self, query: str, failing: bool) -> bool:
        """Compare the answers to a query, asked once and kept as a view; return whether it had one."""
        asked = with_ties(query)
        wanted, refusal = _tried(lambda: self.seen.query(asked).rows)
        got, error = _tried(lambda: self._ask(asked))
        self._compare(got, error, wanted, refusal, asked, failing)

        kept = without_ties(query)
        wanted, refusal = _tried(lambda: _viewed(self.seen, kept))
        for write in (_as_whence, write_sql):
            got, error = _tried(partial(self._keep, kept, write))
            self._compare(got, error, wanted, refusal, kept, failing)
        return refusal is None

    def _ask(self, text: str) -> list[Row]:
        tree = self.rights.restricted(WHO, parse_query(text).query)
        return whence.Result(self.whole._coordinator.reader.query(tree)).rows

    def _keep(self, text: str, write: Callable[[exp.Expr], str]) -> list[Row]:
        tree = restrict_query(parse_query(text).query, self.rights.sight(WHO), kept=True)
        return _viewed(self.whole, write(tree))

    def _compare(
        self,
        got: list[Row],
        error: whence.WhenceError | None,
        wanted: list[Row],
        refusal: whence.WhenceError | None,
        text: str,
        failing: bool,
    ) -> None:
        if error is None and refusal is None:
            assert_rows(got, wanted, text)
            return
        if refusal is None:
            raise AssertionError(f"{text}: {error}")
        if error is None:  # which rows an expression is computed for is the planner's choice, of the same rows
            assert failing, f"{text}: {refusal}"
            return
        assert type(error) is type(refusal), f"{text}: {error}, not {refusal}"
        assert "gate" not in str(error)


def _as_whence(tree: exp.Expr) -> str:
    return tree.sql(dialect=WhenceDialect)


def _tried(run: Callable[[], list[Row]]) -> tuple[list[Row], whence.WhenceError | None]:
    try:
        return run(), None
    except whence.WhenceError as error:
        return [], error


def _viewed(db: whence.Database, text: str) -> list[Row]:
    db.execute(f"CREATE VIEW kept AS {text}")
    try:
        return db["kept"].rows
    finally:
        db.execute("DROP VIEW kept")


def make_pair(seed: int, partitions: int | None = None) -> tuple[Pair, random.Random]:
    rng = random.Random(seed)
    dice = Dice(source=rng)
    whole, seen = whence.open(partitions=partitions), whence.open()
    whole.execute(HIDDEN)
    whole.insert("gate", [(WHO, 1), (WHO, 2), ("bob", 0), ("bob", 3)])
    relations, granted = [], []
    for table in make_program(seed).tables:
        whole.execute(table.create())
        rows = [tuple(value(dice, kind) for _, kind in table.columns) for _ in range(3 + dice.below(10))]
        if table.keyed:
            rows = [(number, *row[1:]) for number, row in enumerate(rows)]
        whole.insert(table.name, rows)
        relations.append(table.relation)
    types = tuple(dice.of(TYPES) for _ in range(2))
    view = Relation("shown", named((INT, *types)))
    made = Queries(dice, relations, False).query((INT, *types), depth=1)
    whole.execute(f"CREATE VIEW shown AS {without_ties(made)}")
    relations.append(view)
    for relation in relations:
        granted += [(WHO, relation.name, what) for what in _rights(dice, relation)]
    whole.insert("allowed", [*granted, ("bob", "*", "read")])
    rights = Rights(whole)
    visible = [relation for relation in relations if relation.name in rights.visible(WHO)]
    for relation in visible:
        columns = ", ".join(f"{name} {kind}" for name, kind in relation.columns)
        seen.execute(f"CREATE TABLE {relation.name} ({columns})")
        condition = rights.condition(WHO, relation.name)
        where = "" if condition is None else f" WHERE {condition.sql(dialect=WhenceDialect)}"
        seen.insert(relation.name, whole.query(f"SELECT * FROM {relation.name}{where}").rows)
    return Pair(whole, seen, rights, visible), rng


def _rights(dice: Dice, relation: Relation) -> list[str]:
    columns = [(f"{relation.name}.{name}" if dice.chance(30) else name, kind) for name, kind in relation.columns]
    numbers = [name for name, kind in columns if kind == INT] or ["1"]
    found = []
    for _ in range(1 + dice.chance(30)):
        match dice.below(6):
            case 0:
                found.append("read")
            case 1 | 2:
                found.append(f"read where {expression(dice, BOOL, Scope(tuple(columns)), 2)}")
            case 3:
                found.append(f"insert where {dice.of(numbers)} IN (SELECT k FROM gate WHERE gate.who = :who)")
            case 4:
                test = f"EXISTS (SELECT 1 FROM gate AS g WHERE g.who = :who AND g.k = {dice.of(numbers)})"
                found.append(f"read where {'NOT ' * dice.chance(50)}{test}")
            case _:
                found.append(f"read where {dice.of(numbers)} > 0")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_restricted_query_is_the_query_over_what_is_seen(seed: int) -> None:
    pair, rng = make_pair(seed)
    if not pair.relations:
        return
    for number in range(QUERIES):
        failing = number % 4 == 3
        types = tuple(rng.choice(TYPES) for _ in range(1 + rng.randrange(3)))
        pair.check(Queries(Dice(source=rng), pair.relations, failing).query(types), failing)


@pytest.mark.parametrize("seed", range(1_000, 1_004))
def test_restricted_query_on_partitions(seed: int) -> None:
    pair, rng = make_pair(seed, partitions=2)
    for _ in range(4):
        types = tuple(rng.choice(TYPES) for _ in range(1 + rng.randrange(3)))
        pair.check(Queries(Dice(source=rng), pair.relations, False).query(types), False)
