"""The benchmarks of provenance run, and notice schemes that differ. Their figures are for a quiet machine to judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import explain, explain_networks, provenance_figures, provenance_paper, provenance_runs, topologies
from benchmarks.peers.common import Digest, installed
from benchmarks.provenance_figures import Curve, Figure, Sizes, averaged, insertions, longest, summed
from benchmarks.provenance_runs import Job, Reading, Step, agree, follow
from benchmarks.provenance_schemes import DRED, EACH, LAZY, MULTI, REACHABLE, REGION, SCHEMES, SUPPORT, cost_only
from benchmarks.transit_stub import Link, Network, grown
from tests.depth import deep_only

RING = Network(4, tuple(Link(a, (a + 1) % 4, 1 + a) for a in range(4)))
TWO = 'graph [ label "x" node [ id 0 label "A" ] node [ id 7 label "B" ] edge [ source 0 target 7 ] '
TINY = Sizes(
    partitions=3, limit=60.0, transit=1, deletions=4, single=2, fractions=(0.5, 1.0), links=(100,), counts=(1, 3)
)


def steps(net: Network) -> tuple[Step, ...]:
    (load,) = insertions(net, len(net.links))
    return Step(1.0, (load,)), Step(2.0, ((-1, "link", (tuple(net.links[0]),)),))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_keeps_the_same_rows(scheme: str) -> None:
    loaded, deleted = follow(Job(scheme, REACHABLE, 3, steps(RING)))
    assert (loaded.digest.rows, deleted.digest.rows) == (16, 6)
    assert min(loaded.seconds, loaded.rows, loaded.messages, loaded.shipped, deleted.state) > 0
    assert (deleted.provenance > 0) == (scheme != DRED)


def test_the_three_ways_to_select_have_the_same_paths() -> None:
    programs = (MULTI, EACH, cost_only(longest(RING)))
    found = {program.name: list(follow(Job(DRED, program, 2, steps(RING)))) for program in programs}
    agree("selection", found)
    assert [r.digest.rows for r in found["multi"]] == [16, 6]


def test_the_longest_shortest_path() -> None:
    assert longest(RING) == 4
    assert longest(Network(3, (Link(0, 1, 1), Link(1, 2, 1), Link(0, 2, 1)))) == 1


def test_networks_grow_by_transit_nodes() -> None:
    for density, per in (("dense", 100), ("sparse", 50)):
        for transit in (1, 2, 8):
            net = grown(transit, density)
            assert (len(net.links), net.nodes) == (per * transit, 25 * transit)
            assert len({link[:2] for link in net.links}) == len(net.links)


def test_schemes_that_differ_are_noticed() -> None:
    one, other = Reading(1.0, digest=Digest(1, 2, 3)), Reading(1.0, digest=Digest(1, 2, 4))
    agree("x", {"a": [one], "b": [one], "c": [Reading(1.0, missing="did not finish in 5 s")]})
    with pytest.raises(provenance_runs.DisagreementError, match="x at 1: a has"):
        agree("x", {"a": [one], "b": [other]})


def test_a_step_that_takes_too_long_did_not_finish() -> None:
    whole = steps(RING)
    found = provenance_runs.run(Job(DRED, REACHABLE, 2, whole), 60.0)
    assert [r.digest.rows for r in found] == [16, 6]
    found = provenance_runs.run(Job(DRED, REACHABLE, 2, whole), 0.0)
    assert {r.missing for r in found} == {"did not finish in 0 s"}
    found = provenance_runs.run(Job(DRED, REACHABLE, 2, whole, more=(("policy", "no"),)), 60.0)
    assert [r.missing.partition(" ")[0] for r in found] == ["refused:"] * 2


def test_sums_and_means() -> None:
    a, b = Reading(1.0, seconds=2.0, rows=4, shipped=8, state=5, epochs=2), Reading(2.0, seconds=1.0, rows=2, state=7)
    assert [(r.seconds, r.rows, r.shipped, r.state) for r in summed([a, b])] == [(2.0, 4, 8, 5), (3.0, 6, 8, 7)]
    assert [(r.seconds, r.rows, r.shipped, r.state) for r in averaged([a, b])] == [(1.0, 2, 4, 5), (1.0, 2, 0, 7)]


@deep_only
def test_the_regions_of_a_small_grid() -> None:
    sizes = replace(TINY, schemes=(DRED, SUPPORT))
    inserted, deleted = provenance_figures.regions(sizes, lambda text: None, away=25)
    assert [curve.name for curve in inserted.curves] == [DRED, SUPPORT]
    assert all(r.seconds > 0 and not r.missing for c in (*inserted.curves, *deleted.curves) for r in c.readings)
    assert REGION.view == "activeregion"


def test_the_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance_paper, "QUICK", TINY)
    document = tmp_path / "figures.json"
    arguments = ["--quick", "--figure", "11", "--updates", "0", "--schemes", f"{DRED},{LAZY}"]
    assert provenance_paper.main([*arguments, "--json", str(document), "--plot", str(tmp_path)]) == 0
    found = json.loads(document.read_text())
    assert [figure["number"] for figure in found["figures"]] == ["10", "11"]
    assert [(c["name"], len(c["readings"])) for c in found["figures"][1]["curves"]] == [(DRED, 2), (LAZY, 2)]
    assert found["checks"] == []
    assert (tmp_path / "figure_11.png").exists() == installed("matplotlib")


def test_deletions_are_judged_by_all_they_ship_and_take() -> None:
    figure = Figure("11", "one deletion", "links deleted", 12)
    many = [Reading(x, seconds=2.0, rows=500, shipped=100, messages=30) for x in (1.0, 2.0)]
    few = [Reading(x, seconds=1.0, rows=10, shipped=20, messages=3) for x in (1.0, 2.0)]
    figure.curves = [Curve(DRED, many), Curve(LAZY, few)]
    checks = provenance_paper.promises([figure])
    assert [(check.measured, check.kept) for check in checks] == [(5.0, False), (50.0, True), (10.0, True), (2.0, True)]


def test_eager_that_did_not_finish_took_at_least_its_limit() -> None:
    figure = Figure("13d", "growing networks, dense", "links", 12)
    figure.curves = [
        Curve(LAZY, [Reading(800.0, seconds=2.0)]),
        Curve("absorption eager", [Reading(800.0, missing="did not finish in 60 s")]),
    ]
    (check,) = provenance_paper.promises([figure])
    assert (check.measured, check.kept) == (30.0, True)


def test_topologies_are_read() -> None:
    found = topologies.parse("two", TWO + 'edge [ source 7 target 0 LinkLabel "a [b]" ] edge [ source 7 target 7 ] ]')
    assert found.places == {0: "A", 7: "B"}
    assert found.cables == (topologies.Cable(0, 0, 7), topologies.Cable(1, 7, 0))


def test_questions_are_timed() -> None:
    asked = explain.Questions(100)
    try:
        asked.update(1)
        asked.why(1)
        asked.rank(1)
        asked.suppose(1)
        asked.ask(1)
    finally:
        asked.close()
    assert all(time > 0 for times in asked.times.values() for time in times)
    assert [check.wanted for check in explain.promises(asked.times, 100)] == [20.0, 20.0, 3000.0]


def test_reliability_of_two_cables(tmp_path: Path) -> None:
    (tmp_path / "two.gml").write_text(TWO + "edge [ source 7 target 0 ] ]")
    found = explain_networks.measure(tmp_path, "two", 5, 0.9)
    assert (found.places, found.cables, len(found.exact)) == (2, 2, 1)
    assert found.least == found.most == pytest.approx(0.99)
    explain_networks.show([found], Console(quiet=True))
