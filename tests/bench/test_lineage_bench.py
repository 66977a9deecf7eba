"""The benchmarks of windows and lineage run, and notice modes and peers that differ; figures need a quiet machine."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import lineage_figures, lineage_paper, page, window_peers, window_spark
from benchmarks.lineage_figures import PAPER, RETRIEVAL, Sizes
from benchmarks.lineage_networks import (
    ADAPTIVE,
    COVERING,
    MODES,
    NONE,
    REWRITE,
    REWRITTEN,
    SINGLE,
    heat,
    nested,
    numbers,
    overheating,
)
from benchmarks.lineage_runs import (
    DisagreementError,
    Figure,
    Spent,
    agree,
    batches,
    by_turns,
    completion,
    opened,
    results,
    retrieve,
    rewritten,
)
from benchmarks.peers import windows
from benchmarks.peers.common import installed
from benchmarks.peers.windows import Windows
from tests.depth import deep_only, some

TINY = Sizes(
    rows=1_200,
    rounds=1,
    retrievals=1,
    windows=(10,),
    depths=(2,),
    large=(50,),
    slides=(5,),
    percents=(100,),
    loads=(10,),
    pace=0.001,
    paced=3,
    fronts=(3,),
    many=12_000,
    rates=(10.0, 100.0),
    many_rounds=1,
)


def quiet(text: str) -> None:
    pass


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_basic_network_of_a_mode(mode: Any) -> None:
    rows = numbers(1_000)
    with opened(nested(10), mode) as db:
        assert completion(db, batches(rows, 300)).seconds > 0
        passed = [i for i, pick in enumerate(rows["pick"].to_pylist()) if pick < 25]
        assert results(db) == (len(passed) - 9, sum(passed[: len(passed) - 9]))
        if mode.traced:
            _, found = retrieve(db)
            assert found.pairs == 10 * (len(passed) - 9)
            _, some = retrieve(db, lineage_figures.some(10))
            assert some.pairs == 10 * ((len(passed) - 9) // 10)


def test_the_overheating_network_raises_alarms() -> None:
    with opened(overheating(3), ADAPTIVE) as db:
        completion(db, batches(heat(2_000), 500))
        assert 0 < results(db)[0] < 1_000
        assert not list(db.late("result"))


@pytest.mark.parametrize("number", some(list(lineage_figures.FIGURES), 2))
def test_every_figure_runs(number: int) -> None:
    figures = lineage_figures.RUNS[number](TINY, quiet)
    assert [figure.number.rstrip("abct") for figure in figures] == [str(number)] * len(figures)
    for figure in figures:
        assert {mode.name for mode in MODES} <= {curve.name for curve in figure.curves}
        assert all(sample > 0 for curve in figure.curves for point in curve.points for sample in point.samples)


@deep_only
def test_the_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_paper, "QUICK", TINY)
    document = tmp_path / "figures.json"
    arguments = ["--quick", "--figure", "12,17", "--json", str(document), "--plot", str(tmp_path)]
    assert lineage_paper.main(arguments) == 0
    found = json.loads(document.read_text())
    assert [figure["number"] for figure in found["figures"]] == ["12", "17", "17c"]
    assert found["checks"] == []
    assert "| 10 | covering |" in page.modes(found["figures"][0])
    assert (tmp_path / "figure_17.png").exists() == installed("matplotlib")


def figure(number: str, x: float, **seconds: list[float]) -> Figure:
    made = Figure(number, "", "")
    names = {"none": NONE.name, "ids": SINGLE.name, "adaptive": ADAPTIVE.name, "covering": COVERING.name}
    for key, samples in seconds.items():
        for sample in samples:
            made.note(names[key], x, Spent(sample, 2 * sample))
    return made


def test_a_ratio_is_of_the_best_and_of_the_rounds() -> None:
    made = figure("13", 4, none=[2.0, 1.0, 4.0], covering=[2.0, 1.2, 6.0])
    assert made.ratio(COVERING.name, 4) == (1.2, 1.2, 1.2)
    made = figure("13", 4, none=[2.0, 1.0, 4.0], covering=[3.0, 2.5, 4.0])
    made.curve(COVERING.name).at(4).cpu = [4.0]
    assert made.ratio(COVERING.name, 4) == (2.5, 1.5, 2.0)


def test_who_is_too_slow_is_left_out_of_what_is_heavier() -> None:
    made = figure("16", 50, none=[1.0], adaptive=[1.0, 4.0], covering=[3.0])  # CPU is twice that
    assert made.quick([NONE, ADAPTIVE, COVERING], 50, 2.5) == [NONE, ADAPTIVE]
    assert made.notes == ["covering is left out above 50: it took 6.0 s of CPU there"]


def test_what_was_promised_is_judged() -> None:
    four = figure("13", 4, none=[1.0], covering=[1.1])
    hundred = figure("12", 100, none=[1.0], adaptive=[1.6])
    share = figure("17", 10, none=[1.0], ids=[4.0], adaptive=[2.0], covering=[2.4])
    for name, seconds in ((NONE, 1.0), (SINGLE, 3.0), (ADAPTIVE, 1.9), (COVERING, 1.2)):
        share.note(name.name, 1, Spent(seconds, seconds))
        share.note(name.name, 100, Spent(50.0 if name is COVERING else 5.0, 1.0))  # beyond what is promised
    checks = lineage_paper.promises([four, hundred, share])
    assert [(round(c.measured, 2), c.kept) for c in checks] == [
        (1.1, True),
        (1.1, True),
        (1.6, False),
        (1.6, False),
        (1.2, False),
        (1.2, False),
        (0.6, True),
        (0.6, True),
    ]
    assert "at 10 %" in checks[4].what


def test_rewriting_has_the_pairs_of_lineage() -> None:
    network, rows = nested(3, depth=2), batches(numbers(200), 50)
    with closing(opened(network, REWRITE)) as db:
        completion(db, rows)
        _, pairs = rewritten(db)
        assert len(db[REWRITTEN]) > pairs.pairs  # an input is behind a result in several ways
    with closing(opened(network, SINGLE)) as db:
        completion(db, rows)
        assert retrieve(db)[1] == pairs


def test_two_streams_come_by_turns() -> None:
    (first, *_) = by_turns(heat(40), ("a", "b"), 5, 20)
    assert [(stream, rows["time"][0].as_py(), len(rows)) for stream, rows in first] == [
        ("a", 0, 5),
        ("b", 0, 5),
        ("a", 5, 5),
        ("b", 5, 5),
    ]


def test_modes_that_differ_are_noticed() -> None:
    agree("x", {"a": 1, "b": 1})
    with pytest.raises(DisagreementError, match="x: a has 1, b has 2"):
        agree("x", {"a": 1, "b": 2})


def test_what_the_paper_says_is_of_curves_that_are_drawn() -> None:
    curves = {before + mode.name for mode in (*MODES, REWRITE) for before in ("", RETRIEVAL)}
    assert all(set(said) <= curves for said in PAPER.values())


def test_windows_by_running_sums() -> None:
    data = windows.rows(25)
    values = data["value"].to_pylist()
    found = windows.expected(data, Windows(10, 5))
    assert found["start"].to_pylist() == [0, 5, 10, 15]
    assert found["mean"].to_pylist() == [sum(values[s : s + 10]) / 10 for s in (0, 5, 10, 15)]
    assert windows.expected(windows.rows(9), Windows(10, 5)).num_rows == 0


@pytest.mark.parametrize("peer", ["whence", "polars", "polars_rolling", "duckdb"])
def test_a_peer_has_the_windows(peer: str) -> None:
    data, few = windows.rows(250), Windows(10, 5)
    more = (100,) if peer == "whence" else ()
    if peer != "whence" and not installed(peer.partition("_")[0]):
        pytest.skip("not installed")
    _, found = getattr(windows, peer)(data, few, *more)
    windows.agree(peer, found, windows.expected(data, few))
    with pytest.raises(windows.DisagreementError, match=peer):
        windows.agree(peer, found, windows.expected(windows.rows(250, seed=1), few))


@deep_only
@pytest.mark.parametrize("what", [window_spark.ROWS, window_spark.SECONDS])
def test_windows_on_spark(spark: Any, tmp_path: Path, what: str) -> None:
    data = windows.rows(500)
    window_spark.write_files(tmp_path / "rows", data, 2)
    assert window_spark.run_whence(spark, tmp_path / "rows", what, Windows(), 2, data) > 0


@deep_only
def test_memory_is_followed(tmp_path: Path) -> None:
    seen, checks = window_peers.memory(20_000, 1_000, Console(quiet=True))
    assert [len(line) for line in seen.values()] == [20] * 3
    assert [check.wanted for check in checks] == [1.1] * 3
    if installed("matplotlib"):
        window_peers.plot_memory(tmp_path / "memory.png", seen)
