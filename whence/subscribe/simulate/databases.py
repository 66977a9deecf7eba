"""Nodes of a simulation that are real databases: the depth `databases`.

Base relations and sources are tables in a folder, transforms are SQL views over them that the engine keeps. An epoch is
one transaction: rows, what each source reflects, horizons and pinned keys. A crash leaves the files as they were at
the last sync, and the node begins again from what the database recovers.

The law: after every transaction a view has the rows that the oracle computes over exactly the ticks that are
reflected, and a database that was opened again is the one that was synced: rows, views, and what it reflects.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import whence
from whence.subscribe.simulate.node_parts import WIDTHS, SourceMeta, ViewSpec
from whence.subscribe.simulate.nodes import SimulatedNode
from whence.subscribe.simulate.oracle import Delta, EpochRecord, SimulationError
from whence.subscribe.simulate.plans import BEST, BUCKET, Bag, PlanInputs, ViewTree

if TYPE_CHECKING:
    from whence.subscribe.simulate.world import World

_WINDOWS = f"""SELECT x.c0, x.c1, x.c2, CASE WHEN (x.c0 + 1) * {BUCKET} <= h.horizon THEN 1 ELSE 0 END AS c3
FROM (SELECT at // {BUCKET} AS c0, MAX(v) AS c1, COUNT(*) AS c2 FROM ({{rows}}) r GROUP BY at // {BUCKET}) x
JOIN horizons h ON h.view = '{{view}}'"""

_SQL = {
    "group": "SELECT c4 AS c0, MAX(c5) AS c1, MIN(c5) AS c2, SUM(c5) AS c3, COUNT(*) AS c4 FROM {0} GROUP BY c4",
    "select": "SELECT c4 AS c0, c5 AS c1 FROM {0} WHERE c5 >= 1",
    "merge": "SELECT c1 AS c0, c4 AS c1, c5 AS c2 FROM {0} UNION ALL SELECT c1, c4, c5 FROM {1}",
    "negate": "SELECT c4 AS c0 FROM {0} EXCEPT SELECT c4 FROM {1}",
    "join": "SELECT a.c4 AS c0, a.c5 AS c1, b.c1 AS c2 FROM {0} a JOIN {1} b ON a.c4 = b.c0",
    "windows": _WINDOWS.replace("{rows}", "SELECT c0 AS at, c5 AS v FROM {0}"),
    "windows of two": _WINDOWS.replace("{rows}", "SELECT c0 AS at, c5 AS v FROM {0} UNION ALL SELECT c0, c5 FROM {1}"),
    "latest": """SELECT r.c0, r.c1, r.c2, r.c3, r.c4, r.c5 FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1}) r
        JOIN horizons h ON h.view = '{view}' WHERE r.c0 < h.horizon""",
    "available": "SELECT c0, c2 AS c1 FROM {0} WHERE c1 > 0 OR c0 IN (SELECT key FROM pins)",
    "best": f"SELECT c0, c2 AS c1 FROM {{0}} ORDER BY c2, c0 LIMIT {BEST}",
    "listed": "SELECT * FROM {0} WHERE c0 IN (SELECT c0 FROM {1})",
    "listed events": "SELECT * FROM {0} WHERE c4 IN (SELECT c0 FROM {1})",
    "copy": "SELECT * FROM {0}",
    "total": "SELECT COUNT(*) AS c0, COALESCE(SUM({sum}), 0) AS c1 FROM {0}",
}
"""The transforms. `latest` gives the rows before the horizon: a number that depends on their order is made of them."""

_SHOWN = {"group": 5, "select": 2, "merge": 3, "negate": 1, "join": 3, "windows": 4, "windows of two": 4, "latest": 2}
_SHOWN |= {"available": 2, "best": 2, "listed": 3, "listed events": 6, "total": 2}


def width_of(tree: ViewTree) -> int:
    """Return how many columns a relation has."""
    if tree.plan is None:
        return WIDTHS[tree.kind]
    return width_of(tree.inputs[0]) if tree.plan.name == "copy" else _SHOWN[tree.plan.name]


class DatabaseNode(SimulatedNode):
    """A node around a database in a folder."""

    def __init__(self, world: World, name: str, number: int, base: ViewTree | None) -> None:
        super().__init__(world, name, number, base)
        self._folder = tempfile.TemporaryDirectory(prefix="whence-simulated-")
        self._copies: dict[int, Path] = {}  # of the files, by the epoch that they were synced at
        self._opened = 0
        self._db: whence.Database | None = None
        self.recovered = 0

    # -- tables and views --------------------------------------------------------------------------------------------

    @property
    def db(self) -> whence.Database:
        """The database, which is open while the node is up."""
        assert self._db is not None
        return self._db

    @property
    def _trees(self) -> dict[str, ViewTree]:
        """The relations that are tables."""
        own = {} if self.base is None else {self.base.name: self.base}
        return own | {name: spec.tree for name, spec in self.sources.items()}

    def _create(self) -> None:
        script = [
            "CREATE TABLE horizons (view TEXT PRIMARY KEY, horizon BIGINT)",
            "CREATE TABLE pins (key BIGINT PRIMARY KEY)",
            "CREATE TABLE reflected (source TEXT PRIMARY KEY, ticks TEXT, lost TEXT, time BIGINT)",
            "CREATE TABLE epochs (epoch BIGINT PRIMARY KEY)",
        ]
        for name, tree in self._trees.items():
            columns = ", ".join(f"c{i} BIGINT NOT NULL" for i in range(width_of(tree)))
            script.append(f"CREATE TABLE {_quoted(name)} ({columns})")
        for name, view in self.views.items():
            assert view.tree.plan is not None
            sums = " + ".join(f"c{i}" for i in range(width_of(view.tree.inputs[0])))
            sql = _SQL[view.tree.plan.name].format(*map(_quoted, view.inputs), view=name, sum=sums)
            script.append(f"CREATE VIEW {_quoted(name)} AS {sql}")
        for sql in script:
            self.db.execute(sql)

    def _rows(self, name: str) -> Bag:
        return Counter(map(tuple, self.db[name].rows))

    # -- epochs ------------------------------------------------------------------------------------------------------

    def write(self, deltas: dict[str, Delta], time: int) -> None:
        horizons = {name: self.horizon_of(view, time) for name, view in self.views.items()}
        self._write(len(self.log) + 1, deltas, self.metas, self.pins, horizons)

    def _write(
        self,
        epoch: int,
        deltas: dict[str, Delta],
        metas: dict[str, SourceMeta],
        pins: frozenset[int],
        horizons: dict[str, int],
    ) -> None:
        """Make an epoch in one transaction."""
        db = self.db
        with db.transaction():
            for name, delta in deltas.items():
                gone = [row for row, count in delta for _ in range(-count)]
                came = [row for row, count in delta for _ in range(count)]
                if gone and db.delete(name, gone) != len(gone):
                    raise SimulationError("S2", f"{self.name} deletes rows of {name} that are not there")
                if came:
                    db.insert(name, came)
            db.insert("epochs", [(epoch,)])
            if horizons:
                db.insert("horizons", list(horizons.items()))
            if metas:
                db.insert("reflected", [(name, *_plain(meta)) for name, meta in metas.items()])
            known = {key for (key,) in db["pins"].rows}
            if known - pins:
                db.delete("pins", [(key,) for key in known - pins])
            if pins - known:
                db.insert("pins", [(key,) for key in pins - known])

    def compute(self, view: ViewSpec, given: PlanInputs) -> Bag:
        assert view.tree.plan is not None
        rows = self._rows(view.name)
        if view.tree.plan.name == "latest":
            twice = Counter({row: 1 for row, count in rows.items() if count > 1})  # both inputs are the same stream
            return view.tree.plan.compute(PlanInputs([rows, twice], given.horizon, order=given.order))
        return rows

    def _sync(self) -> None:
        self.db.sync()
        self._keep(len(self.log))
        super()._sync()

    def _keep(self, epoch: int) -> None:
        """Keep the files as they are: what a crash leaves."""
        assert self.db.path is not None
        copy = Path(self._folder.name) / f"synced-{self._opened}-{epoch}"
        shutil.copytree(self.db.path, copy, dirs_exist_ok=True)
        self._copies[epoch] = copy

    # -- starting and stopping ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self.close_database()
        self._opened += 1
        epoch = max((epoch for epoch in self._copies if epoch <= len(self.log)), default=0)
        folder = Path(self._folder.name) / f"open-{self._opened}"
        if epoch:
            shutil.copytree(self._copies[epoch], folder)
        self._db = whence.open(folder, durability="none", clock=lambda: self.clock() / 1e6, silence=None)
        if not epoch:
            self._create()
        for record in self.log[epoch:]:  # a backup between two syncs
            self._write_again(record)
        self._copies = {at: copy for at, copy in self._copies.items() if at <= len(self.log)}
        super().start()
        self._check_recovered()

    def _write_again(self, record: EpochRecord) -> None:
        tables = {name: delta for name, delta in record.deltas.items() if name not in self.views}
        metas: dict[str, SourceMeta] = dict(record.metas)  # type: ignore[arg-type]  # a record does not know them
        before, self.metas = getattr(self, "metas", {}), metas
        horizons = {name: self.horizon_of(view, record.time) for name, view in self.views.items()}
        self.metas = before
        self._write(record.epoch, tables, metas, record.pins, horizons)

    def _check_recovered(self) -> None:
        """Check that the database is what the synced log says."""
        if not self.log:
            return
        self.recovered += 1
        epochs = self.db.query("SELECT epoch FROM epochs").rows
        if sorted(epochs) != [(record.epoch,) for record in self.log]:
            raise SimulationError("S5", f"{self.name} comes back with {len(epochs)} epochs of {len(self.log)}")
        known = {name: tuple(rest) for name, *rest in self.db.query("SELECT * FROM reflected").rows}
        if known != {name: _plain(meta) for name, meta in self.metas.items()}:
            raise SimulationError("S4", f"{self.name} comes back reflecting {known}")
        for name, content in self.contents.items():
            view = self.views.get(name)
            is_latest = view is not None and view.tree.plan is not None and view.tree.plan.name == "latest"
            if not is_latest and self._rows(name) != +content:
                raise SimulationError("S2", f"{self.name} comes back with other rows of {name}")

    def crash(self) -> None:
        super().crash()
        self.close_database()

    def restore(self, epoch: int, same_history: bool) -> None:
        super().restore(epoch, same_history)
        self.close_database()

    def close_database(self) -> None:
        """Close the files."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def close(self) -> None:
        self.close_database()
        self._folder.cleanup()


def _plain(meta: SourceMeta) -> tuple[str, str, int]:
    return str(meta.ranges), str(meta.lost), meta.time


def _quoted(name: str) -> str:
    return f'"{name}"'
