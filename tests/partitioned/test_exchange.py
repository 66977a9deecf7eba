"""An epoch as one job whose tasks exchange messages: by sockets as on Spark, in threads of this process."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from tests.partitioned.pairs import held
from tests.partitioned.workers import Pool
from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import message_of_rows
from whence.model.codes import Dictionary
from whence.runtime import database
from whence.runtime.spark.driver.meeting import Meeting, share_out
from whence.runtime.spark.driver.options import Options
from whence.runtime.spark.worker import commands, exchange, spill
from whence.runtime.spark.worker.commands import CommandLog, PartitionCommand
from whence.runtime.spark.worker.connections import Address, FrameConnection, connect, connect_for_frames
from whence.runtime.spark.worker.dictionary_server import DRIVER, TASK, DictionaryServer
from whence.runtime.spark.worker.exchange import Arrival, Assignment, ExchangeTask, RoundOrder, RoundReport
from whence.runtime.spark.worker.peers import Frame, Peers
from whence.runtime.spark.worker.replica import Replica
from whence.runtime.spark.worker.worker import Setup

HERE = {"host": "127.0.0.1", "inline_rows": 0}
REACHABLE = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE VIEW reachable WITH (partition = 'exchange') AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
PROGRAM = f"""{REACHABLE}
    CREATE VIEW kept WITH (partition = 'exchange', maintain = 'absorption') AS
      SELECT src, dst FROM link UNION SELECT link.src, kept.dst FROM link JOIN kept ON link.dst = kept.src;
    CREATE VIEW degrees AS SELECT dst, COUNT(*) AS n FROM reachable GROUP BY dst
"""


def links(seed: int, count: int) -> list[tuple[str, str]]:
    some = random.Random(seed)
    return sorted({(f"n{some.randrange(count)}", f"n{some.randrange(count)}") for _ in range(2 * count)})


def work_on(db: whence.Database, after: Callable[[], None] = lambda: None) -> Any:
    """Load, change and redefine; return what is held in the end."""
    rows = links(1, 25)
    db.execute("CREATE TABLE first (src TEXT, dst TEXT)")
    db.insert("first", rows)
    db.execute(PROGRAM)
    db.insert("link", rows[:-5])
    after()
    for row in rows[:6]:
        db.delete("link", [row])
    after()
    db.insert("link", rows[-5:])
    db.execute("CREATE VIEW joined AS SELECT a.src, b.dst FROM first AS a JOIN first AS b ON a.dst = b.src")
    return held(db)


# -- whole databases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mail", ["sockets", "jobs"])
def test_epochs_by_sockets_and_by_jobs_equal_one_partition(mail: str, tmp_path: Path) -> None:
    pool = Pool(mail, fates=("well",))
    with (
        database.open() as plain,
        database.open(
            tmp_path / "db", spark=pool, partitions=5, durability="none", on_spark={**HERE, "mail": mail}
        ) as db,
    ):
        inside.run_as(db, "job")
        assert work_on(db) == work_on(plain)
        db.delete("link", db["link"].rows[:1])
        run = inside.driver(db).progress()  # before more is asked, by jobs
        assert db.metrics()["mail"] == mail
        assert run["supersteps"] > 2
        assert run["jobs"] == (1 if mail == "sockets" else run["supersteps"])
        assert ("in one job" if mail == "sockets" else "a job each") in db.explain("reachable")


def test_what_is_large_goes_by_file_and_is_replayed_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, and commands with the batches that they received."""
    monkeypatch.setattr(spill, "BULKY", 100)
    monkeypatch.setattr(commands, "BULKY", 1)
    pool = Pool("spill", fates=("well",))
    with (
        database.open() as plain,
        database.open(tmp_path / "db", spark=pool, partitions=5, durability="none", on_spark=HERE) as db,
    ):
        inside.run_as(db, "job")

        def forget() -> None:
            pool.rosters = [None] * len(pool.rosters)
            names = [path.name for path in (tmp_path / "db" / "exchange").iterdir()]
            assert any(name.startswith("x") and name.endswith(".npy") for name in names)
            assert any(name.startswith("x") and name.endswith(".steps") for name in names)

        assert work_on(db, forget) == work_on(plain)
        inside.run_as(db, "inline")  # copies that were never part of an exchange
        assert held(db) == held(plain)
        db.snapshot()
        assert not list((tmp_path / "db" / "exchange").glob("x*"))


