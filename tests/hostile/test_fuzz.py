"""Statements and rows at random, most of them wrong: only errors of ours come out, an error changes nothing, and the
database goes on being right.

FUZZ_SECONDS says for how long (10 unless told), FUZZ_SEED where to begin; a failure names the seed that shows it again.
Left out is what may rightly run for ever or fill the memory: recursion ad hoc, and huge numbers near functions that
make as many rows or letters as they are told.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import whence
from whence.sql.parse import parse

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
TESTS = Path(__file__).parent.parent
words = str.split
SCHEMA = """
    CREATE TABLE t (a INT, b BIGINT, s TEXT, x DECIMAL(8,2), f DOUBLE, d DATE);
    CREATE TABLE u (a INT, c BIGINT, s TEXT, ts TIMESTAMP);
    CREATE TABLE w (c BIGINT PRIMARY KEY, n TEXT NOT NULL);
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE TABLE pinned (k INT, v INT);
    CREATE VIEW sums AS SELECT k, SUM(v) AS v, COUNT(*) AS n FROM pinned GROUP BY k;
    CREATE VIEW reach AS
      SELECT src, dst FROM link UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
"""
ROWS: dict[str, list[Any]] = {
    "t": [
        (1, 2, "a", Decimal("1.50"), 0.5, dt.date(2020, 1, 31)),
        (2, None, None, None, None, None),
        (3, 3, "b", 2, 1, None),
    ],
    "u": [(1, 2, "a", dt.datetime(2020, 1, 1)), (3, 1, "c", None)],
    "w": [(1, "x"), (2, "y")],
    "link": [("A", "B", 1), ("B", "C", 2), ("C", "A", 3)],
    "pinned": [(1, 10), (1, 20), (2, 5)],
}
TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|[^\w\s]")
STRANGE = words("\0 \ud800 \U0001f600 é \u202e \ufeff ' \" $$ -- /* */ ; \\ ` ~ ٣")
LITERALS = [
    *words(
        "0 -1 2147483648 9223372036854775807 -9223372036854775808 1e308 1e400 0.000000001 1e999999999 NULL TRUE '' 'x'"
    ),
    *("'1e999999999'", "'2020-02-30'", "'\U0001f600'", "DATE '9999-12-31'", "INTERVAL '1 month'"),
]
COLUMNS = words("a b s x f d c ts n src dst cost k v")
NAMES = [*COLUMNS, *words("t u w link pinned sums reach made")]
OPERATORS = words("+ - * / % < > = || <> <= // and or")
TYPES = words("int bigint double text date timestamp interval boolean decimal(9,3)")
JOINS = words("left right full inner cross natural union except intersect")
FUNCTIONS = words("""
    abs sign round floor ceil sqrt ln log10 exp lower upper length trim reverse substring left right replace strpos
    split_part coalesce nullif least greatest concat count sum avg min max count_if year month day hour date_trunc
    date_diff contains
