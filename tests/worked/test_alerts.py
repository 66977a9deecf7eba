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
    assert "epoch 1: ada, the best price for 10 to 50 is" in out
    assert "epoch 1: a broker that knows ada's range tells her" in out
    assert "102 subscriptions were told" in out
    assert "bob, over the network: (1000, 0, 99), since there is alert 102 and offer 1000" in out
    assert "traded: 0 subscriptions, match subscriptions with rows of a stream by 1 range" in out
