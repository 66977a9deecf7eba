"""The dictionary of a database that runs on Spark: kept in the driver, asked by workers through a socket.

Tasks of an exchange meet at the same port (`admit`).

The invariant: a worker's dictionary is a prefix of the driver's, so a code means the same word everywhere. A worker
that meets unknown words says how many words it has and which it lacks; the driver gives those a code and answers with
all words from there on. One question brings a whole column, however many words of it are new.

    greeting    see `connections.py`
    question    <length> have, count, the words: their lengths, then all of their text (`state.codec.pack_words`)
    answer      <length> NEWS, the driver's total, count, the words; or TAKEN, the total, 0: there is no other news than
                the words of the question, in their order; or REFUSED, 0, 0, and why

Whoever does not know the secret, or sends anything else than the above, loses the connection and nothing more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from whence.model.codes import FORGOTTEN, NULL, Codes, Dictionary
from whence.model.errors import DataError, StorageError
from whence.runtime.spark.worker.connections import Address, FrameConnection, connect, greet, receive_exactly
from whence.state.codec import pack_words, unpack_words

_log = logging.getLogger(__name__)
_LENGTH = struct.Struct("<I")
_QUESTION = struct.Struct("<QI")
_ANSWER = struct.Struct("<BQI")
_REFUSED, _NEWS, _TAKEN = 0, 1, 2
_LIMIT = 1 << 30  # bytes of a message
_WORDS, _CHARACTERS = 1 << 18, 1 << 26  # of a message; more are sent in several
_PATIENCE = 60.0  # seconds for the other side to say something
WORKER, TASK, DRIVER = b"worker", b"task", b"driver"  # who asks for words, who comes to a meeting, who listens


class DictionaryServer:
    """Answers the workers' questions, in threads of the driver; one a database.

    >>> words = Dictionary(); words.intern("a")
    0
    >>> server = DictionaryServer(words)
    >>> worker = RemoteDictionary(server.address); worker.intern_all(["b", None, "a", "b"]).tolist()
    [1, -9223372036854775808, 0, 1]
    >>> words.since(0)
    ['a', 'b']
    >>> worker.close(); server.close()
    """

    def __init__(self, dictionary: Dictionary, host: str | None = None, port: int = 0):
        """`host` is where workers find the driver; without one, only this machine's own processes can ask."""
        host = host or "127.0.0.1"
        self._server = _listen(host, port)
        self._server.dictionary, self._server.secret = dictionary, secrets.token_hex(32)
        self._server.admitted = {}
        self.address = Address(host, self._server.server_address[1], self._server.secret)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="whence-words", daemon=True
        )
        self._thread.start()

    @contextmanager
    def admit(self, receive: Callable[[FrameConnection], None]) -> Iterator[Address]:
        """Let tasks in that know the secret of the address; each is received in a thread of its own. Hang up on them
        at the end."""
        secret, open_ = secrets.token_hex(32), set[FrameConnection]()

        def received(connection: FrameConnection) -> None:
            open_.add(connection)
            receive(connection)

        self._server.admitted[secret] = received
        try:
            yield Address(self.address.host, self.address.port, secret)
        finally:
            del self._server.admitted[secret]
            for connection in list(open_):
                connection.close()

    def close(self) -> None:
        """Hang up on everybody. Closing twice is the same as once."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.hang_up()

    def __enter__(self) -> DictionaryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteDictionary(Dictionary):
    """A worker's copy of the driver's dictionary, which asks the driver for what it does not know."""

    def __init__(self, address: Address):
        super().__init__()
        self.address = address
        self._begin()

    def _begin(self) -> None:
        """In a new process: the locks and the connection of the parent are not ours."""
        self._process = os.getpid()
        self._adding, self._asking = threading.Lock(), threading.Lock()
        self._connection: socket.socket | None = None
        # A thread of the parent may have stopped between a word and its code.
        if self._value and self._value[-1] is not FORGOTTEN:
            self._code.setdefault(self._value[-1], len(self._value) - 1)

    def close(self) -> None:
        """Hang up; the next question opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # What differs from a dictionary that stands alone: new words are the driver's to give.

    def _add(self, value: Hashable) -> int:
        self._ask([_checked(value)])
        return self._code[value]

    def intern_all(self, values: Iterable[Any]) -> Codes:
        values = values if isinstance(values, (list, tuple)) else list(values)
        get = self._code.get
        try:
            return np.fromiter(map(get, values), np.int64, len(values))
        except TypeError:  # there is a None among the codes: a value that is new, or None itself
            distinct = dict.fromkeys(values)
            distinct.pop(None, None)
            if new := [_checked(value) for value in distinct if get(value) is None]:
                self._ask(new)
            return np.array([NULL if value is None else self._code[value] for value in values], np.int64)

    def value(self, code: int) -> Any:
        self.catch_up(code + 1)
        return super().value(code)

    def values(self, codes: Codes) -> list[Any]:
        self._know(codes)
        return super().values(codes)

    def order_of(self, codes: Codes) -> Codes:
        self._know(codes)
        return super().order_of(codes)

    def _know(self, codes: Codes) -> None:
        if len(codes):
            self.catch_up(int(codes.max()) + 1)

    def follow(self, forgotten: int) -> None:
        """Begin anew if the driver has forgotten words since: those that are left have the same codes."""
        if self.forgotten != forgotten:
            with self._asking, self._adding:
                self._code, self._value, self.holes = {}, [], 0
                self._sorted, self._labelled = [], 0
                self.order_version, self.forgotten = self.order_version + 1, forgotten

    def catch_up(self, length: int) -> None:
        """Have at least the first `length` words of the driver."""
        if len(self) < length:
            self._ask([])
            if len(self) < length:
                raise StorageError(f"a code of word {length - 1}, but the driver has given out only {len(self)} words")

    # Asking

    def _ask(self, words: list[Any]) -> None:
        """Get all words of the driver, which has taken in `words`."""
        if self._process != os.getpid():
            self._begin()
        with self._asking:
            for portion in _portions(words):
                while self._exchange(portion) > len(self):  # in this order
                    portion = []

    def _exchange(self, words: list[Any]) -> int:
        """One question; takes in what is answered and returns how many words the driver has."""
        have = len(self)
        try:
            total, new = self._send(have, words)
        except ValueError as error:
            self.close()
            raise StorageError(f"{self._where()} answered with something else than words ({error})") from None
        if not self.extend(have, new) or len(self) < min(total, have + 1):
            self.close()
            raise StorageError(f"{self._where()} has other words than this process, which has {have}")
        return total

    def _send(self, have: int, words: list[Any]) -> tuple[int, list[Any]]:
        message = _message(_QUESTION.pack(have, len(words)), words)
        fresh = self._connection is None
        try:
            return self._converse(message, words)
        except OSError as error:
            self.close()
            if fresh:
                raise self._gone(error) from error
        try:  # the connection was an old one: it may have been lost since, with the driver still there
            return self._converse(message, words)
        except OSError as error:
            self.close()
            raise self._gone(error) from error

    def _converse(self, message: bytes, words: list[Any]) -> tuple[int, list[Any]]:
        if self._connection is None:
            self._connection, _ = connect(self.address, WORKER, DRIVER)
            self._connection.settimeout(_PATIENCE)
        self._connection.sendall(message)
        answer = _receive(self._connection)
        try:
            kind, total, count = _ANSWER.unpack_from(answer)
        except struct.error:
            raise ValueError("an answer that ends in its head") from None
        body = answer[_ANSWER.size :]
        if kind == _REFUSED:
            self.close()
            raise StorageError(f"{self._where()} refused: {str(body, 'utf-8')}")
        return total, words if kind == _TAKEN else _unpack(body, count)

    def _where(self) -> str:
        return f"the driver at {self.address.host}:{self.address.port}, which gives out words,"

    def _gone(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._where()} cannot be reached ({error or type(error).__name__}); "
            "has the database been closed, or does a firewall stand between?"
        )


