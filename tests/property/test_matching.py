"""Templates in groups against their definition: the same changes in every epoch, whatever comes and goes together."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.depth import seeds
from tests.unit.engine_helpers import Bench, Row, decode, schema
from tests.unit.template_plans import PARAMETERS, AggregateTemplate, DistinctTemplate, Template, TopTemplate
from whence.engine.matching import hotspots, match_cost
from whence.model.types import BIGINT, DATE, DOUBLE, INTEGER, TEXT, TIMESTAMP, Type, decimal
from whence.plan.algebra.expressions import Call, Col
from whence.plan.algebra.logical import (
    Agg,
    Join,
    MatchDistinct,
    MatchLeast,
    MatchPairs,
    MatchRows,
    MatchTop,
    Node,
    Order,
    Project,
    walk,
)

_WORDS = ["", "a", "ab", "b", "ba", "c", "d", "Z", "é"]
_DAY = dt.datetime(2024, 1, 1)

VALUES: dict[Type, Callable[[random.Random], Any]] = {
    INTEGER: lambda r: r.randrange(8),
    BIGINT: lambda r: r.choice([r.randrange(6), 2**63 - 1, -(2**63) + 1]),
    DOUBLE: lambda r: r.choice([0.0, -0.0, 0.1, 0.2, 0.30000000000000004, 1e300, float("inf"), float("nan")]),
    decimal(10, 2): lambda r: Decimal(r.randrange(8)) / 4,
    decimal(30, 2): lambda r: Decimal(r.randrange(4)) * 10**20,
    DATE: lambda r: _DAY.date() + dt.timedelta(days=r.randrange(8)),
    TIMESTAMP: lambda r: _DAY + dt.timedelta(hours=r.randrange(8)),
    TEXT: lambda r: r.choice(_WORDS) + str(r.randrange(3)) * r.randrange(2),
}


def value_of(type: Type, r: random.Random, nulls: float = 0.15) -> Any:
    return None if r.random() < nulls else VALUES[type](r)


def comparable(rows: Counter[Row]) -> Counter[Row]:
    """Rows in which NaN equals NaN."""
    return Counter({tuple("NaN" if v != v else v for v in row): n for row, n in rows.items() if n})


class Sides:
    """A template twice: as a join of the parameters with the query, and in groups."""

    def __init__(self, template: Template, out: Any, **tables: Any) -> None:
        self.bench = Bench(**tables, **{PARAMETERS: template.parameters})
        found = template.recognised(out)
        assert found.plan is not None, found.why
        self.plan: Node = found.plan
        self.bench.view("joined", template.plan(out))
        self.bench.view("groups", self.plan)
        self.told: Counter[Row] = Counter()

    def step(self, changes: list[tuple[str, Row, int]]) -> None:
        """Run an epoch, once to be undone: both say the same, and what was told adds up to the contents."""
        batch = self.bench.batch(changes)
        for keep in (False, True):
            found = self.bench.flow.run(batch)
            told = {name: self._rows(found[name]) if name in found else Counter() for name in ("joined", "groups")}
            assert told["groups"] == told["joined"]
            if keep:
                self.bench.flow.commit()
            else:
                self.bench.flow.undo()
        for table, delta in self.bench._net.items():
            self.bench.tables[table].update(delta)
        self.told.update(told["groups"])
        assert +self.told == comparable(self.bench.rows("groups")) == comparable(self.bench.rows("joined"))

    def _rows(self, batch: Any) -> Counter[Row]:
        rows = comparable(decode(batch, self.plan.schema, self.bench.dictionary))
        assert len(batch.ann) == len(rows)
        assert 0 not in batch.ann
        return rows

    def random_step(self, r: random.Random, data: dict[str, list[Type]]) -> None:
        """Change data and subscriptions together."""
        changes: list[tuple[str, Row, int]] = []
        for table, types in data.items():
            live = list(+self.bench.tables[table])
            for _ in range(r.randrange(6)):
                if live and r.random() < 0.4:
                    changes.append((table, r.choice(live), -1))
                else:
                    changes.append((table, tuple(value_of(t, r) for t in types), r.choice([1, 1, 2])))
        types = self.bench.schemas[PARAMETERS].types
        there = {row[0]: row for row in +self.bench.tables[PARAMETERS]}
        for id in r.sample(range(20), r.randrange(6)):
            if id in there:
                changes.append((PARAMETERS, there[id], -1))
            if id not in there or r.random() < 0.5:
                changes.append((PARAMETERS, (id, *(value_of(t, r) for t in types[1:])), 1))
        self.step(changes)


@pytest.mark.parametrize("seed", seeds(20))
def test_selections_in_groups_equal_the_join(seed: int) -> None:
    r = random.Random(seed)
    types = [r.choice(list(VALUES)) for _ in range(r.randrange(1, 4))]
    bench = Bench(r=schema(*types))
    template = Template(bench.scan("r"))
    for column in range(len(types)):
        if r.random() < 0.25:
            template.equal(column)
        else:
            ops = r.choice([(">=", "<="), (">", "<"), (">=", "<"), (">",), ("<=",), ("<", ">=", ">")])
            template.range(Col(types[column], column), *ops)
    sides = Sides(template, r.choice([None, [], [Col(types[0], 0)]]), r=schema(*types))
    assert isinstance(sides.plan, MatchRows)
    for _ in range(8):
        sides.random_step(r, {"r": types})


@pytest.mark.parametrize("seed", seeds(40))
def test_aggregates_in_groups_equal_the_join(seed: int) -> None:
    r = random.Random(seed)
    x, y = r.choice(list(VALUES)), r.choice(list(VALUES))
    types = [INTEGER, x, y, DOUBLE]
    scan = Bench(r=schema(*types)).scan("r")
    kind = r.choice(["min", "max", "distinct", "sum"])
    template: Template
    if kind == "distinct":
        template = DistinctTemplate(scan)
    elif kind == "sum":
        template = AggregateTemplate(scan, (Agg("count", None), BIGINT), (Agg("sum", 2), DOUBLE), (Agg("min", 1), y))
    else:
        template = AggregateTemplate(scan, (Agg("min" if kind == "min" else "max", 1), y))
    if r.random() < 0.5:
        template.equal(0)
    template.range(Col(x, 1), *r.choice([(">=", "<="), (">", "<"), (">=", "<"), (">",), ("<=",)]))
    several = kind in ("min", "max") and r.random() < 0.4
    if several:
        template.range(Col(DOUBLE, 3), ">=", "<=")
    sides = Sides(template, [Col(y, 2), Col(DOUBLE, 3)][: 2 if kind == "sum" else 1], r=schema(*types))
    if several:
        assert any(isinstance(node, MatchTop) for node in walk(sides.plan))
    else:
        assert isinstance(sides.plan, {"distinct": MatchDistinct, "sum": Project}.get(kind, MatchLeast))
    for _ in range(8):
        sides.random_step(r, {"r": types})


@pytest.mark.parametrize("seed", seeds(40))
def test_first_rows_in_groups_equal_the_join(seed: int) -> None:
    """ORDER BY … LIMIT of each subscription: ties, NULLs, offsets, limits that are parameters, several ranges."""
    r = random.Random(seed)
    types = [r.choice(list(VALUES)) for _ in range(r.randrange(2, 4))]
    bench = Bench(r=schema(*types))
    shown = r.sample(range(len(types)), r.randrange(1, len(types) + 1))
    order = [
        Order(at, r.random() < 0.5, r.random() < 0.5) for at in r.sample(range(len(shown)), r.randrange(len(shown) + 1))
    ]
    template = TopTemplate(bench.scan("r"), order, r.choice([0, 1, 1, 2, 3, None, "parameter"]), r.choice([0, 0, 1, 2]))
    if r.random() < 0.3:
        template.equal(0)
    for column in range(1, r.choice([1, 2, 2, len(types)])):
        template.range(Col(types[column], column), *r.choice([(">=", "<="), (">", "<"), (">",), ("<=",)]))
    if not template.columns[1:]:
        template.range(Col(types[0], 0), ">=", "<=")
    out = [Col(types[at], at) for at in shown]
    template.plan(out)
    sides = Sides(template, out, r=schema(*types))
    assert isinstance(sides.plan, MatchTop)
    for _ in range(8):
        sides.random_step(r, {"r": types})


def test_labels_that_move_keep_text_ranges_right() -> None:
    bench = Bench(r=schema(TEXT))
    template = Template(bench.scan("r"))
    template.range(Col(TEXT, 0), ">", "<=")
    sides = Sides(template, None, r=schema(TEXT))
    sides.step([(PARAMETERS, (1, "b", "d"), 1), ("r", ("c",), 1)])
    before = sides.bench.dictionary.order_version
    for n in range(80):  # each word halves the gap below the last one
        sides.step([("r", ("b" + "0" * n + "1",), 1), (PARAMETERS, (2 + n, "b" * (n % 3), None), 1)])
    assert sides.bench.dictionary.order_version > before


def test_labels_that_move_keep_first_rows_right() -> None:
    bench = Bench(r=schema(TEXT))
    template = TopTemplate(bench.scan("r"), [Order(0)], 2, 0)
    template.range(Col(TEXT, 0), ">", "<=")
    sides = Sides(template, [Col(TEXT, 0)], r=schema(TEXT))
    sides.step([(PARAMETERS, (1, "b", "d"), 1), ("r", ("c",), 1)])
    before = sides.bench.dictionary.order_version
    for n in range(80):  # each word halves the gap below the last one, and is the first of subscription 1
        sides.step([("r", ("b" + "0" * n + "1",), 1), (PARAMETERS, (2 + n, "b" * (n % 3), None), 1)])
    assert sides.bench.dictionary.order_version > before


def join_of(bench: Bench, keys: tuple[tuple[int, int], ...]) -> Join:
    left, right = bench.scan("r"), bench.scan("s")
    return Join(schema(*left.schema.types, *right.schema.types), left, right, "inner", keys)


def conditions(template: Template, r: random.Random, columns: range, types: list[Type]) -> None:
    for column in columns:
        if r.random() < 0.2:
            template.equal(column)
        elif r.random() < 0.7:
            ops = r.choice([(">=", "<="), (">", "<"), (">",), ("<=",)])
            template.range(Col(types[column], column), *ops)


def use_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small groups be hotspots, and all events be processed by one plan, or each by the one that seems cheapest."""
    monkeypatch.setattr(hotspots, "SMALLEST", seed % 4 + 1)
    monkeypatch.setattr(match_cost, "ROUTED_FROM", 1)
    plan = seed % 5
    if plan in match_cost.PLANS:
        found = {p: tuple(0.0 if p == plan else 1.0 for _ in c) for p, c in match_cost.DEFAULTS.items()}
        monkeypatch.setattr(match_cost, "coefficients", lambda: found)


