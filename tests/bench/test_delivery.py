"""The benchmark of delivery runs over real servers in a row, and what clients end with must be right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import delivery
from benchmarks.delivery_curiosity import FORWARDED, curiosity
from benchmarks.delivery_flow import flow, kill, latency, steady
from benchmarks.delivery_gaps import gaps, memory_with_gaps, opened, receive
from benchmarks.delivery_run import PEERS, QUICK, Run, Section, Sizes
from benchmarks.peers.nats_peer import CORE, JETSTREAM
from benchmarks.report import WHENCE
from tests.depth import deep_only

TINY = replace(
    QUICK,
    views=4,
    flow_events=1_000,
    flow_batch=100,
    steady_seconds=1.0,
    latency_seconds=1.0,
    flight_changes=400,
    quotes=400,
    offer_changes=400,
    margins=(2,),
    quench_delays=(0.001,),
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """A run of some peers; the test is skipped if one of them is not here."""

    def make(*peers: str) -> Run:
        for name in peers:
            if reason := PEERS[name].missing():
                pytest.skip(reason)
        return Run(TINY, Console(quiet=True), tmp_path, peers)

    return make


def peers_of(section: Section) -> list[set[str]]:
    """Return which peers each figure has; every sample is a number of something."""
    assert all(np.isfinite(value) for figure in section.figures for s in figure.samples.values() for value in s)
    return [set(figure.samples) for figure in section.figures]


@deep_only
def test_events_reach_clients_over_three_brokers(run: Callable[..., Run]) -> None:
    here = run(WHENCE)
    assert peers_of(flow(here)) == [{WHENCE}]
    p50, p99 = latency(here).figures
    assert 0 < p50.of(WHENCE) <= p99.of(WHENCE)


@deep_only
def test_a_killed_broker_in_the_middle_is_gone_on_from(run: Callable[..., Run]) -> None:
    section = kill(run(WHENCE))
    assert len(section.figures) == 2
    assert len(section.checks) == 1


def test_rows_of_nats_servers_are_measured_the_same_way(run: Callable[..., Run]) -> None:
    here = run(CORE, JETSTREAM)
    assert peers_of(flow(here)) == [{CORE, JETSTREAM}]
    assert peers_of(steady(here)) == [{CORE}] * 3


def test_curiosity_saves_messages_and_bytes(run: Callable[..., Run]) -> None:
    section = curiosity(run())
    for figure in section.figures:
        if figure.unit in ("messages", "bytes"):
            assert figure.of(WHENCE) < figure.of(FORWARDED), figure.what
    assert [curve.name for curve in section.curves] == ["flights", "buy list", "best 3"]


def test_memory_of_a_source_grows_with_gaps_not_with_events(run: Callable[..., Run]) -> None:
    section = gaps(run())
    assert [check.what for check in section.checks][1] == "bytes a gap"
    assert section.checks[1].kept
    few, many = opened(), opened()
    receive(few, 0, 1_000)
    receive(many, 0, 10_000)
    assert (len(few.reflected), len(many.reflected)) == (1, 1)
    assert memory_with_gaps(1_000) > 10 * memory_with_gaps(0)


def test_quick_run_prints_draws_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert delivery.main(["--quick", "--only", "gaps", "--json", "found.json", "--plot", "found.png"]) == 0
    saved = json.loads((tmp_path / "found.json").read_text())
    assert saved["settings"]["only"] == ["gaps"]
    assert {curve["panel"] for curve in saved["curves"]} == {"work a message", "memory"}


def test_command_line_names_what_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        delivery.parse(["--only", "flow,nothing"])
    assert "'nothing' is not one of flow, steady" in capsys.readouterr().err
    assert delivery.parse(["--quick", "--peers", CORE]).peers == [CORE]


def test_scaled_sizes_keep_rates_and_margins() -> None:
    small = Sizes().scaled(0.1)
    assert (small.flow_events, small.latency_seconds, small.gap_events[-1]) == (30_000, 1.0, 1_000_000)
    assert (small.latency_rate, small.views, small.margins) == (2_000, 100, (0, 2, 5, 10))
