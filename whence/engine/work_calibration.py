"""Measures what the parts of maintaining a join cost on this machine (`plan/algebra/work_costs.py`).

Each is the least of some rounds, divided by the rows of a round; where two parts cannot be had apart (a probe, and the
rows that it finds), both are solved for from two rounds. It takes about a second. What takes partitions is not measured
here: a superstep costs what a job does, and there is no session at set-up.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.machine_costs import store_costs, stored_file
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation
from whence.engine.exchange.messages import message_of_rows
from whence.engine.exchange.ship import parted
from whence.engine.expressions.evaluate import compile_expr
from whence.engine.relational.join_steps import JoinStep, extended
from whence.model.codes import Codes, Dictionary
from whence.model.types import BIGINT, BOOLEAN
from whence.plan.algebra.expressions import Call, Col
from whence.plan.algebra.work_costs import DEFAULTS, WorkCosts

_ROWS = 50_000  # of relations
_BATCH = 1_000  # rows of a change
_MATCHES = 8  # rows that a probe finds, where it finds more than one
_PARTITIONS = 4
_ROUNDS = 15
_PICO = 1_000  # in a nanosecond


def measure_costs(rows: int = _ROWS, rounds: int = _ROUNDS) -> WorkCosts:
    """Return the costs of this machine."""
    one, many = (_probing(rows, each, rounds) for each in (1, _MATCHES))
    match = max(1, (many - one) // (_MATCHES - 1))
    plain, indexed, ordered = (_changing(rows, kind, rounds) for kind in ("", "hash", "ordered"))
    found = replace(
        DEFAULTS,
        probe=max(1, one - match),
        match=match,
        test=_testing(rounds),
        seek=_seeking(rows, rounds),
        keep=plain,
        upkeep=max(1, indexed - plain),
        ordered_upkeep=max(1, ordered - plain),
    )
    return replace(found, byte=max(1, _copying(rounds)), shipped_byte=_shipping(rounds))


def _least(run: Callable[[], object], parts: int, rounds: int) -> int:
    """Return the picoseconds of a part, by the fastest of some runs."""
    best = 1 << 62
    for _ in range(rounds):
        start = time.perf_counter_ns()
        run()
        best = min(best, time.perf_counter_ns() - start)
    return max(1, best * _PICO // parts)


def _relation(rows: int, matches: int) -> Relation:
    relation, random = Relation(3), np.random.default_rng(1)
    values = np.arange(rows)
    relation.apply(_batch(np.column_stack((values // matches, random.permutation(rows), values)), 1))
    relation.commit()
    return relation


def _batch(rows: Codes, sign: int) -> Batch:
    return Batch(np.ascontiguousarray(rows, np.int64), np.full(len(rows), sign, np.int64), True)


def _keys(count: int) -> Batch:
    return _batch(np.random.default_rng(2).integers(0, count, (_BATCH, 2)), 1)


def _probing(rows: int, matches: int, rounds: int) -> int:
    """Measure a probe and the rows that it finds."""
    relation, given = _relation(rows, matches), _keys(rows // matches)
    cols, taken = np.zeros(1, np.int64), np.arange(5)
    step = JoinStep(1, cols, cols, relation, relation.index((0,)), [], taken, taken)
    return _least(lambda: extended(given, step, taken), _BATCH, rounds)


def _seeking(rows: int, rounds: int) -> int:
    """Measure a search in an ordered index."""
    index = _relation(rows, 1).range_index((1,))
    keys = np.ascontiguousarray(_keys(rows).rows[:, :1])
    high = keys[:, 0].copy()
    return _least(lambda: index.between(keys, high), _BATCH, rounds)


def _changing(rows: int, kind: str, rounds: int) -> int:
    """Measure a row that comes to a relation or leaves it, with one index more or without."""
    relation = _relation(rows, 1)
    if kind == "hash":
        relation.index((1,))
    elif kind == "ordered":
        relation.range_index((1,))
    new = np.column_stack([np.random.default_rng(3).permutation(_BATCH) + rows] * 3)

    def run() -> None:
        for sign in (1, -1):
            relation.add(consolidate(_batch(new, sign)))
            relation.commit()

    return _least(run, 2 * _BATCH, rounds)


def _testing(rounds: int) -> int:
    test = compile_expr(Call(BOOLEAN, "<", (Col(BIGINT, 0), Col(BIGINT, 1))), Dictionary())
    given = _keys(_ROWS)
    return _least(lambda: np.flatnonzero(test(given.rows) == 1), _BATCH, rounds)


def _copying(rounds: int) -> int:
    held = np.zeros(_ROWS, np.int64)
    return _least(held.copy, held.nbytes, rounds)


def _shipping(rounds: int) -> int:
    """Measure a byte of messages, as they are addressed, written and read again."""
    given = _keys(_ROWS)

    def run() -> None:
        for to, part in parted(given, (0,), _PARTITIONS).items():
            pickle.loads(pickle.dumps(message_of_rows("channel", to, part)))

    return _least(run, given.rows.nbytes, rounds)


def calibrate_work() -> None:
    """Measure costs on this machine and store them, unless they are."""
    if not stored_file().exists():
        measure_costs(rounds=2)  # compiles
        store_costs(measure_costs())
