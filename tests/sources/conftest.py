"""Publishers and brokers in this process, each with a folder and a server of its own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whence

PATIENCE = 90.0
SECRET = "whence_" + "s" * 43


class Place:
    """A database in a folder that is served, and may be stopped and begun again at the same port."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        self.folder, self.name, self.options = folder / name, name, options
        self.tokens, self.token = folder / "tokens", folder / "token"  # the same for all
        if not self.token.exists():
            self.token.write_text(SECRET)
            digest = hashlib.sha256(SECRET.encode()).hexdigest()
            self.tokens.write_text(f"broker sha256:{digest}\n")
            self.tokens.chmod(0o600)
        self.port = 0
        self.db: Any = None
        self.server: Any = None
        self.start()

    def start(self) -> None:
        """Open it and serve it."""
        self.db = whence.open(self.folder, **self.options)
        self.server = whence.serve(self.db, port=self.port, token_file=self.tokens)
        self.port = int(self.server.url.rpartition(":")[2])

    def stop(self) -> None:
        """Stop serving, and close it."""
        if self.server is not None:
            self.server.close()
            self.db.close()
            self.server = self.db = None

    def url(self, relation: str) -> str:
        return f"ws://127.0.0.1:{self.port}/{relation}"

    def source(self, name: str, *publishers: Place, relation: str | None = None) -> None:
        """Have a source that comes from publishers."""
        urls = ", ".join(f"'{each.url(relation or name)}'" for each in publishers)
        self.db.execute(f"CREATE SOURCE {name} FROM {urls} WITH (token_file = '{publishers[0].token}')")

    def rows(self, name: str) -> list[Any]:
        return sorted(self.db[name].rows)


Make = Callable[..., Place]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Make]:
    made: list[Place] = []

    def make(name: str, sql: str = "", **options: Any) -> Place:
        made.append(Place(tmp_path, name, **options))
        if sql:
            made[-1].db.execute(sql)
        return made[-1]

    yield make
    for each in reversed(made):
        each.stop()


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
