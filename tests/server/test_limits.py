"""Limits of a server."""

from __future__ import annotations

import dataclasses
import math

import pytest

from whence import DataError, LimitError
from whence.server.limits import Limits, RateLimit, read_bytes


def test_defaults() -> None:
    limits = Limits()
    assert (limits.message_bytes, limits.body_bytes, limits.insert_rows) == (1 << 20, 64 << 20, 100_000)
    assert (limits.query_seconds, limits.query_memory_bytes) == (30, 10**9)


def test_every_limit_is_described_and_has_a_meaning() -> None:
    names = [field.name for field in dataclasses.fields(Limits)]
    assert list(Limits().describe()) == names
    assert list(Limits.meanings()) == names
    assert all(Limits.meanings().values())


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "7", None, math.inf])
def test_numbers_that_are_no_limit(wrong: object) -> None:
    with pytest.raises(DataError, match="insert_rows"):
        Limits(insert_rows=wrong)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan, "7", False])
def test_seconds_that_are_no_limit(wrong: object) -> None:
    with pytest.raises(DataError, match="query_seconds"):
        Limits(query_seconds=wrong)  # type: ignore[arg-type]  # that is the point


def test_command_line_gives_limits() -> None:
    given = [
        "insert_rows=1_000",
        "query_seconds = 0.5",
        "message_bytes=2 MiB",
        "query_memory=512 MB",
        "insert_rows=2,000",
    ]
    limits = Limits.read(given)
    assert (limits.insert_rows, limits.query_seconds, limits.message_bytes) == (2_000, 0.5, 2 << 20)
    assert limits.query_memory == "512 MB"
    assert Limits.read([]) == Limits()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("insert_row=5", 'did you mean "insert_rows"'),
        ("insert_rows", "name=value"),
        ("zzz=1", "there are message_bytes"),
        ("insert_rows=many", "insert_rows"),
        ("insert_rows=-5", "insert_rows"),
        ("query_memory=5 lumps", "query_memory"),
        ("message_bytes=0", "message_bytes"),
        ("query_seconds=", "query_seconds"),
    ],
)
def test_wrong_text_is_an_error_that_names_the_limit(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Limits.read([text])


def test_check_names_the_limit() -> None:
    limits = Limits(insert_rows=2)
    limits.check("insert_rows", 2)
    with pytest.raises(LimitError, match=r"^3: at most 2 are allowed \(limit insert_rows\)$"):
        limits.check("insert_rows", 3)


def test_bytes_with_units() -> None:
    assert [read_bytes(text) for text in ("1", "1 kB", "1.5 KiB", "2MB", "1 TiB")] == [
        1,
        1000,
        1536,
        2_000_000,
        1 << 40,
    ]
    for wrong in ("", "MB", "1 XB", "-1 MB", None, 5):
        with pytest.raises(DataError):
            read_bytes(wrong)


def test_rate_limit_refills_with_time() -> None:
    now = 100.0
    limit = RateLimit(10, clock=lambda: now)
    assert [limit.allows() for _ in range(11)] == [True] * 10 + [False]
    assert limit.wait == pytest.approx(0.1)
    now += 0.11
    assert limit.allows()
    assert not limit.allows()
    now += 1000
    assert sum(limit.allows() for _ in range(100)) == 10
    now -= 500  # a clock that goes back gives nothing, and takes nothing
    assert not limit.allows()
    now += 0.2
    assert limit.allows(2)
    assert not limit.allows()


def test_rate_limit_has_a_burst() -> None:
    now = 0.0
    limit = RateLimit(1, burst=3, clock=lambda: now)
    assert [limit.allows() for _ in range(4)] == [True, True, True, False]
    for rate, burst in ((0, None), (-1, None), (math.inf, None), (1, 0.5)):
        with pytest.raises(DataError):
            RateLimit(rate, burst)
