"""`whence demo pipeline`: a network whose links come as a stream of files, its views maintained on Spark, and a
restart.

What is shown is what happens: files appear in a folder, Spark reads them as a stream, each becomes an epoch of the
database, and the rows of the views that it changed are read from `db.changes`. In the end all views are compared
with what Dijkstra's algorithm makes of the files.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import whence
from whence.cli import epoch_lines
from whence.cli.demo.file_feed import FileFeed, links_in
from whence.cli.demo.topology import DOMAINS, Cable, CableChange, Network, cable_changes, costs, network
from whence.model.errors import WhenceError
from whence.runtime.reading.changes import Changes
from whence.runtime.spark.frames.streams import Running

SHOWN = ("reachable", "cheapest", "region")
INLINE_ROWS = 350  # a domain is laid by jobs, what is smaller is done in the driver
_COLUMNS = "op string, src string, dst string, cost int"
_LATEST, _EPOCHS = 6, 8  # lines of a live screen
_PATIENCE = 300.0  # seconds that a file may take


@dataclass(frozen=True)
class Setting:
    """The settings of the demo."""

    partitions: int = 2
    changes: int = 30  # files with cables that fail and are repaired
    pause: float = 0.5  # seconds between two files
    keep: Path | None = None


class Screen:
    """The display: on a terminal a picture that is updated, elsewhere one line per epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rows = dict.fromkeys(SHOWN, 0)
        self._moved = dict.fromkeys(SHOWN, (0, 0))
        self._epochs: deque[dict[str, Any]] = deque(maxlen=_EPOCHS)
        self._latest: deque[Text] = deque(maxlen=_LATEST)
        self._title = ""
        self._live: Live | None = None

    @contextmanager
    def display(self) -> Iterator[None]:
        """Keep the picture while something happens."""
        if not self.console.is_terminal:
            yield
            return
        with Live(self._picture(), console=self.console, refresh_per_second=8, transient=True) as self._live:
            try:
                yield
            finally:
                self._live = None
        if self._epochs:
            self.console.print("  ", epoch_lines.line(self._epochs[0]), sep="", soft_wrap=True)

    def announce(self, title: str) -> None:
        """Announce the next phase."""
        self._title = title
        if self.console.is_terminal:
            self.console.print()
        self.console.print(Text(title, style="bold"))

    def show_epochs(self, epochs: list[dict[str, Any]], feeds: list[Changes]) -> None:
        """Show epochs that are done, and what they changed."""
        for feed in feeds:
            changes = list(feed)
            if not changes:
                continue
            gone = sum(change.sign < 0 for change in changes)
            self._moved[feed.name] = len(changes) - gone, gone
            self.rows[feed.name] += len(changes) - 2 * gone
            for change in changes[-2:]:
                mark, style = ("+", "green") if change.sign > 0 else ("-", "red")
                text = f"{mark} {feed.name:9}  " + "  ".join(map(str, change.row))
                self._latest.append(Text(text, style=style, no_wrap=True, overflow="ellipsis"))
        for epoch in epochs:
            self._epochs.appendleft(epoch)
            if not self.console.is_terminal:
                self.console.print("  ", epoch_lines.line(epoch), sep="", soft_wrap=True)
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> Panel:
        views = Table(box=None, header_style="dim", pad_edge=False)
        for title in ("view", "rows", "came", "went"):
            views.add_column(title, justify="left" if title == "view" else "right")
        for name in SHOWN:
            came, went = self._moved[name]
            views.add_row(name, f"{self.rows[name]:,}", Text(f"+{came:,}", "green"), Text(f"-{went:,}", "red"))
        parts: tuple[RenderableType, ...] = (views, Text(), epoch_lines.table(self._epochs), Text(), *self._latest)
        return Panel(Group(*parts), title=Text(self._title, "bold"), title_align="left", border_style="dim")


class Pipeline:
    """The database and its stream, from one start to the next stop."""

    def __init__(self, folder: Path, spark: Any, setting: Setting, screen: Screen) -> None:
        self.screen = screen
        self.taken = 0  # files that are in
        self.db = whence.open(
            folder / "network.db", spark=spark, partitions=setting.partitions, on_spark={"inline_rows": INLINE_ROWS}
        )
        try:
            if not self.db.tables:
                self.db.execute(program())
                self.db.insert("node", list(network().nodes))
                screen.rows = {name: len(self.db[name]) for name in SHOWN}
            self.feeds = [self.db.changes(name) for name in SHOWN]
            stream = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).json(str(folder / "links"))
            self.db.attach("link", stream, op="op")
            since = self.db.epoch
            self.running: Running = self.db.start(trigger="200 milliseconds")
            self._epochs = epoch_lines.EpochWatcher(self.running, since)
        except BaseException:
            self.db.close()
            raise

    def until(self, files: int) -> None:
        """Show what happens until `files` files are in."""
        end = time.monotonic() + _PATIENCE
        with self.screen.display():
            while self.taken < files:
                if (error := self.running.exception()) is not None:
                    raise error
                if time.monotonic() > end:
                    raise WhenceError(f"file {self.taken + 1} was not taken in within {_PATIENCE:.0f} s")
                time.sleep(0.05)
                self._look()

    def _look(self) -> None:
        epochs = self._epochs.fresh()
        if epochs:
            self.taken = epochs[-1]["batch"] + 1  # a file is a batch
            self.screen.show_epochs(epochs, self.feeds)

    def pairs(self) -> dict[tuple[str, str], int]:
        """Describe how many nodes of one domain reach how many of another."""
        return {(src, dst): n for src, dst, n in self.db["domain_pairs"]}

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.running.stop()
            self._look()
        finally:
            self.db.close()


