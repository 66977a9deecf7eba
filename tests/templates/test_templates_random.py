"""Random templates, rows, parameters and epochs against brute force: the query of each subscription, asked alone.

The oracle writes the values of a subscription into the query as literals, leaves comparisons with NULL out, and lets
DuckDB answer it. After every epoch the notifications so far must add up to the answers, for every subscription, and no
epoch may tell a row that is neither gone nor new.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

import whence
from tests.depth import seeds

TYPES: dict[str, list[Any]] = {
    "INT": [-2, 0, 1, 2, 3, 7],
    "DECIMAL(6,2)": [Decimal(text) for text in ("-1.50", "0.00", "0.01", "2.50", "9.99")],
    "DOUBLE": [-1.5, 0.0, 0.1, 2.5, 1e9],
    "DATE": [dt.date(2026, 1, day) for day in (1, 2, 15, 31)],
    "TIMESTAMP": [dt.datetime(2026, 1, 1, hour) for hour in (0, 1, 12, 23)],
    "TEXT": ["", "a", "ab", "b", "zz"],
}
SHAPES = {  # {x>=low} is a range of x, {k=p} an equality, {n} a limit, {p} a value
    "selection": "SELECT r.k, r.x FROM r WHERE {r.x>=low} AND {r.x<=high}",
    "strict": "SELECT r.x FROM r WHERE {r.x>low} AND {r.x<high} AND {r.k=key}",
    "two ranges": "SELECT r.k FROM r WHERE {r.x>=low} AND {r.y<high}",
    "join": "SELECT r.x, s.x FROM r JOIN s ON r.k = s.k WHERE {r.x>=low} AND {r.x<=high} AND {s.x>slow} AND {s.x<=top}",
    "least": "SELECT MIN(r.y) AS least FROM r WHERE {r.x>=low} AND {r.x<=high}",
    "least of two": "SELECT MAX(r.k) AS most FROM r WHERE {r.x>=low} AND {r.x<=high} AND {r.y>=least} AND {r.y<top}",
    "counted": "SELECT COUNT(*) AS n, MAX(r.y) AS most FROM r WHERE {r.x>low} AND {r.k=key}",
    "grouped": "SELECT r.k, COUNT(*) AS n FROM r WHERE {r.x>=low} GROUP BY r.k HAVING COUNT(*) > 1",
    "distinct": "SELECT DISTINCT r.y FROM r WHERE {r.x>=low} AND {r.x<=high}",
    "outer": "SELECT r.k, s.x FROM r LEFT JOIN s ON r.k = s.k AND {s.x>=slow} WHERE {r.x<high}",
    "union": "SELECT r.x FROM r WHERE {r.x>low} UNION ALL SELECT s.x FROM s WHERE {s.x<high}",
    "first": "SELECT r.y, r.k, r.x FROM r WHERE {r.x>=low} AND {r.x<=high} ORDER BY r.y DESC, r.k, r.x LIMIT 2",
    "first n": "SELECT r.x, r.k, r.y FROM r WHERE {r.k=key} ORDER BY r.x NULLS FIRST, r.y LIMIT {n} OFFSET 1",
    "first groups": "SELECT r.k, COUNT(*) AS n FROM r WHERE {r.x<high} GROUP BY r.k ORDER BY n DESC, r.k LIMIT {n}",
    "first pairs": "SELECT r.y, s.x FROM r JOIN s ON r.k = s.k WHERE {s.x>=low} ORDER BY r.y, s.x LIMIT 3",
    "band": "SELECT r.x, s.x FROM r JOIN s ON r.k = s.k WHERE {s.k-r.y>=low} AND {s.k-r.y<high} AND {r.x>=xlow}",
    "band alone": "SELECT r.k, s.x FROM r, s WHERE {s.k-r.y>low} AND {s.k-r.y<=high} AND {s.x<=top} AND {r.k=key}",
    "recursive": "SELECT reach.y FROM reach WHERE {reach.k=key} AND {reach.y>low}",
    "recursive join": "SELECT reach.y, s.x FROM reach JOIN s ON reach.y = s.k WHERE {reach.k>=key} AND {s.x<=top}",
    "view": "SELECT v.k, v.n FROM v WHERE {v.m>=low} AND {v.m<high}",
    "shown": "SELECT r.x, r.y - {least} AS above FROM r WHERE {r.y>=least} AND {r.x<high}",
    "mixed": "SELECT r.k FROM r WHERE {r.x>=low} AND {r.y<>other} AND r.k < 3",
}
GROUPS = {  # what EXPLAIN says of each; what is not here is joined with the parameters
    "selection": "match subscriptions with rows by 1 range",
    "strict": "match subscriptions with rows by 1 equal and 1 range",
    "two ranges": "match subscriptions with rows by 2 ranges",
    "join": "match subscriptions with pairs by 1 equal column, 1 range of the left, 1 range of the right",
    "least": "MIN of each subscription's range, by maximum affected ranges",
    "least of two": "first 1 row of each subscription, by 2 ranges and the value of the last of them",
    "counted": "match subscriptions with rows by 1 equal and 1 range",
    "grouped": "match subscriptions with rows by 1 range",
    "distinct": "distinct values of each subscription's range, by the range among equal values",
    "union": "match subscriptions with rows by 1 range",
    "first": "first 2 rows of each subscription, by 1 range and the value of the last of them",
    "first n": "first n rows after 1 of each subscription, by 1 equal and the value of the last of them",
    "first groups": "match subscriptions with rows by 1 range",
    "first pairs": "first 3 rows of each subscription, by 1 range and the value of the last of them",
    "band": "match subscriptions with pairs by 1 equal column, a band first, then 1 range of the left",
    "band alone": "match subscriptions with pairs by a band first, then 1 equal of the left, 1 range of the right",
    "recursive": "match subscriptions with rows by 1 equal and 1 range",
    "recursive join": "match subscriptions with pairs by 1 equal column, 1 range of the left, 1 range of the right",
    "view": "match subscriptions with rows by 1 range",
    "shown": "match subscriptions with rows by 2 ranges",
    "mixed": "match subscriptions with rows by 1 range",
}
_REACH = """
CREATE VIEW reach AS SELECT k, y FROM r WHERE y IS NOT NULL UNION SELECT a.k, r.y FROM reach a JOIN r ON a.y = r.k
"""


def condition(term: str, given: dict[str, Any] | None) -> str:
    """Return a condition such as `r.x>=low`, with a parameter or with its value; or a limit."""
    if term == "n":
        return ":n" if given is None else str(99 if given[term] is None else max(given[term], 0))
    at = next((i for i, char in enumerate(term) if char in "<>="), None)
    if at is None:
        return f":{term}" if given is None else literal(given[term])
    op = term[at : at + 2] if term[at + 1] in "=>" else term[at]
    value, name = term[:at], term[at + len(op) :]
    if given is None:
        return f"{value} {op} :{name}"
    bound = given[name]
    if bound is None:
        return f"{value} IS NOT NULL" if op not in ("=", "<>") else "FALSE"
    return f"{value} {op} {literal(bound)}"


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case dt.date():
            return f"DATE '{value}'"
        case str():
            return f"'{value}'"
        case float():
            return f"CAST({value!r} AS DOUBLE)"
    return str(value)


def write(text: str, given: dict[str, Any] | None) -> str:
    """Return a query with parameters, or with their values."""
    found = ""
    while "{" in text:
        before, _, text = text.partition("{")
        term, _, text = text.partition("}")
        found += before + condition(term, given)
    return found + text


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_notifications_add_up_to_what_each_query_answers_alone(shape: str, seed: int) -> None:
    chance = random.Random(f"{shape} {seed}")
    kind = chance.choice(list(TYPES))
    db = whence.open(partitions=3 if seed % 4 == 3 else None)
    db.execute(f"CREATE TABLE r (k INT, x {kind}, y INT); CREATE TABLE s (k INT, x {kind})")
    db.execute("CREATE VIEW v AS SELECT k, COUNT(*) AS n, MIN(x) AS m FROM r GROUP BY k")
    if "recursive" in shape:
        db.execute(_REACH)
    for _ in range(5):
        _change(db, chance)
    db.execute(f"CREATE TEMPLATE t AS {write(SHAPES[shape], None)}")
    said = f"in groups: {GROUPS[shape]}" if shape in GROUPS else "joined with the parameters"
    assert any(line.startswith(said) for line in db.explain("t").splitlines())
    names = db["t"].columns[1:]
    news, told = db.notifications("t"), dict[int, Counter[Any]]()
    before: dict[int, Counter[Any]] = {}
    for _ in range(6):
        with db.transaction():
            for _ in range(chance.randrange(4)):
                _change(db, chance)
            for _ in range(chance.randrange(3)):
                id = chance.randrange(5)
                if chance.random() < 0.3:
                    db.delete("t", key=id)
                else:
                    db.insert("t", (id, *(random_bound(db, chance, name) for name in names)))
        changed = Counter[Any]()
        for n in news:
            told.setdefault(n.id, Counter())[n.row] += n.sign
            changed[n.id, n.row] += n.sign
        now = {
            row[0]: Counter(db.query(write(SHAPES[shape], dict(zip(names, row[1:], strict=True)))).rows)
            for row in db["t"].rows
        }
        assert {id: +rows for id, rows in told.items() if +rows} == {id: rows for id, rows in now.items() if rows}
        assert all(count >= 0 for rows in told.values() for count in rows.values())
        for (id, row), count in changed.items():
            assert count == now.get(id, Counter())[row] - before.get(id, Counter())[row], "only net changes are told"
        for id in now:
            assert Counter(db.subscription("t", id).rows) == now[id]
        before = now


def _change(db: whence.Database, chance: random.Random) -> None:
    table = chance.choice(["r", "r", "s"])
    there = db[table].rows
    if there and chance.random() < 0.4:
        db.delete(table, chance.choice(there))
        return
    values = TYPES[str(db[table].schema.types[1]).replace("INTEGER", "INT")]
    row = [chance.choice([1, 1, 2, 3]), chance.choice([*values, None])]
    db.insert(table, (*row, chance.choice([None, 0, 1, 4])) if table == "r" else tuple(row))


def random_bound(db: whence.Database, chance: random.Random, name: str) -> Any:
    at = db["t"].columns.index(name)
    own = str(db["t"].schema.types[at]).replace("INTEGER", "INT").replace("BIGINT", "INT")
    return chance.choice([*TYPES[own], None])