""")
LARGER = [
    form.strip()
    for form in re.split(
        ";",
        """
    {f}({e}); {f}({e}, {o}); {f}({e}, {o}, {o}); {f}(DISTINCT {e}); SUM({e}) FILTER (WHERE {o} = {e});
    CAST({e} AS {type}); TRY_CAST({e} AS {type}); EXTRACT(month FROM {e}); -{e}; NOT ({e}); ({e} IS NULL); ({e} = {o});
    ({e} + {o}); ({e} || {o}); ({e} ** {o}); ({e} LIKE {o}); ({e} IS DISTINCT FROM {o}); ({e} + INTERVAL '1 day');
    CASE WHEN {e} = {o} THEN {e} ELSE {o} END; CASE {e} WHEN {o} THEN {e} END; ({e} BETWEEN {o} AND {e});
    ({e} IN ({o}, {e})); ({e} IN (SELECT a FROM u)); (SELECT MAX({e}) FROM t); EXISTS (SELECT 1 FROM u WHERE u.a = {e})
    """,
    )
]
INTERNAL = re.compile(r"\b[A-Z]\w+\(\w+=|<whence|object at 0x|\$\w+Error")  # a repr, not a message
GENERATING = re.compile(r"recursive|repeat|pad|range|series|power|\*\*|<<|!|unnest", re.IGNORECASE)


@cache
def corpus() -> tuple[list[list[str]], list[str]]:
    """Every statement of the tests of SQL, as tokens, and every word in them."""
    found = (TESTS / "unit" / "queries.sql").read_text().splitlines() * 3  # they are about the tables that are there
    for path in sorted((TESTS / "sql").glob("*.slt")):
        for block in path.read_text().split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")][1:]
            found.append("\n".join(lines).partition("----")[0])
    tokens = [TOKEN.findall(s) for s in found if s.strip() and not s.startswith("--")]
    return tokens, sorted({word for statement in tokens for word in statement if word.strip()})


class Mutator:
    """Real statements, changed a little or a lot."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tokens, self.words = corpus()

    def statement(self) -> str:
        tokens = list(self.chance.choice(self.tokens))
        if self.chance.random() < 0.4:
            tokens = [
                self.chance.choice(["CREATE OR REPLACE VIEW made AS ", "INSERT INTO pinned ", "EXPLAIN "]),
                *tokens,
            ]
        changes = self.CHANGES if self.chance.random() < 0.4 else self.CHANGES_OF_MEANING
        for _ in range(self.chance.choice([0, 1, 1, 1, 2, 2, 4, 8])):
            self.chance.choice(changes)(self, tokens)
        return "".join(tokens)

    def _at(self, tokens: list[str]) -> int:
        return self.chance.randrange(len(tokens)) if tokens else 0

    def _delete(self, tokens: list[str]) -> None:
        start = self._at(tokens)
        del tokens[start : start + self.chance.choice([1, 1, 2, 5])]

    def _repeat(self, tokens: list[str]) -> None:
        start = self._at(tokens)
        part = tokens[start : start + self.chance.choice([1, 2, 6])]
        tokens[start:start] = part * self.chance.choice([1, 1, 2, 30])

    def _swap(self, tokens: list[str]) -> None:
        if tokens:
            i, j = self._at(tokens), self._at(tokens)
            tokens[i], tokens[j] = tokens[j], tokens[i]

    def _splice(self, tokens: list[str]) -> None:
        other = self.chance.choice(self.tokens)
        start = self._at(other)
        tokens[self._at(tokens) :] = other[start:]

    def _nest(self, tokens: list[str]) -> None:
        other = self.chance.choice(self.tokens)
        at = self._at(tokens)
        tokens[at:at] = ["(", *other, ")"]

    def _word(self, tokens: list[str]) -> None:
        tokens.insert(self._at(tokens), f" {self.chance.choice(self.words)} ")

    def _replace(self, tokens: list[str]) -> None:
        if tokens:
            tokens[self._at(tokens)] = self.chance.choice(self.words)

    def _strange(self, tokens: list[str]) -> None:
        odd = self.chance.choice([self.chance.choice(STRANGE), chr(self.chance.randrange(0x2FFFF))])
        tokens.insert(self._at(tokens), odd)

    def _literal(self, tokens: list[str]) -> None:
        places = [i for i, token in enumerate(tokens) if token[0].isdigit() or token[0] == "'"]
        if places:
            tokens[self.chance.choice(places)] = self.chance.choice(LITERALS)

    def _alike(self, tokens: list[str]) -> None:
        """Another word of the same sort."""
        kind = self.chance.choice([NAMES, FUNCTIONS, OPERATORS, TYPES, JOINS])
        places = [i for i, token in enumerate(tokens) if token.lower() in kind]
        if places:
            tokens[self.chance.choice(places)] = self.chance.choice(kind)

    def _wrap(self, tokens: list[str]) -> None:
        """A column or a constant inside something larger."""
        places = [
            i for i, token in enumerate(tokens) if token.lower() in COLUMNS or token[0].isdigit() or token[0] == "'"
        ]
        if places:
            at, other = self.chance.choice(places), self.chance.choice([*COLUMNS, *LITERALS])
            names = {"f": self.chance.choice(FUNCTIONS), "type": self.chance.choice(TYPES), "o": other}
            tokens[at] = self.chance.choice(LARGER).format(e=tokens[at], **names)

    CHANGES = (_delete, _repeat, _swap, _splice, _nest, _word, _replace, _strange, _literal)
    CHANGES_OF_MEANING = (_alike, _alike, _wrap, _literal)


