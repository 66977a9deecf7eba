"""Inputs: what rows as sources gave them change in the tables.

The law: an epoch with inputs first lets go of what is due at its time, in every table, and then takes the rows in their
order (`WriteSet.take`), those of a stream in that of their `$at`s. That depends on nothing but the tables before it,
and rows that are equal or share a primary key are all it brings together: so partitions that keep those together find,
each from its share, their shares of the same changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from whence.engine.core.epoch import Epoch
from whence.engine.core.lifetimes import Lifetimes
from whence.engine.core.operator import Batch
from whence.engine.exchange.ship import by_arrival
from whence.engine.relational.scan import Scan
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.program import Table, is_owed, owed_name, owner_of
from whence.runtime.writing.expiry import gather
from whence.runtime.writing.tables import Unmatched, WriteSet
from whence.runtime.writing.transaction import Transaction
from whence.state.folder import Folder
from whence.state.inputs import read_input

Raw = tuple[Codes, Codes]
"""Rows, and the sign of each."""


def resolve_inputs(
    epoch: Epoch,
    raw: Mapping[str, Raw],
    tables: Mapping[str, Table],
    scans: Mapping[str, Scan],
    lifetimes: Mapping[str, Lifetimes],
    dictionary: Dictionary,
) -> tuple[Epoch, dict[str, Unmatched]]:
    """Turn raw rows into exact changes of the tables and their debts as they are; return the epoch with them, and how
    many deletions of each table found nothing.

    Tables whose exact changes are given are left as they are: what expired there is part of them.
    """

    def open_table(name: str) -> WriteSet:
        life = lifetimes.get(name)
        due = life.due_rows(epoch.time) if life is not None else None
        table, relation = tables[owner_of(name)], scans[name].relation
        if is_owed(name):
            return WriteSet(table.debts, relation, dictionary, due)
        return WriteSet(table, relation, dictionary, due, scans[owed_name(name)].relation)

    given = {*epoch.deltas, *epoch.refreshed}
    writes, missed = Transaction(open_table), dict[str, Unmatched]()
    streams: dict[str, Batch] = {}
    for name, (rows, signs) in raw.items():
        if name in given:
            raise ValueError(f"table {name} has exact changes and others in one epoch")
        if tables[name].stream is not None:
            streams[name] = by_arrival(Batch(rows, signs, True))
            continue
        missed[name] = writes.table(name).take(rows, signs, epoch.early.get(name, "ignore"))
    open_lifetimes = {name: life for name, life in lifetimes.items() if name not in given}
    found = gather(writes, open_lifetimes, epoch.number, epoch.time)
    deltas = epoch.deltas | found.deltas | streams
    return replace(epoch, deltas=deltas, refreshed=epoch.refreshed | found.refreshed, sections=(), layout=""), missed


def read_rows(epoch: Epoch, folder: Folder) -> dict[str, Raw]:
    """The raw rows of an epoch by table, in the order of its pieces."""
    found: dict[str, list[Raw]] = {}
    for piece in epoch.sections:
        found.setdefault(piece.table, []).append(read_input(folder.disk, folder.path, piece))
    return {name: joined(parts) for name, parts in found.items()}


def joined(parts: Sequence[Raw]) -> Raw:
    """All rows of a table, one part after the other; ValueError if they differ in their columns."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([signs for _, signs in parts])
