"""docs/serving.md names every limit, with its default, and every address of a server."""

from __future__ import annotations

import re
from pathlib import Path

from whence.server.limits import Limits
from whence.server.web.endpoints import ENDPOINTS
from whence.server.web.openapi import openapi

PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")


def shown(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 1024:g} KiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def test_the_table_of_limits_is_that_of_the_code() -> None:
    meanings = Limits.meanings()
    expected = [(name, shown(name, value), meanings[name]) for name, value in Limits().describe().items()]
    assert re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)[-len(expected) :] == expected


def test_every_address_is_described() -> None:
    described = openapi("0")["paths"]
    assert {endpoint.path for endpoint in ENDPOINTS} <= set(described)