def program() -> str:
    """Return the SQL of the tables and views."""
    return (files("whence.cli.demo") / "pipeline.sql").read_text(encoding="utf-8")


def run(console: Console, spark: Any, setting: Setting) -> bool:
    """Run the whole demonstration; return whether all views were right in the end."""
    folder = setting.keep or Path(tempfile.mkdtemp(prefix="whence-demo-"))
    if (folder / "network.db").exists():
        raise WhenceError(f"{folder} has the database of a demo already: give another folder")
    screen, net = Screen(console), network()
    storm, bridge = cable_changes(net), net.bridges[0]
    feed = FileFeed(folder / "links", setting.pause)
    try:
        with Pipeline(folder, spark, setting, screen) as pipeline:
            _laid(pipeline, feed, net)
            screen.announce("Cables fail and are repaired")
            pipeline.until(feed.plan(*islice(storm, setting.changes // 2)))
            _cut(pipeline, feed, bridge)
            screen.announce("The stream is stopped and the database closed; files keep appearing")
        closed = pipeline.db.epoch
        missed = feed.plan(*islice(storm, setting.changes // 6)) - pipeline.taken
        while feed.written < feed.planned:
            time.sleep(0.05)
        console.print(f"  {missed} file{'s' * (missed != 1)} meanwhile")
        start = time.perf_counter()
        with Pipeline(folder, spark, setting, screen) as pipeline:
            took = time.perf_counter() - start
            screen.announce(f"Opened again at epoch {closed} in {took:.1f} s; the stream goes on from its checkpoint")
            pipeline.until(feed.planned)
            screen.announce(f"The bridge {bridge.a} - {bridge.b} is back, and cheaper")
            feed.plan([CableChange("+", bridge._replace(cost=20))])
            pipeline.until(feed.plan(*islice(storm, setting.changes // 3)))
            _table_of_pairs(console, pipeline.pairs())
        feed.close()
        screen.announce("Is all of it right?")
        right = _checked(folder, feed, screen)
        if setting.keep is not None:
            console.print(f"Everything is kept in {folder}. Look at it: whence sql --db {folder / 'network.db'}")
        return right
    finally:
        feed.close()
        if setting.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _laid(pipeline: Pipeline, feed: FileFeed, net: Network) -> None:
    """Return the changes that lay the network: one file per domain, then one per bridge."""
    pipeline.screen.announce(f"A network of {len(net.nodes)} nodes is laid: one file per domain, then the bridges")
    pipeline.screen.console.print(Text("  the first file has to wait for the Python workers of Spark", style="dim"))
    domains = [[CableChange("+", cable) for cable in cables] for cables in net.inside.values()]
    pipeline.until(feed.plan(*domains, *([CableChange("+", bridge)] for bridge in net.bridges)))
    _table_of_pairs(pipeline.screen.console, pipeline.pairs())


def _cut(pipeline: Pipeline, feed: FileFeed, bridge: Cable) -> None:
    """Cut a bridge, and show what became unreachable."""
    screen, console = pipeline.screen, pipeline.screen.console
    screen.announce(f"The bridge {bridge.a} - {bridge.b} is cut")
    before, pairs = screen.rows["reachable"], pipeline.pairs()
    pipeline.until(feed.plan([CableChange("-", bridge)]))
    after = pipeline.pairs()
    console.print(f"  {before - screen.rows['reachable']:,} pairs of nodes became unreachable, all in one epoch:")
    for (src, dst), n in sorted(pairs.items()):
        if n != after.get((src, dst), 0):
            console.print(f"  {src} → {dst}: {n:,} pairs before, {after.get((src, dst), 0):,} now")
    largest = sorted(pipeline.db["region"], key=lambda row: -row[1])[:2]
    console.print("  the largest regions now: " + ", ".join(f"{nodes} nodes with {head}" for head, nodes in largest))


def _table_of_pairs(console: Console, pairs: dict[tuple[str, str], int]) -> None:
    shown = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    shown.add_column("  pairs that reach each other")
    for dst in DOMAINS:
        shown.add_column(dst, justify="right")
    for src in DOMAINS:
        shown.add_row(f"  {src}", *(f"{pairs.get((src, dst), 0):,}" for dst in DOMAINS))
    console.print(shown)


def _checked(folder: Path, feed: FileFeed, screen: Screen) -> bool:
    """Compare what the database holds, opened without Spark, with what the files say."""
    links = links_in(folder / "links")
    best = costs(links)
    domain_of = dict(network().nodes)
    heads = {name: name for name in domain_of}
    for src, dst in best:
        heads[src] = min(heads[src], dst)
    pairs = Counter((domain_of[src], domain_of[dst]) for src, dst in best)
    with whence.open(folder / "network.db", read_only=True) as db:
        checks = {
            f"all {feed.written} files are in, each in one epoch": db.epoch == 1 + feed.written,
            "link: as the files leave it": sorted(db["link"]) == sorted(links),
            "cheapest: the costs that Dijkstra's algorithm finds": {(a, b): c for a, b, c in db["cheapest"]} == best,
            "reachable: the same pairs": sorted(db["reachable"]) == sorted(best),
            "region: the components of these": dict(db["region"].rows) == Counter(heads.values()),
            "domain_pairs: their sums": {(a, b): n for a, b, n in db["domain_pairs"]} == pairs,
            "every change was reported once": all(screen.rows[name] == len(db[name]) for name in SHOWN),
        }
    for what, holds in checks.items():
        screen.console.print(Text(f"  {'yes' if holds else 'NO '}  {what}", style="green" if holds else "red"))
    return all(checks.values())