def test_partitions_that_are_dropped_in_the_middle_of_an_epoch_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has memory for one of its partitions at a time."""
    loaded, load = list[int](), Replica.load

    def counting(replica: Replica, log: CommandLog) -> None:
        loaded.append(replica.number)
        load(replica, log)

    monkeypatch.setattr(Replica, "load", counting)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # of all that this process has: not what is tested here
    rows = links(2, 6)
    with database.open(partitions=4) as plain:
        plain.execute(REACHABLE)
        plain.insert("link", rows)
        settings = {**HERE, "worker_memory": int(1.2 * max(plain.metrics()["partition_bytes"]))}
        pool = Pool("small", fates=("well",))
        with database.open(tmp_path / "db", spark=pool, partitions=4, durability="none", on_spark=settings) as db:
            inside.run_as(db, "job")
            db.execute(REACHABLE)
            del loaded[:]
            db.insert("link", rows)
            assert len(loaded) > 2 * 4
            inside.run_as(db, "inline")
            assert held(db) == held(plain)


# -- what users set ---------------------------------------------------------------------------------------------------


def spark_with(**settings: str) -> Any:
    conf = {name.replace("_", "."): value for name, value in settings.items()}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, master="yarn"))


def test_mail_is_sockets_or_jobs() -> None:
    with pytest.raises(whence.WhenceError, match=r"mail is 'sockets'.*or 'jobs'.*not 'pigeons'"):
        whence.open(partitions=2, on_spark={"mail": "pigeons"})
    assert Options(spark_with()).choose_mail() == "sockets"
    assert Options(spark_with(), mail="jobs").choose_mail() == "jobs"


def test_dynamic_allocation_leaves_a_job_per_superstep(caplog: pytest.LogCaptureFixture) -> None:
    spark = spark_with(spark_dynamicAllocation_enabled="true")
    with caplog.at_level(logging.WARNING):
        assert Options(spark).choose_mail() == "jobs"
    assert "dynamicAllocation" in caplog.text
    with pytest.raises(whence.WhenceError, match=r"dynamicAllocation\.enabled=true; set that to false, or mail='jobs'"):
        Options(spark, mail="sockets").choose_mail()


# -- tasks and strangers ----------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[DictionaryServer]:
    with DictionaryServer(Dictionary()) as server:
        yield server


def frame(round_: int) -> Frame:
    batch = Batch(np.array([[round_, 2]]), np.array([1]))
    return Frame(round_, [(0, [message_of_rows("channel", 1, batch)])])


def test_frames_of_strangers_are_refused(server: DictionaryServer) -> None:
    """Whoever does not know the secret, whatever he sends; and who comes between two who do."""
    heard = threading.Event()
    lines: list[FrameConnection] = []

    def receive(line: FrameConnection) -> None:
        lines.append(line)
        heard.set()
        with pytest.raises(ConnectionError):
            line.receive()

    with server.admit(receive) as address, connect_for_frames(address, TASK, DRIVER) as driver:
        heard.wait(10)
        with Peers(driver, address.secret) as peers:
            there = (driver.own_host, peers.port)
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(48), b"\xff" * 1000):
                with socket.create_connection(there, 5) as stranger, contextlib.suppress(ConnectionError):
                    stranger.sendall(said)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(1 << 16):
                        pass
            with pytest.raises(ConnectionError):
                connect_for_frames(Address(*there, "guessed"), b"peer", b"peer")
            with pytest.raises(ConnectionError):  # the secret of the words does not open the door of tasks
                connect_for_frames(Address(*there, server.address.secret), b"peer", b"peer")
            one = connect_for_frames(Address(*there, address.secret), b"peer", b"peer")
            one.send(frame(1))
            assert peers.events.get(timeout=10).round == 1
            body = pickle.dumps(frame(2))
            one._socket.sendall(len(body).to_bytes(8, "little") + bytes(32) + body)  # into a connection that is good
            assert one._socket.recv(1) == b""
            other, key = connect(Address(*there, address.secret), b"peer", b"peer")
            twice = FrameConnection(other, key, is_server=False)
            twice.send(frame(3))
            twice._sent = 0
            twice.send(frame(3))  # what was sent before, once more
            assert other.recv(1) == b""
            assert peers.events.get(timeout=10).round == 3
            assert peers.events.empty()
            one.close()
            other.close()


def task_at(
    server: DictionaryServer, tasks: int, assign: Callable[[Sequence[Arrival]], Sequence[Assignment]]
) -> tuple[Meeting, Any]:
    """Let one of some tasks, without anything to do, come to a meeting; return that, and what the task returns."""
    setup = Setup("n", ".", 1, server.address, 0, 0, None, 1)
    meeting = Meeting(tasks, assign, lambda: 1)
    with server.admit(meeting.receive) as address:
        cache: Any = SimpleNamespace(held=dict, folder=Path())
        return meeting, ExchangeTask(cache, setup, 0).run(address)


def nothing(arrivals: Sequence[Arrival], peers: Sequence[tuple[str, int]] | None = None) -> list[Assignment]:
    places = peers or [(a.host, a.port) for a in arrivals]
    return [Assignment({0: CommandLog()}, {}, PartitionCommand(Epoch(0, 0, {})), (), [0], places) for _ in arrivals]


def test_a_task_with_nothing_to_do_comes_to_its_end(server: DictionaryServer) -> None:
    meeting, found = task_at(server, 1, nothing)
    assert (meeting.ended, meeting.error) == (True, None)
    assert found == exchange.TaskRecord([], {})


def test_a_frame_that_is_quicker_than_the_assignment_is_kept(server: DictionaryServer) -> None:
    def assign(arrivals: Sequence[Arrival]) -> list[Assignment]:
        (arrival,) = arrivals
        for address in server._server.admitted:
            there = Address(arrival.host, arrival.port, address)
            with connect_for_frames(there, b"peer", b"peer") as quicker:
                quicker.send(frame(0))
                threading.Event().wait(0.1)
        return nothing(arrivals)

    meeting, found = task_at(server, 1, assign)
    assert (meeting.ended, meeting.error) == (True, None)
    assert found == exchange.TaskRecord([], {})


def test_a_task_does_not_wait_for_ever_for_others(server: DictionaryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MEETING_PATIENCE", 0.1)
    meeting, found = task_at(server, 2, nothing)
    assert found is None
    with pytest.raises(whence.SparkError, match="the other tasks of its job have not come"):
        _wait_for_error(meeting)


def test_a_peer_that_cannot_be_reached_is_named(server: DictionaryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    def sends(task: ExchangeTask, peers: Peers, order: RoundOrder) -> RoundReport:
        task._send(peers, 1, frame(0))
        return RoundReport([1], None)

    monkeypatch.setattr(ExchangeTask, "_run_round", sends)
    meeting, found = task_at(server, 1, lambda some: nothing(some, [("127.0.0.1", 1), ("127.0.0.1", port)]))
    assert found is None
    with pytest.raises(whence.SparkError, match=rf'task 1 at 127.0.0.1:{port} cannot be reached.*"mail": "jobs"'):
        _wait_for_error(meeting)


def test_a_task_ends_when_another_is_lost_or_the_driver_goes(server: DictionaryServer) -> None:
    setup = Setup("n", ".", 1, server.address, 0, 0, None, 1)
    meeting = Meeting(2, nothing, lambda: 1)
    cache: Any = SimpleNamespace(held=dict, folder=Path())
    found: list[Any] = []
    with server.admit(meeting.receive) as address:
        task = threading.Thread(target=lambda: found.append(ExchangeTask(cache, setup, 0).run(address)))
        task.start()
        with connect_for_frames(address, TASK, DRIVER) as other:
            other.send(Arrival(1, other.own_host, 1, {}))
            assert isinstance(other.receive(), Assignment)
        task.join(10)
    assert found == [None]
    with pytest.raises(whence.SparkError, match="task 1 of 2 of the epoch's job is lost"):
        _wait_for_error(meeting)
    meeting = Meeting(2, nothing, lambda: 1)
    with server.admit(meeting.receive) as address:
        task = threading.Thread(target=lambda: found.append(ExchangeTask(cache, setup, 0).run(address)))
        task.start()
        while not meeting._lines:
            threading.Event().wait(0.01)
        server.close()
        task.join(10)
    assert found == [None, None]
    with pytest.raises(whence.SparkError, match=r"the driver at 127\.0\.0\.1:\d+ cannot be reached"):
        ExchangeTask(cache, setup, 0).run(address)


def _wait_for_error(meeting: Meeting) -> None:
    for _ in range(1000):
        if meeting.error is not None:
            raise meeting.error
        threading.Event().wait(0.01)


def test_partitions_go_where_they_are_but_no_task_gets_more_than_its_share() -> None:
    logs = [CommandLog(tokens=[3, 4], entries=[(), ()]) for _ in range(5)]
    everything, nobody = dict.fromkeys(range(5), (4, 3)), dict[int, tuple[int, int]]()
    homes = share_out(logs, [Arrival(0, "", 0, nobody), Arrival(1, "", 0, everything)])
    assert homes == [1, 1, 1, 0, 0]
    behind, undone = {3: (3, 0), 4: (4, 3)}, {3: (99, 4), 4: (98, 97)}
    assert share_out(logs, [Arrival(0, "", 0, behind), Arrival(1, "", 0, undone)])[3:] == [1, 0]
