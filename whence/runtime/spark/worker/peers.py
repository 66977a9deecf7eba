"""Messages between the tasks of an exchange: each task listens, calls the others when it has something for them, and
finds what came, with what the driver says, in one queue.

Tasks prove to each other that they know the secret of the exchange (`connections.py`). A stranger, or a task of an
exchange that is over, loses its connection and nothing else happens. That a peer hangs up means nothing by itself: it
may be done. Whether somebody is lost the driver finds out, whose connection every task holds.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from whence.engine.exchange.messages import PartitionMessage
from whence.runtime.spark.worker.connections import Address, FrameConnection, connect_for_frames, greet

_log = logging.getLogger(__name__)
_PEER = b"peer"
PATIENCE = 600.0  # seconds for a frame to get through: the other side may be computing


class Frame(NamedTuple):
    """What the partitions of one task send to those of another one in a round."""

    round: int
    messages: Sequence[tuple[int, Sequence[PartitionMessage]]]  # by sending partition


class HungUp(NamedTuple):
    """The driver has hung up."""

    error: Exception


class Peers:
    """The connections of one task with all others, and with the driver."""

    def __init__(self, driver: FrameConnection, secret: str):
        self.events = queue.SimpleQueue[Any]()  # a Frame, what the driver says, or HungUp
        self._secret, self._driver = secret, driver
        self._listener = socket.create_server((driver.own_host, 0), family=_family(driver.own_host), backlog=256)
        self._calls: dict[Address, FrameConnection] = {}
        self._callers = set[FrameConnection]()
        self._closed = False
        self._start(self._accept)
        self._start(self._hear_driver)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def send(self, host: str, port: int, frame: Frame) -> None:
        """Send a frame to the task that listens there; OSError if it cannot be reached."""
        address = Address(host, port, self._secret)
        if address not in self._calls:
            called = self._calls[address] = connect_for_frames(address, _PEER, _PEER)
            called.wait_at_most(PATIENCE)
        self._calls[address].send(frame)

    def close(self) -> None:
        """Hang up on everybody."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for connection in [self._driver, *self._calls.values(), *list(self._callers)]:
            connection.close()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Any, *args: Any) -> None:
        threading.Thread(target=target, args=args, name="whence-peers", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return  # it is closed
            self._start(self._hear, connection, address)

    def _hear(self, connection: socket.socket, address: object) -> None:
        with connection:
            try:
                _, key = greet(connection, [(self._secret, _PEER, _PEER)])
                connection.settimeout(None)
                caller = FrameConnection(connection, key, is_server=True)
                self._callers.add(caller)
                if self._closed:
                    return
                while True:
                    self.events.put(caller.receive())
            except OSError:
                return  # it has hung up
            except Exception as error:
                _log.warning("hung up on %s, who is no task of this exchange (%s)", address, error)

    def _hear_driver(self) -> None:
        try:
            while True:
                self.events.put(self._driver.receive())
        except Exception as error:
            self.events.put(HungUp(error))


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
