"""The benchmark of serving runs with each peer that is here, and what its clients end with must be right."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from websockets.sync.server import ServerConnection, serve

from benchmarks import serving
from benchmarks.ledger import DisagreementError
from benchmarks.peers.nats_peer import CORE, JETSTREAM, UNSYNCED
from benchmarks.peers.postgres_peer import COPY_HEAD, COPY_TAIL, POSTGRES, copy_bytes
from benchmarks.report import WHENCE
from benchmarks.serving_absence import away, memory, restart, traders
from benchmarks.serving_data import (
    BY_VENUE,
    COLUMNS,
    HIGH_TRADERS,
    HOUR,
    VOLUME,
    ClientState,
    HighTraders,
    Market,
    compare,
    distinct_views,
    expect,
)
from benchmarks.serving_fanout import fanout
from benchmarks.serving_flow import ingest, latency, single, stalled
from benchmarks.serving_processes import Child, FailedError, Link, bytes_received
from benchmarks.serving_roles import Followed
from benchmarks.serving_run import PEERS, QUICK, Run, Section, Sizes
from benchmarks.serving_sockets import NatsMessages, PostgresAnswers, Receivers, WebSocketFrames, frame
from tests.depth import deep_only, some

TINY = replace(
    QUICK,
    ingest_events=3_000,
    single_events=100,
    clients=10,
    fan_seconds=0.3,
    idle_seconds=0.1,
    latency_seconds=0.4,
    trader_events=5_000,
    away_events=5_000,
    stalled_seconds=0.4,
    memory_to=6_000,
    restart_events=500,
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """A run of some peers; the test is skipped if one of them is not here."""

    def make(*peers: str) -> Run:
        for name in peers:
            if reason := PEERS[name].missing():
                pytest.skip(reason)
        # PostgreSQL runs as another user, who may not look into a test's folder
        folder = Path(tempfile.gettempdir()) if POSTGRES in peers else tmp_path
        return Run(TINY, Console(quiet=True), folder, peers)

    yield make
    assert not list(tmp_path.iterdir())  # servers delete what they had


def samples(section: Section) -> dict[str, set[str]]:
    """Return which peers each figure has; every sample is a number of something."""
    assert all(np.isfinite(value) for figure in section.figures for s in figure.samples.values() for value in s)
    return {figure.what: set(figure.samples) for figure in section.figures}


def test_events_flow_to_clients_of_brokers(run: Callable[..., Run]) -> None:
    here = run(CORE, JETSTREAM)
    assert samples(ingest(here)) == {"10 views, batches of 1,000": {CORE, JETSTREAM}}
    assert samples(single(here)) == {"single durable inserts, 4 connections": {JETSTREAM}}
    late = latency(here)
    assert [figure.what[-3:] for figure in late.figures] == ["p50", "p99"]
    assert all(0 < figure.of(peer) < 10_000 for figure in late.figures for peer in figure.samples)


def test_events_flow_to_clients_that_query(run: Callable[..., Run]) -> None:
    here = run(POSTGRES)
    for measure in (ingest, single):
        assert all(peers == {POSTGRES} for peers in samples(measure(here)).values())


def test_our_server_has_the_interface_of_its_peers(run: Callable[..., Run]) -> None:
    gone = away(run(WHENCE))
    assert [set(figure.samples) for figure in gone.figures] == [{WHENCE}, {WHENCE}]
    assert [check.what for check in gone.checks] == ["away for 5,000 trades: ms until current"]


@pytest.mark.parametrize("peer", some([WHENCE, CORE, POSTGRES], 1))
def test_every_raw_client_gets_every_epoch(run: Callable[..., Run], peer: str) -> None:
    section = fanout(run(peer))
    assert [figure.unit for figure in section.figures].count("messages/s") == 2
    if peer == CORE:
        epochs = int(TINY.fan_rate * TINY.fan_seconds)
        assert f"{epochs * TINY.clients:,} messages for {epochs} epochs" in section.notes[1]


@pytest.mark.parametrize("peer", some([CORE, POSTGRES], 1))
def test_a_client_of_alerts_counts_what_it_gets(run: Callable[..., Run], peer: str) -> None:
    messages, taken = traders(run(peer)).figures
    assert taken.of(peer) > 0
    if peer == CORE:
        assert messages.of(peer) == TINY.trader_events


@deep_only
def test_a_client_that_was_away_is_current_again(run: Callable[..., Run]) -> None:
    section = away(run(UNSYNCED, POSTGRES))
    until, taken = section.figures
    assert len(until.samples) == 4
    assert taken.of("JetStream replay, raw socket") > 30 * TINY.away_events
    assert "loaded without sync" in section.notes[0]


def test_a_stalled_client_is_current_or_cut_off(run: Callable[..., Run]) -> None:
    section = stalled(run(CORE))
    assert len(section.figures) == 4
    assert section.notes[-1].endswith(("current", "cut off"))


def test_memory_is_read_at_two_times(run: Callable[..., Run]) -> None:
    assert [len(figure.samples) for figure in memory(run(UNSYNCED)).figures] == [2, 2]


@deep_only
@pytest.mark.parametrize("peer", [JETSTREAM, POSTGRES])
def test_clients_are_current_after_a_kill(run: Callable[..., Run], peer: str) -> None:
    assert restart(run(peer)).figures[0].of(peer) > 0


def test_command_line_names_what_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.parse(["--only", "ingest,nothing"])
    assert "'nothing' is not one of ingest, single" in capsys.readouterr().err
    assert serving.parse(["--quick", "--peers", CORE]).peers == [CORE]


def test_scaled_sizes_keep_rates_and_batches() -> None:
    small = Sizes().scaled(0.1)
    assert (small.away_events, small.clients, small.fan_seconds) == (900_000, 100, 1.0)
    assert (small.latency_rate, small.ingest_batch, small.ingest_views) == (2_000, 1_000, 100)


def test_clients_compute_the_views_of_the_oracle() -> None:
    market = Market(issues=40, venues=3)
    views = [*distinct_views(9), BY_VENUE, VOLUME, HIGH_TRADERS]
    every = market.trades(0, 10_000)
    state = ClientState(views, market)
    for batch in market.batches(0, 10_000, 777):
        state.apply([batch[:5].tobytes(), batch[5:].tobytes()])
    assert state.number == 9_999
    expected = expect(views, every)
    assert all(expected.values())
    compare("client", state.rows(), expected)
    with pytest.raises(DisagreementError, match=r"client: volume has 39 rows, not 40"):
        compare("client", {**state.rows(), "volume": expected["volume"][1:]}, expected)


def test_a_high_trader_comes_once_and_leaves_once() -> None:
    trades = np.repeat(Market().trades(0, 1), 4)
    trades["shares"], trades["issue"] = 300_000, [1, 1, 2, 2]
    trades["time"] = [0, HOUR // 2, HOUR, HOUR + HOUR // 2 - 1]
    traders_now = HighTraders(10, 500_000)
    seen = []
    for place in range(4):
        traders_now.apply(trades[place : place + 1])
        seen.append([issue for (issue,) in traders_now.rows()])
        compare("numpy", {"high_traders": traders_now.rows()}, expect([HIGH_TRADERS], trades[: place + 1]))
    assert seen == [[], [1], [], [2]]
    assert traders_now.changes == 3


def test_issues_follow_zipf() -> None:
    counts = np.bincount(Market().trades(0, 200_000)["issue"], minlength=1_000)
    assert counts[0] == pytest.approx(200_000 / 7.485, rel=0.03)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)


def test_latency_counts_from_when_a_trade_was_due() -> None:
    followed = Followed(np.array([0.0, 1.0, 3.0]), np.array([9, 11, 13]), {}, 2, 0)
    assert followed.latencies(np.array([0.5, 0.5, 1.0, 2.5]), 10).tolist() == [0.5, 0.5, 2.0, 0.5]


def test_copy_has_the_binary_format() -> None:
    trades = Market().trades(5, 1)
    made = copy_bytes(trades)
    row = made[len(COPY_HEAD) : -len(COPY_TAIL)]
    assert row[:2] == len(COLUMNS).to_bytes(2, "big")
    assert row[2:14] == (8).to_bytes(4, "big") + int(trades["number"][0]).to_bytes(8, "big")


def test_raw_websocket_clients_count_frames_of_a_real_server() -> None:
    sizes = [8, 200, 70_000, 125, 126]

    def handle(connection: ServerConnection) -> None:
        said = connection.recv()
        connection.send(f"{said}!")
        for size in sizes:
            connection.send('{"x":"' + "x" * (size - 8) + '"}')
            assert connection.ping().wait(5.0)  # raw clients answer
        connection.recv()

    with serve(handle, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.socket.getsockname()[1]
        receivers = Receivers(port, WebSocketFrames("/", {}, [("hello", b"hello!")], 0), clients=3)
        while receivers.count(0).messages < 3 * len(sizes):
            receivers.receive(1.0)
        assert receivers.count(0).bytes >= 3 * sum(sizes)
        assert receivers.count(0).behind == 3  # no trade was told of
        assert bytes_received(port) > receivers.count(0).bytes  # the handshake is in it
        receivers.close()
        server.shutdown()


def test_messages_are_found_wherever_buffers_end() -> None:
    trade = Market().trades(7, 1)
    message = b"MSG trade.batch 1 32\r\n" + trade.tobytes() + b"\r\n"
    protocol = NatsMessages("trade.batch")
    for cut in range(len(message)):
        assert [piece.body for piece in protocol.split(message[:cut])] == []
    pieces = list(protocol.split(message + b"PING\r\n" + message))
    assert [piece.reply for piece in pieces] == [b"", b"PONG\r\n", b""]
    assert protocol.reflected(pieces[0].body or b"") == 7


def test_an_answer_of_postgres_ends_with_its_last_row() -> None:
    row = b"D\0\0\0\x12\0\2\0\0\0\1" + b"3" + b"\0\0\0\3" + b"417"
    done = row + b"C\0\0\0\rSELECT 1\0" + PostgresAnswers.IDLE
    protocol = PostgresAnswers("u", "d", "SELECT 1")
    assert not list(protocol.split(done[:-1]))
    (piece,) = protocol.split(done)
    assert protocol.reflected(piece.body or b"") == 417
    (notice,) = protocol.split(b"A\0\0\0\x0e\0\0\0\1trade\0")
    assert notice.again


def test_updates_of_whence_say_which_trade_they_reflect() -> None:
    protocol = WebSocketFrames("/", {}, [], column=1)
    assert protocol.reflected(b'{"type":"update","parts":[{"went":[[1],[5]],"came":[[1,2],[6,9]]}]}') == 9
    assert protocol.reflected(b'{"type":"state","columns":[[1],[4]],"last":true}') == 4
    assert protocol.reflected(b'{"type":"update","parts":[null]}') == -1
    assert frame(1, b"x" * 200)[1:4] == bytes([254, 0, 200])


def fail(link: Link) -> None:
    """Fail as a client may."""
    raise ValueError("no such trade")


def test_a_client_that_fails_ends_the_run() -> None:
    with Child(fail) as child, pytest.raises(FailedError, match="no such trade"):
        child.result(30.0)
