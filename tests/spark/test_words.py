"""Workers' dictionaries are prefixes of the driver's, whatever happens to the connection."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from whence import DataError, Interval, StorageError
from whence.model.codes import NULL, Dictionary
from whence.runtime.spark.worker import dictionary_server as words
from whence.runtime.spark.worker.connections import Address, connect
from whence.runtime.spark.worker.dictionary_server import DictionaryServer, RemoteDictionary


@pytest.fixture
def driver() -> Dictionary:
    return Dictionary()


@pytest.fixture
def server(driver: Dictionary) -> Iterator[DictionaryServer]:
    with DictionaryServer(driver) as server:
        yield server


def questions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many words each question of the worker has, from now on."""
    asked: list[int] = []
    exchange = RemoteDictionary._exchange

    def counting(self: RemoteDictionary, new: list[object]) -> int:
        asked.append(len(new))
        return exchange(self, new)

    monkeypatch.setattr(RemoteDictionary, "_exchange", counting)
    return asked


def test_new_words_get_the_drivers_codes(driver: Dictionary, server: DictionaryServer) -> None:
    driver.intern_all(["a", "b"])
    one, other = RemoteDictionary(server.address), RemoteDictionary(server.address)
    assert one.intern("c") == 2
    assert other.intern_all(["d", None, "c", "a"]).tolist() == [3, NULL, 2, 0]
    assert one.intern("é𝄞") == 4
    assert one.intern("") == 5
    assert one.intern(Interval(1, -2, 3)) == 6
    assert one.since(0) == driver.since(0) == ["a", "b", "c", "d", "é𝄞", "", Interval(1, -2, 3)]
    assert other.since(0) == driver.since(0)[:4]
    assert other.value(6) == Interval(1, -2, 3)


