"""Every function and cast of docs/sql.md means one thing: over a column of a view, over a constant, and in a query that
DuckDB answers, for values where implementations differ.

Where Whence differs on purpose, docs/sql.md says so under Differences and `DIFFERS` here.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import whence

VALUES: dict[str, list[str]] = {
    "TEXT": [
        *("''", "'ß'", "'ẞ'", "'İ'", "'ı'", "'é'", "'e\u0301'", "'👨\u200d👩\u200d👧'", "'🇩🇪x'", "'ǅ'"),
        *("'ﬁ'", "'Straße'"),
        *("' a '", "'\u00a0a\u00a0'", "'\ta\n'", "'AbC'", "'ΑΣ'", "'ŉ'", "'12'", "'a_b%c'", "NULL::TEXT"),
    ],
    "INTEGER": ["0", "-1", "2147483647", "-2147483648", "NULL::INTEGER"],
    "BIGINT": ["9223372036854775807", "-9223372036854775807"],
    "DOUBLE": [
        *("0.0::DOUBLE", "'-0.0'::DOUBLE", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "0.5::DOUBLE", "1e-7"),
        *("2.5::DOUBLE", "-2.5::DOUBLE", "1e16", "1e17", "1e21", "5e-324", "1.7976931348623157e308", "2.675::DOUBLE"),
    ],
    "DECIMAL(10,2)": [f"{v}::DECIMAL(10,2)" for v in ("0.00", "0.05", "-0.05", "99999999.99", "2.50", "-2.50", "0.49")],
    "DECIMAL(18,8)": [f"{v}::DECIMAL(18,8)" for v in ("0.00000012", "-0.00000012", "1234567890.12345678")],
    "DATE": [
        f"DATE '{d}'"
        for d in ("0200-01-01", "9998-11-30", "1969-12-31", "2024-02-29", "2023-12-31", "2021-01-03", "2024-1-5")
    ],
    "TIMESTAMP": [
        f"TIMESTAMP '{d}'"
        for d in (
            *("2024-01-02 03:04:08.5", "1970-01-01 00:00:00.000001", "0200-01-01 00:00:00", "0999-05-06 07:08:09.1"),
            *("9998-11-30 23:59:59.999999", "1969-12-31 23:59:59.999999", "2024-02-29 12:34:56.789", "2024-1-5 1:2"),
            *("2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-10-27 00:30:00", "2024-03-10 02:30:00"),
        )
    ],
    "INTERVAL": [
        f"INTERVAL '{d}'"
        for d in ("1 month", "-1 day", "30 days", "1 year 2 months 3 days 04:05:06.5", "-00:00:01", "-13 months")
    ],
    "BOOLEAN": ["TRUE", "FALSE", "NULL::BOOLEAN"],
}
TEXTS_OF_VALUES = [
    f"'{text}'"
    for text in (
        *("2024-1-5", "2024-01-05", "24-1-5", "2024/01/05", "20240105", "2024-01-05 10:00", "2024-01-05T10:00:00Z"),
        *("2024-01-05 10:00:00.1234567", "2024-1-5 1:2:3", "2024-02-30", "epoch", "2024-01-05 24:00:00", "2024-01"),
        *("2024-01-05x", " 2024-01-05", "2024-01/05", "2024-01-05 25:00:00", "0001-01-01", "9999-12-31"),
        *(
            "1e3",
            "1.5e1",
            "  12 ",
            "+12",
            "0x10",
            "0b11",
            "1_000",
            "nan",
            "inf",
            "-inf",
            ".5",
            "5.",
            "2.5",
            "-2.5",
            "-0",
        ),
        *("0.00000012", "99999999999", "1e400", "true", "TRUE", "yes", "on", "no", "0", "", " ", "abc", "12abc", "٣"),
        *("1 day", "P1D", "01:02:03", "-1:2:3", "1.5 days", "1.5 months", "1.5 years", "3 mons", "1 hour ago", "1 mil"),
        *("1 h 2 m 3 s", "1day", "@ 1 day", "1 day foo", "1:60:00", "1.55 months", "1.5 quarters", "2 weeks 1 day"),
    )
]
NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(18,8)")
PARTS = [
    *("year", "quarter", "month", "week", "day", "decade", "century"),
    *("hour", "minute", "second", "millisecond", "microsecond"),
]
DAYS = ["dayofweek", "isodow", "dayofyear", "epoch", "isoyear"]
CALLS: dict[str, str] = {
    "TEXT": """lower(x)|lcase(x)|upper(x)|ucase(x)|reverse(x)|trim(x)|ltrim(x)|rtrim(x)|trim(x, 'a')|length(x)|len(x)|
        char_length(x)|character_length(x)|strlen(x)|substring(x, 1, 1)|substr(x, 2)|substring(x, -1)|
        substring(x, 0, 2)|
        left(x, 1)|left(x, -1)|right(x, 1)|right(x, -1)|repeat(x, 2)|repeat(x, -1)|lpad(x, 5, 'ab')|rpad(x, 5, 'ab')|
        replace(x, 'a', 'zz')|replace(x, '', 'z')|split_part(x, 'b', 1)|split_part(x, 'b', -1)|split_part(x, '', 1)|
        starts_with(x, 'A')|prefix(x, '')|ends_with(x, 'c')|suffix(x, 'c')|contains(x, '')|strpos(x, 'a')|strpos(x, '')|
        instr(x, 'b')|position('a' IN x)|concat(x, 'z')|least(x, 'b')|greatest(x, 'b')|nullif(x, 'ß')|ifnull(x, '?')|
        x LIKE '_'|x ILIKE 'strasse'|x ILIKE 'straße'|x ILIKE 'i'|x ILIKE '%Σ'|x < 'b'|coalesce(x, '?')""",
    "NUMBER": """abs(x)|sign(x)|floor(x)|ceil(x)|ceiling(x)|round(x)|round(x, 1)|round(x, -1)|sqrt(x)|ln(x)|log(x)|
        log10(x)|exp(x)|power(x, 2)|pow(x, 0.5)|x ** 2|mod(x, 3)|x % 3|x % -3|x // 2|x / 0|x / 3|concat(x, 'z')|
        least(x, 1)|greatest(x, 1)|nullif(x, 0)|if(x > 0, 'a', 'b')|
        x BETWEEN 0 AND 2|x IN (0, 1)""",
    "MOMENT": "|".join(
        f"{part}(x)|extract({part} FROM x)|date_part('{part}', x)|date_trunc('{part}', x)|"
        f"date_diff('{part}', x, DATE '2000-06-15')|datediff('{part}', DATE '2000-06-15', x)"
        for part in PARTS + DAYS
    )
    + """|dayofmonth(x)|weekday(x)|extract(dow FROM x)|extract(doy FROM x)|x + INTERVAL '1 month'|
        x - INTERVAL '13 months'|x - DATE '2000-01-31'|x = '2024-1-5'|x < '2024-2-29'|
        datepart('day', x)|datetrunc('day', x)|"""
    + "|".join(
        f"time_bucket(INTERVAL '{width}', x{origin})"
        for width in (
            "1 month",
            "5 months",
            "2 years",
            "1 day",
            "3 days",
            "15 minutes",
            "7 hours",
            "1 day 00:00:00.000001",
        )
        for origin in (
            "",
            ", DATE '2024-01-31'",
            ", TIMESTAMP '2024-02-29 10:30'",
            ", INTERVAL '5 hours'",
            ", NULL::DATE",
        )
    )
    + "|time_bucket(INTERVAL '1 month 1 day', x)|time_bucket(INTERVAL '0 days', x)|time_bucket(INTERVAL '-1 day', x)|"
    + "|".join(
        shape.replace("@", f"AT TIME ZONE '{zone}'")
        for zone in ("UTC", "Europe/Berlin", "america/new_york", "Australia/Lord_Howe", "Africa/Monrovia", "Etc/GMT+12")
        for shape in (
            *("CAST(x AS TIMESTAMP) @", "(CAST(x AS TIMESTAMP) AT TIME ZONE 'UTC') @", "CAST(x AS TIMESTAMPTZ) @"),
            *("date_trunc('day', CAST(x AS TIMESTAMP) AT TIME ZONE 'UTC' @)", "CAST(CAST(x AS TIMESTAMPTZ) @ AS DATE)"),
            *("(CAST(x AS TIMESTAMP) @) AT TIME ZONE 'Asia/Tokyo'", "CAST(CAST(x AS TIMESTAMP) @ AS TEXT)"),
            *("date_trunc('hour', CAST(x AS TIMESTAMP) @) AT TIME ZONE 'UTC'", "concat(CAST(x AS TIMESTAMP) @, '!')"),
            *(
                "(CAST(x AS TIMESTAMPTZ) + INTERVAL '1 month') @",
                "time_bucket(INTERVAL '1 day', CAST(x AS TIMESTAMPTZ)) @",
            ),
            *(
                "extract(hour FROM CAST(x AS TIMESTAMPTZ) @)",
                "CAST(x AS TIMESTAMP) @ < x",
                "CAST(x AS TIMESTAMPTZ) = x",
            ),
            *(
                "(CAST(x AS TIMESTAMP) @) - x",
                "coalesce(CAST(x AS TIMESTAMP) @, x) @",
                "date_diff('hour', x, CAST(x AS TIMESTAMP) @)",
            ),
        )
    ),
    "INTERVAL": """x * 2|- x|x + INTERVAL '1 day'|x < INTERVAL '30 days'|x = INTERVAL '30 days'|DATE '2024-01-31' + x|
        x >= INTERVAL '1 month'|"""
    + "|".join(f"extract({part} FROM x)" for part in PARTS if part != "week"),
    "BOOLEAN": "if(x, 1, 2)|x IS TRUE|NOT x|x AND NULL|x OR NULL",
}
FAMILY = dict.fromkeys(NUMBERS, "NUMBER") | {"DATE": "MOMENT", "TIMESTAMP": "MOMENT"}
DIFFERS = re.compile(
    r"\+02|"  # an offset is converted to UTC; DuckDB passes over it
    r"'-?inf'.*(DATE|TIMESTAMP)|"  # a date is in the years 1 to 9999
    r"99999999999.*INTERVAL"  # longer than 292 years
)


def expressions(kind: str) -> Iterator[str]:
    """Every expression over x of a type."""
    yield from (call.strip() for call in CALLS[FAMILY.get(kind, kind)].split("|"))
    yield from ("x || 'z'", "x IS NULL")
    numbers = {*NUMBERS, "DECIMAL(4,1)", "BOOLEAN"}
    for target in (*numbers, "TEXT", "DATE", "TIMESTAMP", "INTERVAL"):
        if "TEXT" in (kind, target) or {kind, target} <= numbers or {kind, target} <= {"DATE", "TIMESTAMP"}:
            yield f"TRY_CAST(x AS {target})"
            if kind != "TEXT":
                yield f"CAST(x AS {target})"


def plain(value: Any) -> Any:
    """A value that equals what means the same: NaN is NaN, the last digits of a DOUBLE may differ."""
    if isinstance(value, float):
        return float(f"{value + 0.0:.13g}") if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return value + 0
    return ("interval", 0, value.days, value.seconds * 10**6) if isinstance(value, dt.timedelta) else value


class Meanings:
    """A database with the values of a type as a table, and expressions over them computed in three ways."""

    def __init__(self, kind: str, values: Sequence[str]) -> None:
        self.db, self.values = whence.open(), values
        self.db.execute(f"CREATE TABLE given (n INT, x {kind})")
        for n, value in enumerate(values):
            self.db.execute(f"INSERT INTO given VALUES ({n}, {value})")

    def of(self, exprs: Sequence[str]) -> dict[tuple[str, str], tuple[Any, ...]]:
        """By expression and value what each way gives; an error is one, whatever it says."""
        ways = (self.column, self.constant, self.adhoc)
        found = [{e: row for way_exprs in [self.computed(way, exprs)] for e, row in way_exprs.items()} for way in ways]
        return {
            (expr, value): tuple(plain(way[expr][n]) for way in found)
            for expr in exprs
            for n, value in enumerate(self.values)
        }

    def computed(self, way: Any, exprs: Sequence[str]) -> dict[str, list[Any]]:
        """All of them at once, or by halves down to the ones that fail, and those value by value."""
        try:
            return dict(zip(exprs, way(exprs, range(len(self.values))), strict=True))
        except whence.WhenceError:
            if len(exprs) > 1:
                middle = len(exprs) // 2
                return self.computed(way, exprs[:middle]) | self.computed(way, exprs[middle:])
        return {exprs[0]: [self.alone(way, exprs, n) for n in range(len(self.values))]}

    @staticmethod
    def alone(way: Any, exprs: Sequence[str], n: int) -> Any:
        try:
            return way(exprs, [n])[0][0]
        except whence.WhenceError:
            return "error"

    def column(self, exprs: Sequence[str], at: Sequence[int]) -> list[list[Any]]:
        names = ", ".join(f"{expr} AS y{i}" for i, expr in enumerate(exprs))
        return self.view(f"SELECT n, {names} FROM given WHERE n BETWEEN {at[0]} AND {at[-1]}")

    def constant(self, exprs: Sequence[str], at: Sequence[int]) -> list[list[Any]]:
        names = [f"{expr} AS y{i}" for i, expr in enumerate(exprs)]
        lines = (", ".join(re.sub(r"\bx\b", f"({self.values[n]})", name) for name in names) for n in at)
        return self.view(" UNION ALL ".join(f"SELECT {n} AS n, {line}" for n, line in zip(at, lines, strict=True)))

    def view(self, query: str) -> list[list[Any]]:
        self.db.execute(f"CREATE OR REPLACE VIEW v AS {query}")
        return list(zip(*sorted(self.db["v"].rows, key=lambda row: row[0]), strict=True))[1:]  # type: ignore[arg-type]

    def adhoc(self, exprs: Sequence[str], at: Sequence[int]) -> list[list[Any]]:
        names = ", ".join(f"{expr} AS y{i}" for i, expr in enumerate(exprs))
        sql = f"SELECT n, {names} FROM given WHERE n BETWEEN {at[0]} AND {at[-1]} ORDER BY n"
        return list(zip(*self.db.query(sql).rows, strict=True))[1:]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", VALUES)
def test_view_constant_and_query_agree(kind: str) -> None:
    meanings = Meanings(kind, VALUES[kind])
    found = meanings.of(list(dict.fromkeys(expressions(kind))))
    different = {key: ways for key, ways in found.items() if len(set(map(repr, ways))) > 1}
    assert {key: ways for key, ways in different.items() if not DIFFERS.search(" ".join(key))} == {}


@pytest.mark.parametrize("target", ["INTEGER", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "INTERVAL", "BOOLEAN"])
def test_text_is_read_alike(target: str) -> None:
    found = Meanings("TEXT", TEXTS_OF_VALUES).of([f"TRY_CAST(x AS {target})"])
    different = {key: ways for key, ways in found.items() if len(set(map(repr, ways))) > 1}
    assert {key: ways for key, ways in different.items() if not DIFFERS.search(" ".join(reversed(key)))} == {}


def test_every_documented_function_is_compared() -> None:
    table = Path("docs/sql.md").read_text().split("## Functions")[1].split("| aggregates |")[0]
    named = {
        name for row in table.splitlines() if row.startswith("|") for name in re.findall(r"`([a-z_0-9]+)[`(]", row)
    }
    tried = {name for kind in VALUES for expr in expressions(kind) for name in re.findall(r"[a-z_0-9]+", expr)}
    assert len(named) > 70
    assert named - tried <= {"iff", "dow", "doy"}  # other names, which DuckDB does not have
