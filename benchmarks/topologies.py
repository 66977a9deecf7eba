"""Real networks, from files in GML as the Internet Topology Zoo has them: `read(folder, "Abilene")`.

Only what is needed is read: the ids and labels of nodes, and edges. A cable is a row with a number of its own, so that
two cables between the same places are two; it carries both ways. Loops are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "WHENCE_DATA"
NAMES = ("Abilene", "Geant2012", "Cogentco", "Kdl")
_TOKEN = re.compile(r'"[^"]*"|[\[\]]|[^\s\[\]]+')


class Cable(NamedTuple):
    """A cable between two places."""

    number: int
    a: int
    b: int


@dataclass(frozen=True)
class Topology:
    """A network: the names of its places by their ids, and its cables."""

    name: str
    places: dict[int, str]
    cables: tuple[Cable, ...]


def data_folder(given: Path | None) -> Path | None:
    """Where the files are: as given, or in `topologies` of the folder that the environment names; None if nowhere."""
    named = os.environ.get(VARIABLE)
    folders = [given] if given else [Path(named) / "topologies", Path(named)] if named else []
    return next((folder for folder in folders if any(folder.glob("*.gml"))), None)


def read(folder: Path, name: str) -> Topology:
    """One network of a folder."""
    return parse(name, (folder / f"{name}.gml").read_text(encoding="utf-8", errors="replace"))


def parse(name: str, text: str) -> Topology:
    """The network that a text in GML describes.

    >>> parse("two", 'graph [ node [ id 0 label "A" ] node [ id 1 label "B" ] edge [ source 0 target 1 ] ]').cables
    (Cable(number=0, a=0, b=1),)
    """
    (graph,) = (value for key, value in _entries(iter(_TOKEN.findall(text))) if key == "graph")
    nodes = [dict(value) for key, value in graph if key == "node"]
    ends = [dict(value) for key, value in graph if key == "edge"]
    pairs = [(int(end["source"]), int(end["target"])) for end in ends]
    cables = [pair for pair in pairs if pair[0] != pair[1]]
    places = {int(node["id"]): str(node.get("label", node["id"])).strip('"') for node in nodes}
    return Topology(name, places, tuple(Cable(i, a, b) for i, (a, b) in enumerate(cables)))


def _entries(tokens: Iterator[str]) -> list[tuple[str, Any]]:
    """Keys and values up to the closing bracket; a list is its entries."""
    found: list[tuple[str, Any]] = []
    for key in tokens:
        if key == "]":
            break
        value = next(tokens, "")
        found.append((key, _entries(tokens) if value == "[" else value))
    return found
