"""A market with alerts (examples/alerts.py): everybody is told what concerns them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "alerts.py"


def test_alerts_tell_what_concerns_each_user(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("alerts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    alerts: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alerts)
    alerts.main(100, 8)
    out = capsys.readouterr().out
    assert "epoch 1: the best price for 10 to 50 is" in out
    assert "100 users were told" in out
    assert "ada, offer" in out
    assert "in groups" in out
