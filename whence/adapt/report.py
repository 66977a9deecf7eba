"""What EXPLAIN and `db.plans` say of a running join: its paths, what they are expected to meet and have met, what the
roads not taken would cost more, and which switches were made, and why."""

from __future__ import annotations

from typing import Any

from whence.adapt.adaptive_join import AdaptiveJoin, PathFigures
from whence.adapt.history import PlanSwitch
from whence.engine.relational.join import Join

_ROADS = 4  # that EXPLAIN names of a path


def report_join(join: Join, adaptive: AdaptiveJoin, history: list[PlanSwitch]) -> dict[str, Any]:
    """Return a running join in plain values; inputs are counted from one, as EXPLAIN does."""
    names = [_input_name(join, i) for i in range(len(join.inputs))]
    return {
        "join": join.describe(),
        "margin": adaptive.margin,
        "paths": [_path(first, path, names, adaptive) for first, path in enumerate(adaptive.figures())],
        "looks": adaptive.readings,
        "searches": adaptive.searches,
        "history": [_switch(entry) for entry in history],
    }


def _input_name(join: Join, input: int) -> str:
    return f"{input + 1} ({join.inputs[input].describe().partition('  ')[0]})"


def _path(first: int, path: PathFigures, names: list[str], adaptive: AdaptiveJoin) -> dict[str, Any]:
    return {
        "input": names[first],
        "order": [_step(step) for step in path.path],
        "cost": path.cost,
        "excess": excess(path.cost / path.best - 1 if path.best else 0.0),
        "rows_per_second": path.rate,
        "steps": adaptive.steps_of(first),
        "alternatives": [
            {"after": [i + 1 for i in met], "step": _step(step), "excess": excess(more)}
            for met, step, more in sorted(path.roads, key=lambda road: road[2])
        ],
    }


def _switch(entry: PlanSwitch) -> dict[str, Any]:
    return {
        "epoch": entry.epoch,
        "taken": entry.taken,
        "gain": entry.gain,
        "reason": entry.reason,
        "before": [[_step(s) for s in path] for path in entry.before],
        "after": [[_step(s) for s in path] for path in entry.after],
    }


def _step(step: int) -> str:
    return f"{step + 1}" if step >= 0 else f"{~step + 1} in order"


def excess(part: float) -> str:
    """Return how much more something costs, for people.

    >>> excess(0.031), excess(0), excess(17)
    ('+3.1 %', '+0.0 %', '+1,700.0 %')
    """
    return f"+{100 * max(0.0, part):,.1f} %"


def lines(report: dict[str, Any]) -> list[str]:
    """Return a report as EXPLAIN shows it, under the view's own lines."""
    found = []
    for path in report["paths"]:
        roads = [
            f"{road['step']}{' after ' + ', '.join(map(str, road['after'])) if road['after'] else ' first'} "
            f"{road['excess']}"
            for road in path["alternatives"][:_ROADS]
        ]
        first = path["input"].partition(" ")[0]
        costs = f"order of {first}: {', '.join(path['order'])}; {path['cost']:.3g} probes a row, {path['excess']}"
        found.append(costs + (f"; instead {', '.join(roads)}" if roads else ""))
    for entry in report["history"]:
        verb = "switched" if entry["taken"] else "would have switched"
        found.append(f"{verb} after epoch {entry['epoch']}: {entry['reason']}")
    return found
