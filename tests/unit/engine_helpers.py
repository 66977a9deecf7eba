"""A small harness for engine tests: tables of integers, one view, and DuckDB (or Python) as the oracle."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np

from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch
from whence.model.codes import Dictionary, decode_value, encode_value
from whence.model.types import Column, Schema, Type
from whence.plan.algebra import logical

Row = tuple[Any, ...]


def schema(*types: Type) -> Schema:
    return Schema(tuple(Column(f"c{i}", t) for i, t in enumerate(types)))


def encode(rows: list[Row], of: Schema, dictionary: Dictionary) -> np.ndarray:
    codes = [[encode_value(v, t, dictionary) for v, t in zip(row, of.types, strict=True)] for row in rows]
    return np.array(codes, np.int64).reshape(len(rows), len(of))


def decode(batch: Batch, of: Schema, dictionary: Dictionary) -> Counter[Row]:
    out: Counter[Row] = Counter()
    for row, count in zip(batch.rows.tolist(), batch.ann.tolist(), strict=True):
        out[tuple(decode_value(c, t, dictionary) for c, t in zip(row, of.types, strict=True))] += count
    return out


class Bench:
    """Tables, a view over them, and the same tables as Python multisets."""

    def __init__(self, **tables: Schema):
        self.dictionary = Dictionary()
        self.flow = Dataflow()
        self.builder = Builder(self.flow, self.dictionary, lambda name: self.flow.views[name])
        self.tables: dict[str, Counter[Row]] = {name: Counter() for name in tables}
        self.schemas = tables
        for name, of in tables.items():
            self.flow.table(name, of)
        self.nodes: dict[str, logical.Node] = {}
        self.kept: dict[str, Counter[Row]] = {}

    def scan(self, name: str) -> logical.Scan:
        return logical.Scan(self.schemas[name], name)

    def view(self, name: str, node: logical.Node) -> None:
        self.nodes[name] = node
        self.flow.add_view(name, self.builder.build(node))
        self.kept[name] = self.rows(name)

    def rows(self, name: str) -> Counter[Row]:
        return decode(self.flow.views[name].contents(), self.nodes[name].schema, self.dictionary)

    def batch(self, changes: list[tuple[str, Row, int]]) -> dict[str, Batch]:
        """Deletions of absent rows are left out."""
        net: dict[str, Counter[Row]] = {}
        for table, row, sign in changes:
            delta = net.setdefault(table, Counter())
            if self.tables[table][row] + delta[row] + sign >= 0:
                delta[row] += sign
        out = {}
        for table, delta in net.items():
            rows = [r for r, n in delta.items() if n]
            counts = np.array([delta[r] for r in rows], np.int64)
            out[table] = Batch(encode(rows, self.schemas[table], self.dictionary), counts)
        self._net = net
        return out

    def step(self, changes: list[tuple[str, Row, int]], *, rehearse: bool = True) -> None:
        """Run an epoch; first run it and undo it, which must leave no trace. The changes must add up."""
        batch = self.batch(changes)
        if rehearse:
            before = {v: self.rows(v) for v in self.nodes}
            self.flow.run(batch)
            self.flow.undo()
            assert {v: self.rows(v) for v in self.nodes} == before
        out = self.flow.run(batch)
        self.flow.commit()
        for table, delta in self._net.items():
            for row, n in delta.items():
                self.tables[table][row] += n
            self.tables[table] = +self.tables[table]
        for view, node in self.nodes.items():
            if view in out:
                assert out[view].unique
                for row, n in decode(out[view], node.schema, self.dictionary).items():
                    self.kept[view][row] += n
                self.kept[view] = Counter({r: n for r, n in self.kept[view].items() if n})
            assert self.kept[view] == self.rows(view)
            op = self.flow.views[view]
            again: Counter[Row] = Counter()
            again = decode(op.recompute(), node.schema, self.dictionary)
            assert Counter({r: n for r, n in again.items() if n}) == self.rows(view)


CON = duckdb.connect(config={"threads": 1})


def duck(bench: Bench, sql: str) -> Counter[Row]:
    """The query's answer over the bench's tables, given to DuckDB as temporary tables."""
    for name, of in bench.schemas.items():
        CON.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({', '.join(f'{c.name} {c.type}' for c in of.columns)})")
        rows = [row for row, n in bench.tables[name].items() for _ in range(n)]
        if rows:
            line = f"({', '.join('?' * len(of))})"
            CON.execute(f"INSERT INTO {name} VALUES {', '.join([line] * len(rows))}", [v for row in rows for v in row])
    return Counter(CON.execute(sql).fetchall())
