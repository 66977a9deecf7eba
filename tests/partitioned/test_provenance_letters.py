"""Letters of maintained provenance that nobody wrote, and what is counted of those that were."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import whence
from tests.oracle import Update, load
from tests.partitioned.test_provenance import NETWORK, WAYS, exchanges, known
from whence.engine.exchange.wire import MessageWriter
from whence.engine.recursion.fixpoint import Fixpoint, annotated_policy
from whence.runtime import database


def reachable(options: str, partitions: int = 2) -> whence.Database:
    """Which nodes of a ring are reachable from which."""
    table, _, view, *_ = NETWORK.format(f"{options}, partition = 'exchange'").split(";")
    db = database.open(partitions=partitions, durability="none")
    db.execute(f"{table}; {view}")
    load(db, [("link", (a, (a + 1) % 5, 1), 1) for a in range(5)])
    return db


def letters_of(op: Fixpoint) -> dict[int, MessageWriter]:
    """What could be said of dead rows, and of all derived rows, by phases."""
    policy = annotated_policy(op)
    assert policy is not None
    annotations, messages = policy.annotations, policy.messages
    heads = np.flatnonzero(annotations.published[: annotations.slots])
    relations, cells = op.store.describe(heads)
    number, copies = next(iter(op.mailbox.copies.items()))
    there = np.flatnonzero(relations == number)
    variables, _ = policy.formulas.pack(annotations.published[heads[there]])
    packet, _ = messages.write_rows(heads, cells, [(copies[0].relation, there)])
    return {0: messages.write_variables(MessageWriter(), variables), 1: packet}


def hear(op: Fixpoint, phase: int, whole: bytes) -> None:
    """One round that receives these bytes, taken back."""
    packet = MessageWriter()
    packet._parts = [whole]
    try:
        op.work(phase, {op.channels[0]: packet.letter()})
    finally:
        op.undo()


@pytest.mark.parametrize("way", [WAYS[0], WAYS[3], WAYS[5]])
def test_torn_letters_are_refused(way: str) -> None:
    """Cut off they are DataErrors, changed they are or say something else; whatever came, it can be taken back."""
    rng = random.Random(way)
    db = reachable(way)
    sender, receiver = exchanges(db, "reachable")
    before = [known(db, p) for p in range(2)]
    for phase, packet in letters_of(sender).items():
        whole = b"".join(packet._parts)
        hear(receiver, phase, whole)
        for end in range(len(whole)):
            with pytest.raises(whence.DataError):
                hear(receiver, phase, whole[:end])
        with pytest.raises(whence.DataError, match="goes on after its end"):
            hear(receiver, phase, whole + b"\0")
        for _ in range(200):
            torn = bytearray(whole)
            for _ in range(rng.randint(1, 3)):
                torn[rng.randrange(len(torn))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
            with suppress(whence.DataError):
                hear(receiver, phase, bytes(torn))
    assert [known(db, p) for p in range(2)] == before
    load(db, [("link", (0, 1, 1), -1)])
    assert set(db["reachable"].rows) == {(a, b % 5) for a in range(1, 5) for b in range(a + 1, 6)}
    db.close()


@pytest.mark.parametrize(
    ("part", "match"),
    [
        (MessageWriter().numbers(np.array([99, 1])), "no copy"),
        (MessageWriter().numbers(np.array([-1, 1])), "no copy"),
        (MessageWriter().numbers(np.array([0])), "truncated message"),
    ],
)
def test_letters_that_speak_of_nothing_are_refused(part: MessageWriter, match: str) -> None:
    with reachable(WAYS[0]) as db, pytest.raises(whence.DataError, match=match):
        hear(exchanges(db, "reachable")[0], 1, b"".join(part._parts))


# -- what is counted ---------------------------------------------------------------------------------------------------


def told(db: whence.Database) -> tuple[dict[str, Any], str]:
    (line,) = re.findall(r"shipped .*", db.explain("reachable"))
    return db.metrics(), line


@pytest.mark.parametrize("options", ["policy = 'dred'", "policy = 'support'", *WAYS])
def test_counts_agree(options: str) -> None:
    """By views, by runs and in EXPLAIN; a batch that fails counts nowhere; bytes are more than rows."""
    with reachable(options, 3) as db:
        db.execute("CREATE TABLE poison (x TEXT); CREATE VIEW poisoned AS SELECT CAST(x AS INT) AS n FROM poison")
        updates: list[Update] = [("link", (0, 2, 1), 1), ("link", (0, 1, 1), -1), ("link", (3, 4, 1), -1)]
        for update in updates:
            before, _ = told(db)
            with pytest.raises(whence.EvaluationError):
                load(db, [update, ("poison", ("no number",), 1)])
            assert told(db)[0]["shipped"] == before["shipped"]
            load(db, [update])
            metrics, line = told(db)
            shipped, last = metrics["shipped"]["reachable"], metrics["last_run"]
            epoch, total = shipped["epoch"], shipped["total"]
            assert epoch == {"messages": last["messages"], "rows": last["rows_shipped"], "bytes": last["bytes_shipped"]}
            gone = before["shipped"]["reachable"]["total"]
            assert total == {what: gone[what] + epoch[what] for what in epoch}
            assert epoch["messages"] > 0
            assert epoch["bytes"] >= 2 * epoch["rows"]
            said = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:message|row)", line)]
            assert said == [total["messages"], total["rows"], epoch["messages"], epoch["rows"]], line


def test_a_view_that_is_made_again_counts_anew() -> None:
    """What it sent in an earlier life is not its own; others go on."""
    with reachable(WAYS[0], 3) as db:
        view = NETWORK.format(f"{WAYS[0]}, partition = 'exchange'").split(";")[2]
        db.execute(view.replace("reachable", "other"))
        before = db.metrics()["shipped"]
        db.execute("DROP VIEW reachable")
        db.execute(view)
        after = db.metrics()["shipped"]
        assert after["reachable"]["total"] == after["reachable"]["epoch"] == before["reachable"]["total"]
        assert after["other"]["total"] == before["other"]["total"]
