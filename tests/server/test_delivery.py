"""What subscribers of a server are told: states, net changes, and each change; whoever is slow, away or waits."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.server.served import ServedDatabase, TestClient, served, wait_until
from whence.server.delivery import audience, explained, states, subscriber
from whence.subscribe import messages as ms
from whence.subscribe.positions import Position

FORMATS: tuple[ms.Format, ...] = ("json", "msgpack")
SETUP = """
CREATE TABLE t (a INT, b TEXT);
CREATE VIEW n AS SELECT b, COUNT(*) AS n FROM t GROUP BY b;
"""


@pytest.fixture
def db() -> Any:
    with whence.open() as db:
        db.execute(SETUP)
        db.insert("t", [(1, "x"), (2, "y")])
        yield db


@pytest.fixture
def server(db: Any) -> Any:
    with served(db) as server:
        yield server


@pytest.fixture
def short_ring(db: Any) -> Any:
    """A server that keeps few changes."""
    with served(db, limits={"ring_bytes": 50_000}) as server:
        yield server


def epoch(position: str) -> int:
    return Position.parse(position).epoch


def rows_of(db: Any, name: str) -> list[tuple[Any, ...]]:
    return sorted(db[name])


@pytest.mark.parametrize("format", FORMATS)
def test_a_subscriber_gets_columns_state_and_net_changes(server: ServedDatabase, format: ms.Format) -> None:
    with TestClient(server, format) as client:
        assert client.welcome.who == "owner"
        assert client.welcome.limits["subscriptions"] == 100
        assert client.subscribe("n").parts == [[("b", "TEXT"), ("n", "BIGINT")]]
        state = client.follow()
        assert (state.first, state.last, state.reason) == (True, True, "begin")
        assert sorted(client.rows[1][0]) == [("x", 1), ("y", 1)]
        server.db.insert("t", [(3, "x"), (4, "z")])
        update = client.follow()
        [change] = update.parts
        assert sorted(zip(*change.came, strict=True)) == [("x", 2), ("z", 1)]
        assert list(zip(*change.went, strict=True)) == [("x", 1)]
        assert epoch(update.at) == epoch(update.since) + 1
        assert update.time > 0
        assert sorted(client.rows[1][0]) == rows_of(server.db, "n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_arrives(server: ServedDatabase, format: ms.Format) -> None:
    server.db.execute(
        "CREATE TABLE k (b BOOLEAN, i INT, g BIGINT, d DOUBLE, c DECIMAL(10,2), s TEXT, y DATE, z TIMESTAMP)"
    )
    server.db.execute(
        "INSERT INTO k VALUES (true, 1, 9007199254740993, 0.5, 2.5, 'é', '2026-11-17', '2026-11-17 10:32')"
    )
    server.db.execute("INSERT INTO k VALUES (NULL, NULL, NULL, 'NaN'::DOUBLE, NULL, NULL, NULL, NULL)")
    with TestClient(server, format) as client:
        types = ["BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL(10,2)", "TEXT", "DATE", "TIMESTAMP"]
        assert [type for _, type in client.subscribe("k").parts[0]] == types
        client.follow()
        assert sorted(client.rows[1][0], key=str) == [
            (None, None, None, "NaN", None, None, None, None),
            (True, 1, "9007199254740993", 0.5, "2.50", "é", "2026-11-17", "2026-11-17T10:32:00"),
        ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_query_with_parameters_is_a_subscription(server: ServedDatabase, format: ms.Format) -> None:
    with TestClient(server, format) as one, TestClient(server, format) as other:
        one.subscribe("SELECT a FROM t WHERE b = ?", params=["x"])
        other.subscribe("select A from T where B = :b", params={"b": "x"})
        assert one.follow().columns == other.follow().columns == [[1]]
        assert server.db._coordinator.hub.counts["definitions"] == 1, "equal queries share a view"
        server.db.insert("t", [(5, "x"), (6, "y")])
        assert one.follow().parts[0].came == other.follow().parts[0].came == [[5]]


def test_a_client_goes_on_from_its_position(server: ServedDatabase) -> None:
    with TestClient(server) as watching, TestClient(server) as client:
        watching.subscribe("n")
        client.subscribe("n")
        client.follow()
        have, rows = client.at[1], client.rows[1]
        client.send(ms.Unsubscribe(1))
        for i in range(5):
            server.db.insert("t", [(i, "x")])
        watching.follow_until(lambda: ("x", 6) in watching.rows[1][0] if 1 in watching.rows else False)
        with TestClient(server) as again:
            again.subscribe("n", have=have)
            again.at[1], again.rows[1] = have, rows
            update = again.follow()
            assert isinstance(update, ms.UpdateMessage), "the difference, not the state"
            assert sorted(again.rows[1][0]) == rows_of(server.db, "n")
        with TestClient(server) as current:
            current.subscribe("n", have=again.at[1])
            current.at[1], current.rows[1] = again.at[1], again.rows[1]
            server.db.insert("t", [(7, "y")])
            assert isinstance(current.follow(), ms.UpdateMessage), "nothing was told before something changed"


def test_a_position_of_another_history_begins_anew(server: ServedDatabase) -> None:
    at = server.db.position
    for have in (f"{'0' * 12}.{at.era}.1", f"{at.history}.{'0' * 8}.1", str(at._replace(epoch=at.epoch + 1000))):
        with TestClient(server) as client:
            client.subscribe("n", have=have)
            assert client.follow().reason == "restarted"
    with TestClient(server) as client:
        error = client.subscribe("n", have="yesterday")
        assert (error.code, error.final, error.id) == ("DataError", True, 1)


def test_a_restored_folder_is_another_history(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(SETUP)
        db.insert("t", (1, "x"))
        db.backup(tmp_path / "backup")
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with whence.open(tmp_path / "db") as db:
        db.insert("t", (2, "x"))
        known = str(db.position)
        with served(db) as server, TestClient(server) as client:
            client.subscribe("n", have=known)
            db.insert("t", (3, "x"))
            client.at[1], client.rows[1] = known, [[("x", 2)]]
            assert isinstance(client.follow(), ms.UpdateMessage)
    for folder in ("backup", "copy"):
        with whence.open(tmp_path / folder) as db:
            db.insert("t", (9, "y"))
            with served(db) as server, TestClient(server) as client:
                client.subscribe("n", have=known)
                assert client.follow().reason == "restarted", folder
                assert sorted(client.rows[1][0]) == [("x", 1), ("y", 1)]


# -- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_large_state_comes_in_chunks(server: ServedDatabase, format: ms.Format) -> None:
    server.db.execute("CREATE TABLE big (a INT, b TEXT)")
    server.db.insert("big", [(i, f"text {i % 1000}") for i in range(20_000)] + [(1, "text 1")] * 3)
    with TestClient(server, format) as client:
        client.subscribe("big", "n")
        found = client.follow_until(lambda: 1 in client.rows)
        assert len(found) > 2
        assert [m.first for m in found] == [True] + [False] * (len(found) - 1)
        assert [m.last for m in found] == [False] * (len(found) - 1) + [True]
        assert len({m.at for m in found}) == 1
        assert all(m.arrow is not None for m in found[:-1]) == (format == "msgpack")
        assert sorted(client.rows[1][0]) == rows_of(server.db, "big")
        assert sorted(client.rows[1][1]) == rows_of(server.db, "n")


def test_wide_rows_make_small_chunks(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE wide (a INT, b TEXT)")
    server.db.insert("wide", [(i, f"{i}" * 20_000) for i in range(30)])
    with TestClient(server) as client:
        client.subscribe("wide")
        found = client.follow_until(lambda: 1 in client.rows)
        assert max(len(ms.encode_message(m, "json")) for m in found) < 3 * states.CHUNK_BYTES
        assert sorted(client.rows[1][0]) == rows_of(server.db, "wide")


def test_an_empty_relation_has_a_state(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE nothing (a INT)")
    with TestClient(server) as client:
        client.subscribe("nothing", "nothing")
        found = client.follow_until(lambda: 1 in client.rows)
        assert [m.part for m in found] == [0, 1]
        assert client.rows[1] == [[], []]
        server.db.insert("nothing", (1,))
        client.follow()
        assert client.rows[1] == [[(1,)], [(1,)]]


def stalled(server: ServedDatabase, *queries: str, **options: Any) -> TestClient:
    """Return a client that has subscribed and does not read, with little room on the way to it."""
    client = TestClient(server, raw=True)
    client.send(ms.Subscribe(1, list(queries), **options))
    return client


def is_blocked(server: ServedDatabase) -> bool:
    return any(connection.blocked for connection in list(server.gateway.connections))


def test_a_slow_reader_gets_the_net_difference(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE k (id INT PRIMARY KEY, v TEXT)")
    text = "z" * 10_000
    with stalled(server, "k") as client:
        rounds = 0
        while not is_blocked(server):
            server.db.insert("k", [(i, f"{text}{rounds}") for i in range(10)])
            rounds += 1
            assert rounds < 3000
            time.sleep(0.001)
        sent = server.gateway.metrics.updates
        for last in range(100):
            server.db.insert("k", [(i, f"{text}{last}") for i in range(10)])
        assert server.gateway.metrics.updates == sent, "nothing is sent to a client that does not read"
        connection = next(iter(server.gateway.connections))
        assert connection.transport.get_write_buffer_size() + connection._waiting_bytes < 500_000
        client.receive(ms.Subscribed)
        client._columns[1] = [None]
        wanted = rows_of(server.db, "k")
        client.follow_until(lambda: sorted(client.rows.get(1, [[]])[0]) == wanted)
        assert server.gateway.metrics.coalesced >= 1
        assert server.gateway.metrics.updates <= sent + 3


def test_a_client_that_stalls_in_a_state_begins_it_again(
    short_ring: ServedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = short_ring
    monkeypatch.setattr(subscriber, "STALLED", 0.05)
    server.db.execute("CREATE TABLE big (a INT, b TEXT)")
    server.db.insert("big", [(i, f"{i}" * 200) for i in range(20_000)])
    with stalled(server, "big") as client:
        wait_until(lambda: is_blocked(server))
        for i in range(30):
            server.db.insert("big", [(i, f"new {i} {j}") for j in range(200)])
        wait_until(lambda: server.gateway.metrics.states_again)
        client.receive(ms.Subscribed)
        client._columns[1] = [None]
        found = client.follow_until(lambda: len(client.rows.get(1, [[]])[0]) == 26_000)
        assert sum(getattr(m, "first", False) for m in found) == 2
        assert sorted(client.rows[1][0]) == rows_of(server.db, "big")


def test_a_client_too_far_behind_gets_the_state(short_ring: ServedDatabase) -> None:
    server = short_ring
    with TestClient(server) as watching, TestClient(server) as client:
        watching.subscribe("t")
        watching.follow()
        have = watching.at[1]
        for i in range(30):
            server.db.insert("t", [(i, f"w{i} {j}") for j in range(200)])
        client.subscribe("t", have=have)
        wanted = rows_of(server.db, "t")
        found = client.follow_until(lambda: 1 in client.rows and sorted(client.rows[1][0]) == wanted)
        assert found[0].reason == "behind"


def test_a_large_difference_comes_in_several_updates(server: ServedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "LARGE_CHANGE", 100)
    monkeypatch.setattr(audience, "MOST_ROWS", 500)
    with TestClient(server) as watching, TestClient(server) as client:
        watching.subscribe("t")
        watching.follow()
        have, rows = watching.at[1], [list(watching.rows[1][0])]
        for i in range(20):
            server.db.insert("t", [(i, f"w{j}") for j in range(200)])
        client.subscribe("t", have=have)
        client.at[1], client.rows[1] = have, rows
        wanted = rows_of(server.db, "t")
        found = client.follow_until(lambda: sorted(client.rows[1][0]) == wanted)
        assert all(isinstance(m, ms.UpdateMessage) for m in found)
        assert 8 <= len(found) <= 20, "no more than 500 rows each, but whole epochs"


# -- how to be told --------------------------------------------------------------------------------------------------


def test_several_queries_move_together(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE u (a INT); CREATE VIEW both AS SELECT COUNT(*) AS n FROM u")
    with TestClient(server) as client:
        client.subscribe("u", "SELECT n FROM both", "SELECT COUNT(*) AS n FROM u WHERE a % 2 = 0")
        client.follow_until(lambda: 1 in client.rows)
        for i in range(200):
            server.db.insert("u", (i,))
        while len(client.rows[1][0]) < 200:
            client.follow()
            rows, [(count,)], [(even,)] = client.rows[1]
            assert (len(rows), sum(a % 2 == 0 for (a,) in rows)) == (count, even)


def test_every_change_is_told_by_itself(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        client.subscribe("t", every_change=True)
        client.follow()
        for i in range(50):
            server.db.insert("t", (i, "x"))
            server.db.insert("t", (i, "y"))
        told = [client.follow() for _ in range(100)]
        assert all(epoch(m.at) == epoch(m.since) + 1 for m in told)
        assert [m.parts[0].came for m in told] == [[[i // 2], ["xy"[i % 2]]] for i in range(100)]


def test_changes_that_are_gone_are_told_as_lost(short_ring: ServedDatabase) -> None:
    server = short_ring
    with TestClient(server) as watching, TestClient(server) as client:
        watching.subscribe("t", every_change=True)
        watching.follow()
        have = watching.at[1]
        for i in range(30):
            server.db.insert("t", [(i, f"w{i} {j}") for j in range(200)])
        client.subscribe("t", have=have, every_change=True)
        lost = client.follow()
        assert isinstance(lost, ms.Lost)
        assert lost.since == have
        assert epoch(lost.at) > epoch(have)
        wanted = rows_of(server.db, "t")
        found = client.follow_until(lambda: 1 in client.rows and sorted(client.rows[1][0]) == wanted)
        assert found[0].reason == "behind"


def test_every_so_often(server: ServedDatabase) -> None:
    with TestClient(server) as client, TestClient(server) as other:
        client.subscribe("t", every=0.3)
        client.follow()
        other.subscribe("t")
        other.follow()
        for i in range(10):
            server.db.insert("t", (i, "q"))
            other.follow()
        wanted = rows_of(server.db, "t")
        found = client.follow_until(lambda: sorted(client.rows[1][0]) == wanted)
        assert len(found) <= 2, "the first one, and one for the rest"


def test_waiting_for_a_position_is_answered_without_a_change(server: ServedDatabase) -> None:
    server.db.execute("CREATE TABLE other (x INT)")
    with TestClient(server) as client:
        client.subscribe("n")
        client.follow()
        client.send(ms.InsertMessage(1, "other", rows=[[1]]))
        done = client.receive(ms.Done)
        client.send(ms.Wait(1, done.at))
        update = client.follow()
        assert update.parts == [None]
        assert epoch(update.at) >= epoch(done.at)
        client.send(ms.Wait(1, str(server.db.position._replace(epoch=server.db.position.epoch + 1))))
        server.db.insert("other", (2,))
        assert client.follow().parts == [None], "the wait was for an epoch to come"
        client.send(ms.Wait(1, f"{'0' * 12}.{'0' * 8}.5"))
        error = client.receive(ms.ErrorMessage)
        assert (error.code, error.id, error.final) == ("DataError", 1, False)
        server.db.insert("t", (9, "x"))
        assert client.follow().parts != [None], "it goes on"


def test_unsubscribing_ends_it(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        client.subscribe("n")
        client.follow()
        client.subscribe("t", id=2)
        client.follow(2)
        client.send(ms.Unsubscribe(1))
        client.send(ms.Unsubscribe(99))
        client.send(ms.CallMessage(1, "position", {}))
        client.receive(ms.ResultMessage)
        server.db.insert("t", (9, "x"))
        assert client.receive(ms.UpdateMessage).id == 2
        wait_until(lambda: server.gateway.delivery.subscriptions == 1)


def test_witnesses_are_as_of_the_update(server: ServedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explained, "SECONDS", 60.0)
    with TestClient(server) as client:
        client.subscribe("SELECT b FROM t WHERE a > 1", why=True)
        state = client.follow()
        assert state.columns == [["y"]]
        assert state.why == [[[["t", {"a": 2, "b": "y"}]]]]
        server.db.insert("t", [(7, "z")])
        [change] = client.follow().parts
        assert (change.came, change.why) == ([["z"]], [[[["t", {"a": 7, "b": "z"}]]]])
        for i in range(20):
            server.db.insert("t", (100 + i, f"w{i}"))
        wanted = sorted((b,) for a, b in server.db["t"] if a > 1)
        for message in client.follow_until(lambda: sorted(client.rows[1][0]) == wanted):
            [change] = message.parts
            for row, why in zip(change.came[0], change.why, strict=True):
                assert [witness[0][1]["b"] for witness in why] == [row]


# -- definitions that change -----------------------------------------------------------------------------------------


def test_a_redefined_view_is_told_anew(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        client.subscribe("n", id=1)
        client.follow(1)
        client.subscribe("SELECT b FROM n", id=2)
        client.follow(2)
        server.db.execute("CREATE OR REPLACE VIEW n AS SELECT b, SUM(a) AS total, COUNT(*) AS n FROM t GROUP BY b")
        told: dict[int, list[Any]] = {1: [], 2: []}
        while len(told[1]) < 2 or len(told[2]) < 2:
            message = client.receive()
            client.apply(message)
            told[message.id].append(message)
        assert [type(m) for m in told[1]] == [type(m) for m in told[2]] == [ms.Subscribed, ms.State]
        assert [name for name, _ in told[1][0].parts[0]] == ["b", "total", "n"]
        assert told[1][1].reason == told[2][1].reason == "redefined"
        assert sorted(client.rows[1][0]) == rows_of(server.db, "n")
        server.db.insert("t", (5, "x"))
        client.apply(client.receive(ms.UpdateMessage))
        assert sorted(client.rows[1][0]) == rows_of(server.db, "n")


def test_a_dropped_view_ends_with_an_error(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        client.subscribe("n", id=1)
        client.follow(1)
        client.subscribe("SELECT b FROM n", id=2)
        client.follow(2)
        server.db.execute("DROP VIEW n")
        errors = {message.id: message for message in (client.receive(ms.ErrorMessage), client.receive(ms.ErrorMessage))}
        assert set(errors) == {1, 2}
        assert all(error.final and error.code == "CatalogError" for error in errors.values())
        client.subscribe("t", id=1)
        assert isinstance(client.follow(1), ms.State), "its number is free again"


def test_each_change_before_a_redefinition_is_told(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        client.subscribe("SELECT a FROM t", every_change=True)
        client.follow()
        for i in range(20):
            server.db.insert("t", (50 + i, "q"))
        server.db.execute("DROP VIEW n; DROP TABLE t")
        told = [client.receive() for _ in range(21)]
        assert [m.parts[0].came for m in told[:20]] == [[[50 + i]] for i in range(20)]
        assert told[20].final


def test_a_query_that_cannot_be_subscribed_to_is_an_error(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        for id, (query, code) in enumerate(
            {"SELECT": "SqlError", "ghost": "CatalogError", "SELECT q FROM t": "SqlError", "": "SqlError"}.items()
        ):
            error = client.subscribe(query, id=id)
            assert (error.code, error.id, error.final) == (code, id, True), error
        client.send(ms.Subscribe(9, []))
        assert client.receive().final
        assert client.subscribe("t", id=10, every=-1).code == "DataError"
        assert isinstance(client.subscribe("t", id=11), ms.Subscribed)


def test_limits_of_subscriptions(db: Any) -> None:
    limits = {"subscriptions": 3, "queries": 2, "definitions_per_user": 2}
    with served(db, limits=limits) as server, TestClient(server) as client:
        assert client.subscribe("t", "t", "t", id=1).code == "LimitError"
        for id in (2, 3):
            client.subscribe(f"SELECT a + {id} AS c FROM t", id=id)
            client.follow(id)
        assert client.subscribe("SELECT a + 9 AS c FROM t", id=4).code == "LimitError"
        assert isinstance(client.subscribe("t", id=5), ms.Subscribed)
        client.follow(5)
        error = client.subscribe("t", id=6)
        assert (error.code, error.final) == ("LimitError", True)


def test_nothing_is_left_of_clients_that_go(server: ServedDatabase) -> None:
    hub = server.db._coordinator.hub
    for _ in range(20):
        with TestClient(server) as client:
            client.subscribe("SELECT a FROM t WHERE a > 0")
            client.follow()
    wait_until(lambda: not server.gateway.connections and not server.gateway.delivery.subscriptions)
    hub.linger = 0.0
    wait_until(lambda: hub.counts["definitions"] == 0)
    assert not server.gateway.delivery.admissions._all


# -- whatever the database -------------------------------------------------------------------------------------------


def test_a_follower_is_served(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as writer:
        writer.execute(SETUP)
        writer.insert("t", (1, "x"))
        reader = whence.open(tmp_path / "db", read_only=True)
        with reader, served(reader) as server, TestClient(server) as client:
            client.subscribe("n", "t")
            client.follow_until(lambda: 1 in client.rows)
            for i in range(5):
                writer.insert("t", (2 + i, "x"))
            client.follow_until(lambda: client.rows[1][0] == [("x", 6)])
            assert len(client.rows[1][1]) == 6
            client.send(ms.InsertMessage(1, "t", rows=[[1, "x"]]))
            assert client.receive(ms.ErrorMessage).seq == 1
            assert client.subscribe("SELECT a FROM t WHERE a > 1", id=2).final, "it keeps no views of its own"


@pytest.mark.parametrize("durability", ["commit", "interval", "none"])
def test_only_what_is_stable_is_told_whatever_the_durability(tmp_path: Path, durability: Any) -> None:
    with whence.open(tmp_path / "db", durability=durability, sync_interval=0.05) as db:
        db.execute(SETUP)
        with served(db) as server, TestClient(server) as client:
            client.subscribe("t")
            client.follow()
            for i in range(20):
                db.insert("t", (i, "x"))
                while len(client.rows[1][0]) < i - 5:
                    told = epoch(client.follow().at)
                    assert told <= db._coordinator.durable_epoch
            client.follow_until(lambda: len(client.rows[1][0]) == 20)


def test_partitions_are_served() -> None:
    with whence.open(partitions=2) as db:
        db.execute(SETUP)
        with served(db) as server, TestClient(server) as client:
            client.subscribe("n", "SELECT b, SUM(a) AS s FROM t GROUP BY b")
            client.follow_until(lambda: 1 in client.rows)
            for i in range(10):
                db.insert("t", [(i, "x"), (i, "y")])
            client.follow_until(lambda: sorted(client.rows[1][0]) == [("x", 10), ("y", 10)])
            assert sorted(client.rows[1][1]) == [("x", 45), ("y", 45)]


def test_a_server_that_is_closed_leaves_nothing_in_the_database(db: Any) -> None:
    hub = db._coordinator.hub
    for _ in range(2):
        with served(db) as server, TestClient(server) as client:
            client.subscribe("SELECT a FROM t WHERE a > 0")
            client.follow()
        assert hub.counts["definitions"] == hub.counts["channels"] == 0
        assert hub.linger == 0.0
    db.insert("t", (3, "z"))


def test_reminders_do_not_pile_up(server: ServedDatabase) -> None:
    with TestClient(server) as client, TestClient(server) as other:
        client.subscribe("t", every=1000)
        client.follow()
        other.subscribe("t")
        other.follow()
        for i in range(50):
            server.db.insert("t", (i, "q"))
            other.follow()
        assert len(server.gateway.delivery._reminders) == 1


def test_views_that_wait_for_subscribers_make_room(db: Any) -> None:
    with served(db, limits={"definitions": 3}) as server, TestClient(server) as client:
        for id in range(10):
            assert isinstance(client.subscribe(f"SELECT a + {id} AS c FROM t", id=id), ms.Subscribed)
            client.follow(id)
            client.send(ms.Unsubscribe(id))
            wait_until(lambda: not server.gateway.delivery.subscriptions)
        assert server.db._coordinator.hub.counts["definitions"] <= 3
        for id in range(20, 23):
            client.subscribe(f"SELECT a + {id} AS c FROM t", id=id)
            client.follow(id)
        assert client.subscribe("SELECT a + 99 AS c FROM t", id=30).code == "LimitError"


def test_parameters_of_any_size_are_answered(server: ServedDatabase) -> None:
    with TestClient(server) as client:
        for id, value in enumerate((10**30, -(2**70), [[[]]], {"a": 1}, None, 1e300)):
            client.send(ms.Subscribe(id, ["SELECT a FROM t WHERE a = ?"], params=[value]))
            answer = client.receive()
            assert isinstance(answer, ms.Subscribed) or (answer.final and answer.code.endswith("Error")), answer
            if isinstance(answer, ms.Subscribed):
                client.apply(answer)
                client.follow(id)
