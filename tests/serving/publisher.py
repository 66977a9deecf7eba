"""A process that writes, and writes down what it tries and what was acknowledged: `python -m tests.serving.publisher`.

One client of it numbers its inserts itself, several under way at a time, and after a kill sends all those again that
were not acknowledged, with the same rows. Another one makes transactions, whose numbers the client gives: what was
under way when the process was killed has happened once or not at all.

It ends when its standard input says `stop`, after all that it has tried is acknowledged. Lines are JSON objects:
`{"try": [kind, number]}` before, and `{"done": [kind, number], "at": position}` after.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import whence
from tests.serving.follower import read_lines
from tests.serving.world import items_of, link_of, ticks_of
from whence.client import connection

_UNDER_WAY = 6


class Publisher:
    """The process."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given, self._who, self._path = given, given["who"], Path(given["out"])
        lines = read_lines(self._path)
        tried = [line["try"] for line in lines if "try" in line]
        done = [line["done"] for line in lines if "done" in line]
        self._again = [number for kind, number in tried if kind == "insert" and ["insert", number] not in done]
        self._next = {kind: max((n for k, n in tried if k == kind), default=0) + 1 for kind in ("insert", "move")}
        self._done_inserts = [number for kind, number in done if kind == "insert"]
        self._deleted = {number for kind, number in tried if kind == "delete"}
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            with self._path.open("a") as file:
                file.write("\n")
        self._out = self._path.open("a")
        self._stop = asyncio.Event()
        self._dice = random.Random(f"{given['seed']} {self._who} {len(lines)}")

    def note(self, **line: Any) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    async def run(self) -> None:
        self.note(begun=True, again=self._again)
        asyncio.get_running_loop().create_task(self._listen())
        await asyncio.gather(self._insert_all(), self._move_all())
        self.note(ended=True)

    async def _listen(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "stop":
                self._stop.set()
                return

    def _client(self, publisher: str | None) -> Any:
        given = self._given
        return whence.connect_async(
            given["url"], token=given["token"], publisher=publisher, timeout=60, patience=given["patience"]
        )

    # -- numbered inserts ----------------------------------------------------------------------------------------------

    async def _insert_all(self) -> None:
        async with self._client(f"publisher {self._who}") as client:
            under_way: set[asyncio.Task[None]] = set()
            for number in self._again:
                under_way.add(asyncio.create_task(self._insert(client, number)))
                await asyncio.sleep(0)  # so that they are sent in this order
            while not self._stop.is_set():
                number = self._next["insert"]
                self._next["insert"] += 1
                self.note(**{"try": ["insert", number]})
                under_way.add(asyncio.create_task(self._insert(client, number)))
                await asyncio.sleep(self._dice.choice((0, 0, 0.002, 0.01)))
                if len(under_way) >= _UNDER_WAY:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
            await asyncio.gather(*under_way)

    async def _insert(self, client: Any, number: int) -> None:
        table, rows = ("tick", ticks_of) if number % 3 == 0 else ("item", items_of)
        await client.insert(table, rows(self._who, number), number=number)
        self.note(done=["insert", number], at=str(client.position))
        self._done_inserts.append(number)

    # -- transactions --------------------------------------------------------------------------------------------------

    async def _move_all(self) -> None:
        async with self._client(None) as client:
            while not self._stop.is_set():
                if self._dice.random() < 0.3 and self._done_inserts:
                    await self._delete(client)
                else:
                    await self._move(client)
                await asyncio.sleep(self._dice.choice((0, 0.01, 0.02)))

    async def _move(self, client: Any) -> None:
        """Replace a link."""
        number = self._next["move"]
        self._next["move"] += 1
        self.note(**{"try": ["move", number]})
        link = link_of(self._who, number)
        async with client.transaction():
            await client.delete("link", key=link[0])
            await client.insert("link", link)
            await client.insert("move", (self._who, number))
        self.note(done=["move", number], at=str(client.position))

    async def _delete(self, client: Any) -> None:
        """Delete the items of an insert."""
        number = self._dice.choice(self._done_inserts)
        if number % 3 == 0 or number in self._deleted:
            return
        self._deleted.add(number)
        self.note(**{"try": ["delete", number]})
        async with client.transaction():
            for row in items_of(self._who, number):
                await client.delete("item", where="id = ?", params=[row[0]])
        self.note(done=["delete", number], at=str(client.position))


async def main() -> None:
    given = json.loads(sys.argv[1])
    connection._PING_SECONDS = given["ping"]
    await Publisher(given).run()


if __name__ == "__main__":
    asyncio.run(main())
