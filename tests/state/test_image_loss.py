"""Images that lack parts: whatever of an image is missing, stale or damaged is computed from the tables.

Programs are made by random sequences of DDL and data, since what is arranged may depend on the order in which views
were made; the folder is then opened embedded and on other numbers of partitions, whole or with an image tampered with.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import whence
from tests.depth import seeds
from tests.oracle import assert_rows
from whence.engine.core.image import TABLE, Image
from whence.model.errors import StorageError
from whence.state.chain import ImageChain, Writer
from whence.state.disk import Disk
from whence.state.folder import WORDS, Folder
from whence.state.manifest import STATE, Link

VIEWS = {
    "v": "SELECT COUNT(*) AS n, MIN(b) AS m FROM t",
    "g": "SELECT a, COUNT(*) AS n, SUM(b) AS s, MAX(b) AS m FROM t GROUP BY a",
    "j": "SELECT t.a, t.b, s.c FROM t JOIN s ON t.a = s.a",
    "o": "SELECT t.a, s.c FROM t LEFT JOIN s ON t.b = s.a",
    "d": "SELECT DISTINCT b FROM t",
    "x": "SELECT a FROM t EXCEPT SELECT a FROM s",
    "e": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.a = t.b)",
    "k": "SELECT a, b FROM t ORDER BY b, a LIMIT 3",
    "p": "SELECT a, b FROM t UNION SELECT p.a, t.b FROM p JOIN t ON p.b = t.a",
    "r": "SELECT m AS x, n AS y FROM v UNION SELECT t.b, 1 FROM r JOIN t ON r.x = t.a "
    "WHERE upper(CAST(r.x AS TEXT)) <> 'x'",
    "q": "SELECT g.a, o.c, g.s FROM g JOIN o ON g.n = o.a",
    "h": "SELECT s, COUNT(*) AS n FROM g GROUP BY s",
}
NEEDS = {"r": ("v",), "q": ("g", "o"), "h": ("g",)}


def history(rng: random.Random) -> list[str]:
    """Make a random sequence of statements: tables, then rows and views in any order, now and then one dropped."""
    said = ["CREATE TABLE t (a INT, b INT)", "CREATE TABLE s (a INT, c TEXT)"]
    names = rng.sample(sorted(VIEWS), rng.randint(2, 6))
    made: list[str] = []
    for name in [n for wanted in names for n in (*NEEDS.get(wanted, ()), wanted)]:
        if rng.random() < 0.6:
            said.append(rows(rng))
        if name in made:
            continue
        made.append(name)
        create = f"CREATE VIEW {name} AS {VIEWS[name]}"
        if said[-1].startswith("CREATE VIEW") and rng.random() < 0.4:
            said[-1] += f"; {create}"
        else:
            said.append(create)
        if rng.random() < 0.15 and not any(name in needs for needs in NEEDS.values()):
            said.append(f"DROP VIEW {name}")
    return [*said, rows(rng)]


def rows(rng: random.Random) -> str:
    t = ", ".join(f"({rng.randint(0, 4)}, {rng.choice((*range(5), 'NULL'))})" for _ in range(rng.randint(1, 4)))
    s = f"({rng.randint(0, 4)}, '{rng.choice('xyz')}')"
    gone = f"; DELETE FROM t WHERE a = {rng.randint(0, 4)}" if rng.random() < 0.3 else ""
    return f"INSERT INTO t VALUES {t}; INSERT INTO s VALUES {s}{gone}"


def opened(path: Path, partitions: int) -> whence.Database:
    return whence.open(path, durability="none", **({"partitions": partitions} if partitions else {}))


def write(path: Path, said: list[str], partitions: int) -> None:
    with opened(path, partitions) as db:
        for statement in said:
            run(db, statement)


def run(db: whence.Database, said: str) -> None:
    """Do what statements say, changes of rows in one epoch."""
    if said.startswith("INSERT"):
        with db.transaction():
            for statement in said.split("; "):
                db.execute(statement)
    else:
        db.execute(said)


def assert_like(db: whence.Database, said: list[str]) -> None:
    """The database holds what one in memory holds that was told the same."""
    with whence.open() as plain:
        for statement in said:
            run(plain, statement)
        for name in [*plain.tables, *plain.views]:
            assert_rows(db[name].rows, plain[name].rows, name)


def chains(path: Path) -> list[tuple[Link, ...]]:
    """The newest chains of a folder that hold operators."""
    folder = Folder(path, Disk())
    start = folder.start()
    return [folder.partition_chain(p, start) for p in range(start.partitions)] or [start.links]


def parts_of(path: Path, links: tuple[Link, ...]) -> dict[str, Image]:
    with ImageChain(path / STATE, links) as chain:
        return {key: chain.image(key) for key in chain.parts}


def rewrite(path: Path, links: tuple[Link, ...], parts: dict[str, Image]) -> None:
    """Put other parts in the place of an image that is one file."""
    (link,) = links
    with ImageChain(path / STATE, links) as chain:
        meta = chain.meta
    (path / STATE / link.file).unlink()
    with Writer(Disk(), path / STATE / link.file, None) as writer:
        for key, image in parts.items():
            writer.add(key, image)
        writer.finish(meta)


def is_operator(key: str) -> bool:
    return not key.startswith((TABLE, WORDS))


@pytest.mark.parametrize("seed", seeds(12))
def test_any_history_reopens_on_any_number_of_partitions(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    said = history(rng)
    write(tmp_path / "db", said, rng.choice((0, 2, 3)))
    for partitions in rng.sample((0, 2, 2, 3), 3):
        with opened(tmp_path / "db", partitions) as db:
            assert_like(db, said)
            said.append(rows(rng))
            run(db, said[-1])
            assert_like(db, said)


def test_restoring_does_not_depend_on_when_views_were_made(tmp_path: Path) -> None:
    said = ["CREATE TABLE t (a INT, b INT)", *(f"CREATE VIEW {name} AS {VIEWS[name]}" for name in "vr")]
    said += ["INSERT INTO t VALUES (1, 2), (2, 3), (3, 1)"]
    write(tmp_path / "db", said, 2)
    with opened(tmp_path / "db", 2) as db:
        assert db.recovery is not None
        assert (db.recovery.primed, db.recovery.damaged) == (0, ())
        assert_like(db, said)


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("seed", seeds(6))
def test_parts_that_are_missing_or_stale_are_computed(tmp_path: Path, seed: int, partitions: int) -> None:
    rng = random.Random(seed)
    said = history(rng)
    path = tmp_path / "db"
    write(path, said, partitions)
    for links in chains(path):
        parts = parts_of(path, links)
        for key in [key for key in parts if is_operator(key)]:
            change = rng.choice(("keep", "keep", "remove", "narrow", "retype", "strip"))
            if change == "remove":
                del parts[key]
            elif change == "narrow":
                parts[key] = {name: array[..., :0] if array.ndim > 1 else array for name, array in parts[key].items()}
            elif change == "retype":
                parts[key] = {name: array.astype(np.int32) for name, array in parts[key].items()}
            elif change == "strip":
                parts[key] = dict(list(parts[key].items())[1:])
        rewrite(path, links, parts)
    for count in (partitions, rng.choice((0, 3))):
        with opened(path, count) as db:
            assert_like(db, said)
            said.append(rows(rng))
            run(db, said[-1])
            assert_like(db, said)


@pytest.mark.parametrize("partitions", [0, 2])
def test_damaged_operators_are_computed_and_the_next_image_is_whole(tmp_path: Path, partitions: int) -> None:
    said = ["CREATE TABLE t (a INT, b INT)", "CREATE TABLE s (a INT, c TEXT)"]
    said += [f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()]
    said += [rows(random.Random(seed)) for seed in range(3)]
    path = tmp_path / "db"
    write(path, said, partitions)
    links = chains(path)[0]
    file = path / STATE / links[0].file
    whole, places = file.read_bytes(), {}
    with ImageChain(path / STATE, links) as chain:
        for key, arrays in chain.directory.parts.items():
            for stored in arrays.values():
                if len(stored.frames):
                    places[key] = int(chain.directory.sheets[0].offsets[stored.frames[0]])
    for key in some_operators(places, 8):
        broken = bytearray(whole)
        broken[places[key]] ^= 0x41
        file.write_bytes(broken)
        for _ in range(2):  # a reader heals nothing, and none is written without a change
            with whence.open(path, read_only=True) as db:
                assert_like(db, said)
                assert db.recovery is not None
                assert partitions or file.name in db.recovery.damaged[0]
    with opened(path, partitions) as db:
        assert db.recovery is not None
        assert file.name in db.recovery.damaged[0]
        assert not whence.check(path).ok
        said.append("INSERT INTO t VALUES (1, 1)")
        run(db, said[-1])
    assert whence.check(path).ok
    with opened(path, partitions) as db:
        assert db.recovery is not None
        assert db.recovery.damaged == ()
        assert_like(db, said)


def some_operators(places: dict[str, int], count: int) -> list[str]:
    """Some operators' parts."""
    return random.Random(0).sample([key for key in places if is_operator(key)], count)