class Subject:
    """A small database, and what must hold of it."""

    def __init__(self) -> None:
        self.db = whence.open(recursion_limit=300)
        self.db.execute(SCHEMA)
        for table, rows in ROWS.items():
            self.db.insert(table, rows)

    def everything(self) -> tuple[Any, ...]:
        db = self.db
        return db.epoch, db.tables, db.views, [db[t].schema for t in db.tables], [bag(db[t].rows) for t in db.tables]

    def whole(self) -> bool:
        """Whether it is still worth working on: not all gone, nor much grown."""
        names = {*self.db.tables, *self.db.views}
        return {"pinned", "link", "sums", "reach"} <= names and all(len(self.db[name]) < 500 for name in names)

    def check(self) -> None:
        """The views that are known are as they should be, and the database can still be written to and asked."""
        db = self.db
        if "pinned" in db.tables and db["pinned"].columns == ["k", "v"] and "sums" in db.views:
            before = Counter(db["pinned"].rows)
            db.insert("pinned", [(7, 7)])
            assert Counter(db["pinned"].rows) == before + Counter([(7, 7)])
            if db["sums"].columns == ["k", "v", "n"]:
                assert bag(db["sums"].rows) == bag(sums(db["pinned"].rows))
            db.delete("pinned", [(7, 7)])
            assert Counter(db["pinned"].rows) == before
        if "link" in db.tables and "reach" in db.views and db["reach"].columns == ["src", "dst"]:
            assert set(db["reach"].rows) == closure({(src, dst) for src, dst, *_ in db["link"].rows})
        assert db.query("SELECT 1 + 1 AS two").rows == [(2,)]


