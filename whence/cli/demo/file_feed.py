"""A feed of files for `whence demo pipeline`: a thread drops JSON lines into a folder, as another system would."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Queue

from whence.cli.demo.topology import CableChange


class FileFeed:
    """A thread that writes files of link changes one after the other, `pause` seconds apart."""

    def __init__(self, folder: Path, pause: float) -> None:
        self.folder, self.pause = folder, pause
        self.planned = 0
        self.written = 0
        self._queue: Queue[Sequence[CableChange]] = Queue()
        self._end = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="whence-demo-feed", daemon=True)
        self._thread.start()

    def plan(self, *files: Sequence[CableChange]) -> int:
        """Plan one file for each of these, after those planned before; return the number of all."""
        self.planned += len(files)
        for changes in files:
            self._queue.put(changes)
        return self.planned

    def close(self) -> None:
        """Write nothing more."""
        self._end.set()
        self._queue.put(())
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self.pause):
            changes = self._queue.get()
            if changes and not self._end.is_set():
                self._write(changes)

    def _write(self, changes: Sequence[CableChange]) -> None:
        lines = [
            json.dumps({"op": change.op, "src": src, "dst": dst, "cost": cost})
            for change in changes
            for src, dst, cost in change.cable.links()
        ]
        path = self.folder / f"{self.written + 1:05d}.json"
        hidden = path.with_name(f".{path.name}")  # a file appears whole, or not at all
        hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        hidden.rename(path)
        self.written += 1


def links_in(folder: Path) -> list[tuple[str, str, int]]:
    """Return the links that all files in the folder leave there, read independently."""
    links: dict[tuple[str, str, int], int] = {}
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            link = row["src"], row["dst"], row["cost"]
            links[link] = links.get(link, 0) + (1 if row["op"] == "+" else -1)
    return [link for link, count in links.items() for _ in range(count)]
