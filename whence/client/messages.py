"""The messages of a template of a served database: asked for by position, so that none is lost with a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from whence.client.async_reader import as_result
from whence.client.background import BackgroundLoop
from whence.client.connection import ServerLink
from whence.model.budget import Timeout, seconds_of
from whence.subscribe.rectangles import Message, from_wire

_WAIT = 10.0  # seconds that a server is asked to wait for a message


class AsyncMessages:
    """The messages of a template since this was made (`AsyncClient.messages`). Iterating ends when it has caught up,
    and may be resumed.

    template  the name of the template
    position  that it has been told up to

    >>> import asyncio
    >>> async def main(server):
    ...     async with whence.connect_async(server.url, token=server.token) as client:
    ...         messages = await client.messages("above"); await client.insert("a", (7,))
    ...         return messages.template, [message.row async for message in messages.follow("0.1 s")]
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
    ('above', [{'x': 7}])
    """

    def __init__(self, link: ServerLink, template: str) -> None:
        self._link, self.template = link, template
        self.position: str | None = None

    async def _take(self, wait: float) -> list[Message]:
        """Return the messages that there are since the last call; wait for one for so many seconds at most."""
        args = {"template": self.template, "wait": wait}
        if self.position is not None:
            args["after"] = self.position
        answer = await self._link.call("messages", args)
        found = as_result(answer)
        self.position = answer["position"]
        return from_wire(found.columns, found.rows)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while messages := await self._take(0.0):
            for message in messages:
                yield message

    async def follow(self, timeout: Timeout = None) -> AsyncIterator[Message]:
        """Yield messages for as long as the client is open; end after `timeout` in which nothing came."""
        seconds = None if timeout is None else seconds_of(timeout)
        quiet = 0.0
        while True:
            wait = _WAIT if seconds is None else min(seconds - quiet, _WAIT)
            messages = await self._take(wait)
            for message in messages:
                yield message
            quiet = 0.0 if messages else quiet + wait
            if seconds is not None and quiet >= seconds:
                return


async def open_messages(link: ServerLink, template: str) -> AsyncMessages:
    """Return the messages of a template from now on."""
    found = AsyncMessages(link, template)
    await found._take(0.0)
    return found


class RemoteMessages:
    """The messages of a template since this was made (`Client.messages`). Iterating ends when it has caught up, and may
    be resumed.

    template  the name of the template

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
    ...     messages = client.messages("above"); _ = client.insert("a", (7,))
    ...     messages.template, [message.row for message in messages]
    ('above', [{'x': 7}])
    """

    def __init__(self, loop: BackgroundLoop, messages: AsyncMessages) -> None:
        self._loop, self._messages = loop, messages
        self.template = messages.template

    def __iter__(self) -> Iterator[Message]:
        while messages := self._loop.run(self._messages._take(0.0)):
            yield from messages

    def follow(self, timeout: Timeout = None) -> Iterator[Message]:
        """Yield messages for as long as the client is open; end after `timeout` in which nothing came.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     messages = client.messages("above"); _ = db.insert("a", [(7,), (8,)])
        ...     [message.row["x"] for message in messages.follow("0.1 s")]
        [7, 8]
        """
        seconds = None if timeout is None else seconds_of(timeout)
        quiet = 0.0
        while True:
            wait = _WAIT if seconds is None else min(seconds - quiet, _WAIT)
            messages = self._loop.run(self._messages._take(wait))
            yield from messages
            quiet = 0.0 if messages else quiet + wait
            if seconds is not None and quiet >= seconds:
                return