def bag(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


def sums(rows: list[Any]) -> list[Any]:
    found: dict[Any, list[Any]] = {}
    for k, v in rows:
        found.setdefault(k, []).append(v)
    known = {k: [v for v in values if v is not None] for k, values in found.items()}
    return [(k, sum(known[k]) if known[k] else None, len(values)) for k, values in found.items()]


def closure(links: set[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    found = set(links)
    while more := {(a, d) for a, b in found for c, d in links if b == c and b is not None} - found:
        found |= more
    return found


def one_statement(sql: str) -> bool:
    """Whether an error in it must leave everything as it was: a script of several may have done some of them."""
    try:
        return len(parse(sql)) <= 1
    except whence.WhenceError:
        return True


def attempt(act: Callable[[], Any], shows_values: bool = False) -> bool:
    """Whether it ends in an error of ours, which must not be long, nor show a repr (other than of a value given)."""
    said = ""
    try:
        act()
    except whence.WhenceError as error:
        said = str(error)
    assert len(said) < 3_000, said[:300]
    assert shows_values or not INTERNAL.search(said), said
    return bool(said)


def rounds(act: Callable[[random.Random], None]) -> None:
    """Repeat with one seed after the other while the time lasts."""
    until, seed = time.monotonic() + SECONDS / 2, SEED
    while True:
        try:
            act(random.Random(seed))
        except Exception as failure:
            failure.add_note(f"FUZZ_SEED={seed}")
            raise
        seed += 1
        if time.monotonic() > until:
            return


def statements(chance: random.Random) -> None:
    """One database, and some forty statements."""
    mutator, subject = Mutator(chance), Subject()
    for _ in range(40):
        sql = mutator.statement()
        if GENERATING.search(sql) and re.search(r"\d{3}|\brecursive", sql, re.IGNORECASE):
            continue
        before = subject.everything()
        try:
            refused = attempt(lambda sql=sql: [repr(result) for result in subject.db.script(sql)])
            if refused and one_statement(sql):
                assert subject.everything() == before
        except Exception as failure:
            failure.add_note(f"by {sql!r}")
            raise
        if not subject.whole():
            break
    subject.check()
    subject.db.close()


def test_statements() -> None:
    rounds(statements)


# -- rows ------------------------------------------------------------------------------------------------------------


class Odd:
    """Fails at whatever is asked of it."""

    def _fails(self, *_: Any) -> Any:
        raise RuntimeError("on purpose")

    __str__ = __repr__ = __eq__ = __hash__ = __float__ = __int__ = __index__ = __bool__ = __iter__ = _fails


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any Python value."""
    choices: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.choice([True, False]),
        lambda: chance.choice([-1, 1]) * 2 ** chance.randrange(70) + chance.randrange(-2, 3),
        lambda: chance.choice([0.0, -0.0, 1.5, 1e300, float("nan"), float("inf"), -float("inf")]),
        lambda: Decimal(chance.choice(["1.5", "1e30", "NaN", "-0", "1e-30", "123456.789"])),
        lambda: "".join(chr(chance.randrange(0x3000)) for _ in range(chance.randrange(4))),
        lambda: chance.choice(["\ud800", "a\0b", "2020-01-01", "1", "P1D", "x" * 300]),
        lambda: chance.choice([b"x", bytearray(), memoryview(b"")]),
        lambda: dt.date(1, 1, 1) + dt.timedelta(chance.randrange(3_652_059)),
        lambda: dt.datetime(1, 1, 1) + dt.timedelta(seconds=chance.randrange(10**11)),
        lambda: dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=chance.randrange(-23, 24)))),
        lambda: dt.timedelta(chance.randrange(-(10**6), 10**6)),
        lambda: whence.Interval(*(chance.choice([0, 1, -5, 2**31, 2**62]) for _ in range(3))),
        lambda: chance.choice([np.int8(-1), np.uint64(2**64 - 1), np.float32(0.1), np.datetime64("NaT"), np.str_("s")]),
        lambda: np.array([value(chance, depth + 1)], dtype=object),
        lambda: [value(chance, depth + 1) for _ in range(chance.randrange(3))] if depth < 3 else 0,
        lambda: {chance.choice("abks"): value(chance, depth + 1)} if depth < 3 else 0,
        Odd,
        object,
    ]
    return chance.choice(choices)()


def row(chance: random.Random, good: tuple[Any, ...], columns: list[str]) -> Any:
    """A row of a table, with something wrong in it now and then."""
    values: list[Any] = list(good)
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        values[chance.randrange(len(values))] = value(chance)
    match chance.randrange(12):
        case 0:
            return values[: chance.randrange(len(values) + 1)]
        case 1:
            return [*values, value(chance)]
        case 2:
            return dict(zip(columns, values, strict=True))
        case 3:
            return {chance.choice([c.upper(), c, "other"]): v for c, v in zip(columns, values, strict=True)}
        case 4:
            return value(chance)
    return tuple(values)


def write(db: whence.Database, chance: random.Random, table: str, data: list[Any]) -> None:
    columns = db[table].columns
    match chance.randrange(6):
        case 0:
            db.delete(table, data, strict=chance.random() < 0.5)
        case 1:
            db.update(table, {chance.choice(columns): value(chance)}, {chance.choice(columns): value(chance)})
        case 2:
            db.insert(table, iter(data))
        case _:
            db.insert(table, data)


def rows(chance: random.Random) -> None:
    """One database, and some forty writes."""
    subject = Subject()
    db = subject.db
    for _ in range(40):
        table = chance.choice(list(ROWS))
        good, columns = chance.choice(ROWS[table]), db[table].columns
        data = [row(chance, good, columns) for _ in range(chance.choice([1, 1, 2, 30]))]
        before = subject.everything()
        if attempt(lambda table=table, data=data: write(db, chance, table, data), shows_values=True):
            assert subject.everything() == before
        for name in (table, "sums"):
            db[name].to_arrow()
        if not subject.whole():
            break
    subject.check()
    db.close()


def test_rows() -> None:
    rounds(rows)