# The server's side


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    dictionary: Dictionary
    secret: str
    admitted: dict[str, Callable[[FrameConnection], None]]  # tasks, by the secrets of their meetings

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily):
        self.address_family = family
        self._open: set[socket.socket] = set()
        super().__init__(address, _Conversation)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.warning("a conversation about words with %s has failed", client_address, exc_info=True)

    def hang_up(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it


class _Conversation(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        connection = self.request
        try:
            admitted = dict(self.server.admitted)
            known = [(self.server.secret, WORKER, DRIVER), *((secret, TASK, DRIVER) for secret in admitted)]
            place, key = greet(connection, known)
            connection.settimeout(None)  # a worker may have nothing to ask for hours
            if place:
                admitted[known[place][0]](FrameConnection(connection, key, is_server=True))
                return
            while True:
                connection.sendall(self._answer(_receive(connection)))
        except OSError:
            return  # it has hung up
        except (ValueError, struct.error, MemoryError) as error:
            _log.warning("hung up on %s, who asks for no words (%s)", self.client_address, error)

    def _answer(self, question: memoryview) -> bytes:
        have, count = _QUESTION.unpack_from(question)
        words = _unpack(question[_QUESTION.size :], count)
        dictionary = self.server.dictionary
        if have > len(dictionary):
            why = f"you have {have} words, and there are only {len(dictionary)}".encode()
            return _LENGTH.pack(_ANSWER.size + len(why)) + _ANSWER.pack(_REFUSED, 0, 0) + why
        codes = dictionary.intern_all(words)
        total = len(dictionary)
        if have + len(words) == total and np.array_equal(codes, np.arange(have, total)):
            return _message(_ANSWER.pack(_TAKEN, total, 0), [])
        news = next(_portions(dictionary.since(have)[:_WORDS]))
        return _message(_ANSWER.pack(_NEWS, total, len(news)), news)


def _listen(host: str, port: int) -> _Server:
    """A server at `host`, or at all of this machine's interfaces where that name is not one of them (Kubernetes)."""
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Server((str(found[0]), port), family)
    except OSError as error:
        try:
            return _Server(("", port), socket.AF_INET)
        except OSError:
            raise StorageError(f"cannot listen at {host}:{port} for workers that ask for words ({error})") from error


# The wire


def _receive(connection: socket.socket) -> memoryview:
    (length,) = _LENGTH.unpack(receive_exactly(connection, _LENGTH.size))
    if length > _LIMIT:
        raise ValueError(f"a message of {length} bytes")
    return memoryview(receive_exactly(connection, length))


def _message(head: bytes, words: Sequence[Any]) -> bytes:
    image = pack_words(words)
    lengths, text = image["lengths"].data, image["text"].data
    size = len(head) + lengths.nbytes + text.nbytes
    if size > _LIMIT:
        raise DataError(f"a text of {text.nbytes} bytes; on Spark a text may have {_LIMIT} bytes at most")
    return b"".join((_LENGTH.pack(size), head, lengths, text))


def _unpack(body: memoryview, count: int) -> list[Any]:
    if 4 * count > len(body):
        raise ValueError(f"{count} words in {len(body)} bytes")
    if not count and body:
        raise ValueError("a message of no words that goes on after its head")
    lengths, text = np.frombuffer(body, np.int32, count), np.frombuffer(body, np.uint8, offset=4 * count)
    return unpack_words({"lengths": lengths, "text": text})


def _portions(words: list[Any]) -> Iterator[list[Any]]:
    """The words in pieces that fit a message; one piece at least, be it empty."""
    if len(words) <= _WORDS and sum(map(len, words)) <= _CHARACTERS:
        yield words
        return
    start, characters = 0, 0
    for at, word in enumerate(words):
        size = len(word)
        if at > start and (at - start == _WORDS or characters + size > _CHARACTERS):
            yield words[start:at]
            start, characters = at, 0
        characters += size
    yield words[start:]


def _checked(value: Any) -> Any:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"{value!r:.80} is not text: half of a surrogate pair stands alone in it") from None
    return value
