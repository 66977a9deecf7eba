"""Two exchanges and a broker (examples/market.py): what is shown of trades by ten seconds holds in the end."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import whence

EXAMPLE = Path(__file__).parents[2] / "examples" / "market.py"


def test_what_the_market_shows_holds(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("market", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    market: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(market)
    shown: list[tuple[Any, dict[str, tuple[Any, Any]]]] = []
    last: dict[Any, tuple[Any, ...]] = {}

    def note(update: whence.Update) -> None:
        show(update)
        for row in update.came:
            shown.append((row[:2], dict(update.row(row[:2]).bounds)))
            last[row[:2]] = row

    show = market.printing()
    market.main(4.0, note)
    assert "trades ≥" in capsys.readouterr().out
    for key, bounds in shown:
        for name, value in zip(("trades", "shares", "low", "high"), last[key][2:], strict=True):
            low, high = bounds[name]
            assert low is None or low <= value, (key, name, bounds, last[key])
            assert high is None or value <= high, (key, name, bounds, last[key])
