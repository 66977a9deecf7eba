"""A process that follows queries, and writes down every update that it saw: `python -m tests.serving.follower JSON`.

It may be killed at any time. When it is started again with `resume`, it goes on from the last updates that are written
down, with their positions and rows. A line `finish POSITION` on its standard input lets it wait for that position,
write down the rows that it has then, and end.

Lines are JSON objects: `{"s": subscription, …}` with `at`, `restarted`, `lost`, `passed` (updates before it were passed
over) and per query what `came` and `went`, the number and a digest of the `rows`; or with `error`; or `final` rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import whence
from tests.serving.world import FOLLOWED
from whence.client import connection
from whence.client.subscriptions import AsyncSubscription
from whence.subscribe.updates import Update

Row = tuple[Any, ...]
_FINISH = 60.0  # seconds until a position must have been reached


def digest(rows: Iterable[Row]) -> str:
    """Return a digest of rows, whatever their order.

    >>> digest([(1, "a"), (2, None)]) == digest([(2, None), (1, "a")]), digest([(1,)]) == digest([(1,), (1,)])
    (True, False)
    """
    return hashlib.blake2b("\n".join(sorted(map(repr, rows))).encode(), digest_size=8).hexdigest()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read lines of JSON; the last one may be torn, or those that a killed process was writing."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def tuples(rows: Iterable[Any]) -> list[Row]:
    return [tuple(row) for row in rows]


def last_rows(path: Path) -> dict[str, tuple[str, list[list[Row]]]]:
    """Return the position and the rows that each subscription had last, by what was written down."""
    found: dict[str, tuple[str, list[Counter[Row]]]] = {}
    for line in read_lines(path):
        if "begun" in line:
            found = {name: had for name, had in found.items() if name in line["resumed"]}
        name = line.get("s")
        if name is not None and "error" in line:
            found.pop(name, None)
        if name is None or "at" not in line:
            continue
        before = found[name][1] if name in found else [Counter() for _ in line["parts"]]
        parts = []
        for rows, part in zip(before, line["parts"], strict=True):
            after = rows - Counter(tuples(part["went"])) + Counter(tuples(part["came"]))
            parts.append(after)
        found[name] = line["at"], parts
    return {name: (at, [list(rows.elements()) for rows in parts]) for name, (at, parts) in found.items()}


class Follower:
    """The process."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._url, self._token, self._path = given["url"], given["token"], Path(given["out"])
        self._names: list[str] = given["names"]
        self._patience: float = given["patience"]
        self._have = last_rows(self._path) if given["resume"] else {}
        self._finish: asyncio.Future[whence.Position] = asyncio.get_running_loop().create_future()
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            with self._path.open("a") as file:  # what was being written when the process was killed
                file.write("\n")
        self._out = self._path.open("a")

    def note(self, **line: Any) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    async def run(self) -> None:
        self.note(begun=True, resumed={name: at for name, (at, _) in self._have.items()})
        asyncio.get_running_loop().create_task(self._listen())
        async with whence.connect_async(self._url, token=self._token, timeout=60, patience=self._patience) as client:
            await asyncio.gather(*(self._follow(client, name) for name in self._names))

    async def _listen(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, _, position = line.strip().partition(" ")
            if word == "finish":
                self._finish.set_result(whence.Position.parse(position))
                return

    async def _follow(self, client: Any, name: str) -> None:
        follows, (have, rows) = FOLLOWED[name], self._have.get(name, (None, None))
        while True:
            options = dict(follows.options)
            if have is not None and rows is not None:
                options |= {"have": have, "rows": rows[0] if isinstance(follows.queries, str) else rows}
            subscription = client.subscribe(follows.queries, **options)
            try:
                await self._note_all(name, subscription)
                return
            except whence.WhenceError as error:
                self.note(s=name, error=type(error).__name__, message=str(error))
                if name != "shifty":
                    raise
                have = rows = None
                await asyncio.sleep(0.1)

    async def _note_all(self, name: str, subscription: AsyncSubscription) -> None:
        async with subscription:
            while not self._finish.done():
                coming = asyncio.ensure_future(subscription.next(timeout=0.2))
                update = await coming
                if update is not None:
                    self._note_update(name, update)
            while (update := await subscription.next(timeout=0)) is not None:
                self._note_update(name, update)
            position = self._finish.result()
            last = await subscription.wait_for(position, timeout=_FINISH)
            self._note_update(name, last, passed=True)
            self.note(s=name, final=str(last.position), rows=[part.rows for part in last.parts])

    def _note_update(self, name: str, update: Update, passed: bool = False) -> None:
        parts = [
            {"came": part.came, "went": part.went, "n": len(part.rows), "rows": digest(part.rows)}
            for part in update.parts
        ]
        lost = None if update.lost is None else [str(at) for at in update.lost]
        options = FOLLOWED[name].options
        more: dict[str, Any] = {"changed": update.changed} if "key" in options else {}
        if options.get("why"):
            more["why"] = [(row, update.why[row]) for row in update.came if row in update.why]
        self.note(
            s=name, at=str(update.position), restarted=update.restarted, lost=lost, passed=passed, parts=parts, **more
        )


async def main() -> None:
    given = json.loads(sys.argv[1])
    connection._PING_SECONDS = given["ping"]
    await Follower(given).run()


if __name__ == "__main__":
    asyncio.run(main())