def test_a_column_is_one_question_and_known_words_none(
    server: DictionaryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = RemoteDictionary(server.address)
    asked = questions(monkeypatch)
    column = [f"w{i % 1000}" for i in range(5000)]
    codes = worker.intern_all(column)
    assert worker.values(codes) == column
    assert asked == [1000]
    worker.intern_all([*column, None])
    worker.intern("w7")
    worker.catch_up(1000)
    assert asked == [1000]


def test_more_words_than_a_message_holds(
    driver: Dictionary, server: DictionaryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "_WORDS", 10)
    monkeypatch.setattr(words, "_CHARACTERS", 40)
    one, other = RemoteDictionary(server.address), RemoteDictionary(server.address)
    one.intern_all(["x" * 100, *(f"word {i}" for i in range(57)), *"abcdefghijklmnop"])
    assert len(driver) == len(one) == 74
    other.catch_up(74)
    assert other.since(0) == one.since(0) == driver.since(0)


def test_codes_that_came_with_rows_are_looked_up(driver: Dictionary, server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    driver.intern_all(["b", "a", "c"])
    assert worker.values(np.array([2, NULL, 0])) == ["c", None, "b"]
    driver.intern("aa")
    order = worker.order_of(np.array([3, 0, 1]))
    assert order[2] < order[0] < order[1]
    with pytest.raises(StorageError, match="only 4 words"):
        worker.catch_up(5)


def test_half_a_surrogate_pair_is_refused_here(driver: Dictionary, server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    with pytest.raises(DataError, match="surrogate"):
        worker.intern_all(["fine", "\ud800"])
    assert len(driver) == 0
    assert worker.intern("fine") == 0


def test_threads_and_workers_agree(driver: Dictionary, server: DictionaryServer) -> None:
    workers = [RemoteDictionary(server.address) for _ in range(3)]
    failures: list[BaseException] = []

    def go(dictionary: Dictionary, seed: int) -> None:
        some = random.Random(seed)
        try:
            for _ in range(60):
                column = [f"w{some.randrange(800)}" for _ in range(some.randrange(30))]
                assert dictionary.values(dictionary.intern_all(column)) == column
                dictionary.intern(f"w{some.randrange(800)}")
        except BaseException as error:
            failures.append(error)

    asking = [*workers, *workers, driver]
    threads = [threading.Thread(target=go, args=(each, seed)) for seed, each in enumerate(asking)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    known = driver.since(0)
    assert len(set(known)) == len(known)
    for worker in workers:
        assert worker.since(0) == known[: len(worker)]


def test_a_lost_connection_is_opened_again(driver: Dictionary, server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    worker.intern("a")
    server._server.hang_up()
    assert worker.intern("b") == 1
    assert worker._connection is not None
    worker._connection.shutdown(socket.SHUT_RDWR)
    assert worker.intern("c") == 2
    assert driver.since(0) == ["a", "b", "c"]


def test_a_driver_that_is_gone_is_said(driver: Dictionary) -> None:
    server = DictionaryServer(driver)
    worker = RemoteDictionary(server.address)
    worker.intern("a")
    server.close()
    server.close()
    with pytest.raises(StorageError, match="cannot be reached"):
        worker.intern("b")
    assert worker.intern("a") == 0
    with pytest.raises(StorageError, match="cannot be reached"):
        RemoteDictionary(server.address).intern("a")


def test_a_worker_of_another_driver_is_refused(server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    worker.extend(0, ["some", "thing"])
    with pytest.raises(StorageError, match="you have 2 words, and there are only 0"):
        worker.intern("else")


def test_after_a_fork_each_process_has_its_own_connection(driver: Dictionary, server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    worker.intern("parent")
    worker._asking.acquire()  # as if another thread were asking while this one forks
    child = os.fork()
    if not child:
        try:
            good = worker.intern_all(["child", "parent"]).tolist() == [1, 0]
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    worker._asking.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.intern_all(["more", "child"]).tolist() == [2, 1]
    assert driver.since(0) == ["parent", "child", "more"]


def test_an_address_travels_and_keeps_its_secret_out_of_messages(server: DictionaryServer) -> None:
    address = server.address
    assert pickle.loads(pickle.dumps(address)) == address
    assert address.secret not in repr(address)


def test_a_wrong_secret_gets_nothing(driver: Dictionary, server: DictionaryServer) -> None:
    driver.intern("private")
    thief = RemoteDictionary(Address(server.address.host, server.address.port, "guessed"))
    with pytest.raises(StorageError, match="cannot be reached"):
        thief.catch_up(1)
    assert len(thief) == 0


def test_a_stranger_in_the_drivers_place_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def pretend() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(bytes(16))
                connection.recv(48)
                connection.sendall(bytes(32))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(StorageError, match="somebody else"):
            RemoteDictionary(Address("127.0.0.1", stranger.getsockname()[1], "secret")).intern("a")
        thread.join()


@pytest.mark.parametrize("greeted", [False, True])
def test_hostile_bytes_cost_only_their_connection(driver: Dictionary, server: DictionaryServer, greeted: bool) -> None:
    some = random.Random(greeted)
    honest = RemoteDictionary(server.address)
    honest.intern("a")
    question = words._message(words._QUESTION.pack(0, 1), ["b"])
    attacks = [b"", b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", words._LENGTH.pack(2**32 - 1), words._LENGTH.pack(0)]
    attacks += [words._LENGTH.pack(12) + words._QUESTION.pack(0, 2**32 - 1), question[:-1] + b"\xff"]
    attacks += [words._LENGTH.pack(16) + words._QUESTION.pack(0, 1) + b"\xff\xff\xff\x7f"]
    for _ in range(100):
        broken = bytearray(question)
        broken[some.randrange(len(broken) - 1)] = some.randrange(256)
        attacks.append(bytes(broken))
    for attack in attacks:
        if greeted:
            connection, _ = connect(server.address, words.WORKER, words.DRIVER)
        else:
            connection = socket.create_connection((server.address.host, server.address.port), 5)
        with connection:
            connection.settimeout(5)
            with contextlib.suppress(OSError):  # the server may be quicker to hang up
                connection.sendall(attack)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
    honest.intern("still there")
    assert honest.since(0) == driver.since(0)
    if not greeted:
        assert driver.since(0) == ["a", "still there"]


def test_worker_begins_anew_when_the_driver_has_forgotten_words(driver: Dictionary, server: DictionaryServer) -> None:
    worker = RemoteDictionary(server.address)
    assert worker.intern_all(["a", "b", "c"]).tolist() == [0, 1, 2]
    driver.forget(np.array([0, 2]))
    worker.follow(driver.forgotten)
    assert worker.intern_all(["b", "a", "c"]).tolist() == [1, 3, 4]
    assert (worker.words, worker.holes) == (driver.words, driver.holes) == (3, 2)
    worker.follow(driver.forgotten)
    assert len(worker) == 5