@pytest.mark.parametrize("seed", seeds(20))
def test_joins_in_groups_equal_the_join(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plan(seed, monkeypatch)
    r = random.Random(seed)
    keys = [r.choice([INTEGER, TEXT]) for _ in range(r.choice([1, 1, 2]))]
    left, right = ([*keys, *(r.choice(list(VALUES)) for _ in range(r.randrange(3)))] for _ in range(2))
    tables = {"r": schema(*left), "s": schema(*right)}
    template = Template(join_of(Bench(**tables), tuple((k, k) for k in range(len(keys)))))
    conditions(template, r, range(len(left) + len(right)), [*left, *right])
    sides = Sides(template, r.choice([None, None, [Col(right[0], len(left))]]), **tables)
    assert isinstance(sides.plan, MatchPairs)
    for _ in range(10):
        sides.random_step(r, {"r": left, "s": right})


@pytest.mark.parametrize("seed", seeds(16))
def test_band_joins_in_groups_equal_the_join(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_plan(seed, monkeypatch)
    r = random.Random(seed)
    type, difference = r.choice(
        [(INTEGER, INTEGER), (DATE, BIGINT), (DOUBLE, DOUBLE), (decimal(10, 2), decimal(10, 2))]
    )
    left, right = [type, INTEGER, INTEGER], [INTEGER, type, INTEGER]
    tables = {"r": schema(*left), "s": schema(*right)}
    keys = ((1, 0),) if r.random() < 0.5 else ()
    template = Template(join_of(Bench(**tables), keys))
    band = Call(difference, "-", (Col(type, 4), Col(type, 0)))
    template.range(band, *r.choice([(">=", "<="), (">", "<"), (">=",), ("<",)]))
    conditions(template, r, range(5, 6), [*left, *right])
    conditions(template, r, range(2, 3), [*left, *right])
    sides = Sides(template, None, **tables)
    assert isinstance(sides.plan, MatchPairs)
    assert sides.plan.band is not None
    for _ in range(8):
        sides.random_step(r, {"r": left, "s": right})


def test_supply_and_demand() -> None:
    """Who asks for supplies of 0 to 10 and demands of 0 to 10 hears of pairs of one product in both ranges."""
    tables = {"r": schema(INTEGER, INTEGER, INTEGER), "s": schema(INTEGER, INTEGER, INTEGER)}  # id, product, quantity
    template = Template(join_of(Bench(**tables), ((1, 1),)))
    template.range(Col(INTEGER, 2), ">=", "<=")
    template.range(Col(INTEGER, 5), ">=", "<=")
    sides = Sides(template, [Col(INTEGER, 0), Col(INTEGER, 3)], **tables)
    sides.step([(PARAMETERS, (1, 0, 10, 0, 10), 1), (PARAMETERS, (2, 5, 20, None, 3), 1), ("r", (7, 1, 8), 1)])
    assert sides.told == {}
    sides.step([("s", (70, 1, 10), 1), ("s", (71, 1, 3), 1), ("s", (72, 2, 3), 1), ("s", (73, 1, 11), 1)])
    assert sides.told == {(1, 7, 70): 1, (1, 7, 71): 1, (2, 7, 71): 1}
    sides.step([("r", (7, 1, 8), -1), ("r", (7, 1, 11), 1), (PARAMETERS, (3, None, None, 11, None), 1)])
    assert +sides.told == {(2, 7, 71): 1, (3, 7, 73): 1}


def test_units_and_targets() -> None:
    """A unit hears of targets ahead of it by 5 to 10, of priority 3 or more; of units those of class 1."""
    tables = {"r": schema(INTEGER, INTEGER, INTEGER), "s": schema(INTEGER, INTEGER, INTEGER)}  # id, class, position
    template = Template(join_of(Bench(**tables), ()))
    template.range(Call(INTEGER, "-", (Col(INTEGER, 5), Col(INTEGER, 2))), ">=", "<=")
    template.equal(1)
    template.range(Col(INTEGER, 4), ">=")
    sides = Sides(template, [Col(INTEGER, 0), Col(INTEGER, 3)], **tables)
    sides.step([(PARAMETERS, (1, 5, 10, 1, 3), 1), ("r", (1, 1, 100), 1), ("r", (2, 2, 100), 1)])
    sides.step([("s", (9, 3, 105), 1), ("s", (8, 2, 105), 1), ("s", (7, 3, 111), 1)])
    assert sides.told == {(1, 1, 9): 1}
    sides.step([("r", (1, 1, 100), -1), ("r", (1, 1, 101), 1)])
    assert +sides.told == {(1, 1, 7): 1}