@pytest.mark.parametrize("partitions", [0, 2])
def test_damaged_tables_are_an_error(tmp_path: Path, partitions: int) -> None:
    said = ["CREATE TABLE t (a INT, b INT)", "CREATE VIEW g AS " + VIEWS["g"], "INSERT INTO t VALUES (1, 2), (2, 3)"]
    path = tmp_path / "db"
    write(path, said, partitions)
    for links in chains(path):
        parts = parts_of(path, links)
        rewrite(path, links, {key: image for key, image in parts.items() if not key.startswith(TABLE)})
    for count in (0, 2, 3):
        with pytest.raises(StorageError, match="no image of table t"):
            opened(path, count)
    with pytest.raises(StorageError, match="no image of table t"):
        whence.open(path, read_only=True)


@pytest.mark.parametrize("partitions", [0, 2])
def test_stream_view_whose_past_is_lost_begins_again_and_is_named(tmp_path: Path, partitions: int) -> None:
    path = tmp_path / "db"
    with opened(path, partitions) as db:
        db.execute("CREATE STREAM s (a INT) WITH (retain = '2 rows')")
        db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, rows => 4, every => 1)")
        db.insert("s", [(n,) for n in range(10)])
    for links in chains(path):
        parts = parts_of(path, links)
        rewrite(path, links, {key: image for key, image in parts.items() if not is_operator(key)})
    with pytest.raises(StorageError, match="for other partitions than it was written by"):
        opened(path, 3)
    with opened(path, partitions) as db:
        assert db.recovery is not None
        assert "no longer has the rows that w was made of" in db.recovery.damaged[-1]
        db.insert("s", [(n,) for n in range(10, 14)])
        assert db["w"].rows[-1] == (4,)
