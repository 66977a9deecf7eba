"""Writes the figures of `results/*.json` into docs: `python -m benchmarks.page`.

The pages keep their prose; what stands between `<!-- NAME -->` and `<!-- end -->` is made anew, as there are runs. A
run may be in parts, `results/delivery.json` and `results/delivery-*.json`: of a figure that is in several, the last
counts.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.subscriptions_figures import PAPER as PRINTED

PAGE = Path("docs/benchmarks.md")
PAPER = Path("docs/papers/000.md")
STREAMS = Path("docs/papers/001.md")
STANDING = Path("docs/papers/002.md")
EVENTUAL = Path("docs/papers/004.md")
RESULTS = Path("results")
ENGINE = ("recursive_peers", "limits", "join_peers", "durable")  # whose promises stand together
RUNS = (
    *ENGINE,
    "small_epochs",
    "lookups",
    "delivery",
    "subscriptions_scale",
    "subscriptions_routing",
    "spark_pipeline",
    "spark_scale",
    "provenance_paper",
    "explain",
    "lineage_paper",
    "window_peers",
    "tpch",
    "nexmark",
    "subscriptions_messages",
    "subscriptions_joins",
)
LEAN = ("SciPy, matrix alone", "SciPy, matrix and difference")


def read_run(folder: Path, name: str) -> dict[str, Any]:
    """Return a run, with what its parts have measured since; nothing if there is none."""
    paths = [folder / f"{name}.json", *folder.glob(f"{name}-*.json")]
    whole: dict[str, Any] = {}
    for part in sorted((json.loads(path.read_text()) for path in paths if path.exists()), key=lambda run: run["at"]):
        for key, value in part.items():
            if key in ("figures", "checks") and key in whole:
                known = {(one["what"], one.get("unit")): one for one in whole[key]}
                value = list((known | {(one["what"], one.get("unit")): one for one in value}).values())
            if key == "settings" and "only" in value:
                before = whole.get(key, {}).get("only", [])
                value = value | {"only": [*before, *(one for one in value["only"] if one not in before)]}
            whole[key] = value
    return whole


def main() -> None:
    """Fill the pages from the last runs."""
    runs = {name: run for name in RUNS if (run := read_run(RESULTS, name))}
    made, paper, streams = {}, {}, {}
    if "recursive_peers" in runs:
        series = runs["recursive_peers"]["series"]
        made["recursive"] = recursive([s for s in series if s["peer"] not in LEAN])
        made["lean"] = recursive([s for s in series if s["peer"] in ("Whence", *LEAN)], "reachable (linear)")
    if "join_peers" in runs:
        made["join"] = joins(runs["join_peers"]["series"])
    if "durable" in runs:
        made["durable"] = figures(runs["durable"]["figures"])
    if "small_epochs" in runs:
        run = runs["small_epochs"]
        made |= {"small epochs": figures(run["figures"]), "small epochs promises": promises(run["checks"])}
    if "lookups" in runs:
        run = runs["lookups"]
        made |= {"lookups": figures(run["figures"]), "lookups promises": promises(run["checks"])}
    if "delivery" in runs:
        run = runs["delivery"]
        made |= {"delivery": figures(run["figures"]), "delivery promises": promises(run["checks"])}
        fill(EVENTUAL, {"curiosity": saved(run["figures"])} if "curiosity" in run["settings"]["only"] else {})
    if "subscriptions_scale" in runs:
        run = runs["subscriptions_scale"]
        made |= {"subscriptions": figures(run["figures"]), "subscriptions promises": promises(run["checks"])}
    if "subscriptions_routing" in runs:
        run = runs["subscriptions_routing"]
        made |= {
            "interval histograms": histogram_errors(run["histogram"]),
            "plan costs": plan_costs(run["coefficients"]),
        }
        made |= {"routing": routing(run["routing"]), "routing promises": promises(run["checks"])}
    if "spark_pipeline" in runs:
        run = runs["spark_pipeline"]
        made |= {"spark": figures(run["figures"]), "scale": scale(run["scale"])}
        made["spark promises"] = promises(run["checks"])
    if "spark_scale" in runs:
        run = runs["spark_scale"]
        made |= {"spark scale": figures(run["figures"]), "executors": executors(run["predictions"])}
        made["spark scale promises"] = promises(run["checks"])
    if "provenance_paper" in runs:
        run = runs["provenance_paper"]
        made["paper promises"] = paper["promises"] = promises(run["checks"])
        paper |= {f"figure {f['number']}": schemes(f) for f in run["figures"]}
        if run["series"]:
            paper["pathway"] = recursive(run["series"])
    if "explain" in runs:
        run = runs["explain"]
        made |= {"explain": figures(run["figures"]), "networks": networks(run["networks"])}
        made["explain promises"] = promises(run["checks"])
    if "lineage_paper" in runs:
        run = runs["lineage_paper"]
        made["lineage promises"] = streams["promises"] = promises(run["checks"])
        for number in dict.fromkeys(f["number"][:2] for f in run["figures"]):  # 14 is three figures, 15 two
            parts = [f"**{f['title']}**\n\n{modes(f)}" for f in run["figures"] if f["number"][:2] == number]
            streams[f"figure {number}"] = "\n\n".join(parts)
    if "window_peers" in runs:
        run = runs["window_peers"]
        made |= {"windows": figures(run["figures"]), "windows promises": promises(run["checks"])}
    for name in ("tpch", "nexmark"):
        if name in runs:
            made[name] = maintained(runs[name]["queries"])
    if all(name in runs for name in ENGINE):
        made["promises"] = promises([c for name in ENGINE for c in runs[name]["checks"]])
    fill(PAGE, made)
    fill(PAPER, paper)
    fill(STREAMS, streams)
    if "subscriptions_joins" in runs:
        run = runs["subscriptions_joins"]
        panels = [f"**{_numbered(panel)}**\n\n{lines_across(panel)}" for panel in run["panels"]]
        fill(STANDING, {"joins panels": "\n\n".join(panels), "joins promises": promises(run["checks"])})
    if "subscriptions_messages" in runs:
        run = runs["subscriptions_messages"]
        made = {"messages": message_rates(run["rates"]), "messages promises": promises(run["checks"])}
        fill(PAGE, made)
        panels = [f"**{_numbered(panel)}**\n\n{lines_across(panel)}" for panel in run["panels"]]
        fill(STANDING, {"messages panels": "\n\n".join(panels), "messages trace": ways(run["trace"]["ways"])})


def fill(page: Path, made: dict[str, str]) -> None:
    """Put tables into their places."""
    if not made:
        return
    text = page.read_text()
    for name, table in made.items():
        start = text.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
        end = text.index("<!-- end -->", start)
        text = f"{text[:start]}{table}\n{text[end:]}"
    page.write_text(text)


def message_rates(rates: list[dict[str, Any]]) -> str:
    """A row a template and its subscriptions."""
    out = ["| told as | stocks | subscriptions | updates per second | told per update |", "|---|---|---|---|---|"]
    for r in rates:
        known = f"{r['subscriptions']:,}" if r["subscriptions"] else "any"
        out.append(f"| {r['kind']} | {r['stocks']:,} | {known} | {1 / r['seconds']:,.0f} | {_number(r['told'])} |")
    return "\n".join(out)


def _numbered(panel: dict[str, Any]) -> str:
    kind = "Table" if panel["number"] in PRINTED else "Figure"
    return f"{kind} {panel['number']}: {panel['title']}"


def lines_across(panel: dict[str, Any]) -> str:
    """A row a line of a panel; what the paper prints of it below."""
    share = panel["across"].startswith("share")
    heads = [f"{at:.0%}" if share else f"{at:,.0f}" for at in panel["at"]]
    out = [f"| {panel['across']} | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    printed = {f"{name}, the paper": values for name, values in PRINTED.get(panel["number"], {}).items()}
    for name, values in (panel["lines"] | printed).items():
        out.append(f"| {name} | " + " | ".join(_number(value) for value in values) + " |")
    return "\n".join(out)


def ways(found: dict[str, dict[str, float]]) -> str:
    """A row a way to tell updates."""
    out = ["| way | bytes per update | bytes times physical hops | greatest node stress |", "|---|---|---|---|"]
    for name, one in found.items():
        out.append(f"| {name} | {one['bytes']:,.0f} | {one['hop bytes']:,.0f} | {one['stress']:,} |")
    return "\n".join(out)


def schemes(figure: dict[str, Any]) -> str:
    """A row an x and a scheme: the four metrics of paper 000; bytes of a partition, rows and messages of all."""
    head = [figure["x"] or "–", "scheme", "provenance, B per row", "communication, KB per partition", "rows shipped"]
    head += ["messages", "state, KB per partition", "convergence, s"]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for place in range(len(figure["curves"][0]["readings"])):
        for curve in figure["curves"]:
            r = curve["readings"][place]
            cells = [f"{r['x']:g}", curve["name"]]
            if r["missing"]:
                cells += ["–"] * 5 + [r["missing"]]
            else:
                n = figure["partitions"] or r["x"]
                cells += [_number(r["provenance"]), _number(r["shipped"] / n / 1e3), f"{r['rows']:,}"]
                cells += [f"{r['messages']:,}", _number(r["state"] / n / 1e3), _seconds(r)]
            out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def _seconds(reading: dict[str, Any]) -> str:
    within = reading.get("within", 0.0)
    return f"{reading['seconds']:.3g}" + (f" ± {within:.2g}" if within else "")


def modes(figure: dict[str, Any]) -> str:
    """A row an x and a mode: seconds, and how many times no provenance, beside what paper 001 says of it."""
    head = [figure["x"], "mode", "ms, best", "ms, median", "× none, best", "median", "CPU", "the paper"]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in figure["lines"]:
        said = "" if line["paper"] is None else _number(line["paper"])
        cells = [f"{line['x']:g}", line["curve"], _number(1e3 * line["seconds"]), _number(1e3 * line["median"])]
        cells += [*(_number(line[key]) for key in ("times", "times_median", "times_cpu")), said]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out + [f"\n{note}." for note in figure["notes"]])


def networks(found: list[dict[str, Any]]) -> str:
    """A row a network."""
    head = ("network", "places", "cables", "pairs, exact", "ms median", "ms most", "pairs, sampled", "ms median")
    out = ["| " + " | ".join(head) + " | probabilities |", "|---" * (len(head) + 1) + "|"]
    for n in found:
        exact, sampled = ([1e3 * s for s in n[kind]] for kind in ("exact", "sampled"))
        times = [_number(statistics.median(exact)), _number(max(exact))] if exact else ["–", "–"]
        cells = [n["name"], str(n["places"]), str(n["cables"]), str(len(exact)), *times, str(len(sampled))]
        cells += [_number(statistics.median(sampled)) if sampled else "–", f"{n['least']:.4f} to {n['most']:.6f}"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def recursive(series: list[dict[str, Any]], only: str | None = None) -> str:
    """One table a program: a row a peer, a column a size."""
    parts = []
    for workload in dict.fromkeys(s["workload"] for s in series):
        if only is not None and workload != only:
            continue
        mine = [s for s in series if s["workload"] == workload]
        sizes = sorted({s["size"] for s in mine})
        lines = [
            f"**{workload}**",
            "",
            "| peer | " + " | ".join(f"{n:,} nodes" for n in sizes) + " |",
            "|---|" + "---|" * len(sizes),
        ]
        for peer in dict.fromkeys(s["peer"] for s in mine):
            found = {s["size"]: s for s in mine if s["peer"] == peer}
            lines.append(f"| {peer} | " + " | ".join(_cell(found.get(n)) for n in sizes) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(series: dict[str, Any] | None) -> str:
    if series is None:
        return "–"
    deletes, inserts = fmean(series["deletes"]) * 1000, fmean(series["inserts"]) * 1000
    return f"{_number(deletes)} / {_number(inserts)} ms; {_number(series['load'])} s"


def joins(series: list[dict[str, Any]]) -> str:
    """A row a peer."""
    whence = fmean(next(s for s in series if s["peer"] == "Whence")["inserts"])
    lines = ["| peer | ms per batch, mean | times Whence | load, s |", "|---|---|---|---|"]
    for s in series:
        mean = fmean(s["inserts"])
        lines.append(f"| {s['peer']} | {_number(mean * 1000)} | {mean / whence:.1f} | {_number(s['load'])} |")
    return "\n".join(lines)


def maintained(queries: list[dict[str, Any]]) -> str:
    """Return a row per query kept as a view."""
    head = [
        "query",
        "load, s",
        "refresh, ms",
        "DuckDB, ms",
        "times",
        "CPU, ms",
        "DuckDB, ms",
        "times",
        "rows",
        "state, MB",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for q in queries:
        cells = [q["name"], _number(q["load"]), "not reached", *[""] * 5]
        for clock in (0, 1) if q["updates"] else ():
            ours, theirs = (1e3 * fmean(pair[clock] for pair in q[kind]) for kind in ("updates", "asked"))
            cells[2 + 3 * clock : 5 + 3 * clock] = map(_number, (ours, theirs, theirs / ours))
        cells += [f"{q['rows']:,}", _number(q["state_bytes"] / 1e6)]
        lines.append("| " + " | ".join([q["name"], q["problem"]] if q["problem"] else cells) + " |")
    return "\n".join(lines)


def figures(found: list[dict[str, Any]]) -> str:
    """A row a peer: the median over the rounds."""
    lines = ["| measured | peer | median | unit |", "|---|---|---|---|"]
    for figure in found:
        for place, (peer, median) in enumerate(figure["median"].items()):
            what, unit = (figure["what"], figure["unit"]) if place == 0 else ("", "")
            lines.append(f"| {what} | {peer} | {_number(median)} | {unit} |")
    return "\n".join(lines)


def saved(found: list[dict[str, Any]]) -> str:
    """A row a setting: what the publisher sends with curiosity, beside everything; and what is waited for."""
    out = ["| | messages | of | bytes | of | times fewer | waited, ms |", "|---|---|---|---|---|---|---|"]
    medians = {figure["what"]: figure["median"] for figure in found}
    for what in [name.removesuffix(": waited") for name in medians if name.endswith(": waited")]:
        sent = [tuple(medians[f"{what}: {kind}"].values()) for kind in ("messages", "bytes")]
        cells = [f"{number:,.0f}" for pair in sent for number in pair]
        waited = next(iter(medians[f"{what}: waited"].values()))
        times = sent[1][1] / max(sent[1][0], 1)
        out.append(f"| {what} | " + " | ".join(cells) + f" | {times:.1f} | {_number(waited)} |")
    return "\n".join(out)


def scale(lines: list[dict[str, Any]]) -> str:
    """A row a view, way and number of partitions: the load beside the median deletion."""
    columns = ("supersteps", "rows shipped", "KB shipped", "ms")
    head = ["view", "way", "partitions", *(f"{kind}: {c}" for kind in ("load", "deletion") for c in columns)]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for view, way, count in dict.fromkeys((s["view"], s["way"], s["partitions"]) for s in lines):
        cells = [view, way, str(count)]
        for kind in ("load", "deletion"):
            (s,) = (s for s in lines if (s["view"], s["way"], s["partitions"], s["epoch"]) == (view, way, count, kind))
            cells += [f"{s['supersteps']:.0f}", f"{s['rows_shipped']:,.0f}"]
            cells += [f"{s['bytes_shipped'] / 1000:,.1f}", _number(s["seconds"] * 1000)]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def executors(lines: list[dict[str, Any]]) -> str:
    """A row a workload and number of executors: what was counted, and the time that the model gives."""
    head = [
        "workload",
        "epoch",
        "executors",
        "supersteps",
        "messages",
        "KB",
        "busiest, times even",
        "ms",
        "not rows, %",
    ]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in lines:
        cells = [line["workload"], line["epoch"], str(line["partitions"]), str(line["supersteps"])]
        cells += [f"{line['messages']:,}", f"{line['bytes'] / 1000:,.0f}", f"{line['busiest']:.2f}"]
        cells += [_number(line["seconds"] * 1000), f"{100 * line['waiting'] / line['seconds']:.0f}"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def histogram_errors(found: list[dict[str, Any]]) -> str:
    """A row a number of buckets: mean errors, in percent."""
    head = ["intervals", "groups", "buckets", *found[0]["errors"]]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in found:
        cells = [line["intervals"], str(line["groups"]), str(line["buckets"])]
        out.append("| " + " | ".join([*cells, *(_number(100 * e) for e in line["errors"].values())]) + " |")
    return "\n".join(out)


def plan_costs(found: list[dict[str, Any]]) -> str:
    """A row a coefficient of a plan, with its 95 % interval, beside the one that was fitted at set-up."""
    out = ["| plan | coefficient | ns | 95 % interval | at set-up |", "|---|---|---|---|---|"]
    for line in found:
        for name, value, margin, used in zip("abcde", line["values"], line["margins"], line["used"], strict=False):
            ends = f"{max(0.0, value - margin):.3g} to {value + margin:.3g}"
            out.append(f"| {line['plan']} | {name} | {value:.3g} | {ends} | {used:.3g} |")
    return "\n".join(out)


def routing(found: list[dict[str, Any]]) -> str:
    """A row a workload, size and part: microseconds an event by each plan, shares of plans, optimal decisions."""
    head = ["subscriptions", "size", "events", *found[0]["micros"], "plans, %", "optimal, %", "as printed, %"]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in found:
        shares = ", ".join(f"{name} {100 * s:.0f}" for name, s in line["shares"].items() if s >= 0.005)
        cells = [line["kind"], f"{line['size']:,}", line["part"], *map(_number, line["micros"].values()), shares]
        cells += [f"{100 * line[key]:.0f}" for key in ("optimal", "optimal_printed")]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def promises(checks: list[dict[str, Any]]) -> str:
    """What was asked, what was measured."""
    lines = ["| target | bound | measured | |", "|---|---|---|---|"]
    for c in checks:
        sign, met = "≥" if c["at_least"] else "≤", "met" if c["kept"] else "not met"
        lines.append(f"| {c['what']} | {sign} {c['wanted']:g} | {_number(c['measured'])} | {met} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
