"""`whence demo pipeline`, in short, from beginning to end."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import whence
from whence.cli import app
from whence.cli.demo.topology import DOMAINS, cable_changes, costs, network


def test_the_pipeline_is_right_after_its_restart(spark: Any, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = CliRunner().invoke(app, ["demo", "pipeline", "--quick", "--keep", str(kept)])
    assert result.exit_code == 0, result.output
    assert "The bridge north.t2 - east.t1 is cut" in result.output
    assert "north → south: 10,000 pairs before, 0 now" in result.output
    assert "Opened again at epoch" in result.output
    assert result.output.count("  yes  ") == 7
    assert "NO" not in result.output.partition("Is all of it right?")[2]
    assert "supersteps as jobs" in result.output
    assert "supersteps inline" in result.output
    assert not spark.sparkContext._jsc.sc().isStopped()  # it was not begun by the demo
    assert whence.check(kept / "network.db").ok
    again = CliRunner().invoke(app, ["demo", "pipeline", "--keep", str(kept)])
    assert again.exit_code == 1
    assert "has the database of a demo already" in again.output


def test_a_network_is_the_same_every_time_and_hangs_together() -> None:
    net = network()
    assert net == network()
    assert {domain for _, domain in net.nodes} == set(DOMAINS)
    cables = [cable for some in net.inside.values() for cable in some]
    assert len({frozenset(cable[:2]) for cable in cables}) == len(cables)
    inside = costs([link for cable in cables for link in cable.links()])
    assert len(inside) == 3 * 100**2
    whole = costs([link for cable in [*cables, *net.bridges] for link in cable.links()])
    assert len(whole) == 300**2


def test_the_weather_cuts_what_is_there_and_repairs_what_is_not() -> None:
    net = network()
    there = {cable for some in net.inside.values() for cable in some}
    for changes in islice(cable_changes(net), 200):
        for op, cable in changes:
            assert (cable in there) == (op == "-")
            there ^= {cable}
