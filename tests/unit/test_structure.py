"""The order of the house: names that mean one thing, rooms that know only those below them."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence
from whence.engine.core.operator import Operator
from whence.plan.algebra.logical import Node

PACKAGE = Path(whence.__file__).parent

# A room may import from itself and from rooms above it in this list, inside functions, too.
ORDER = (
    "model",
    "plan",
    "annotate",
    "sql",
    "engine",
    "adapt",
    "state",
    "io",
    "explain",
    "subscribe",
    "runtime",
    "server",
    "client",
    "cli",
)

# What the packages of a room import from each other, inside functions, too; "." are the modules beside the packages.
INSIDE = {
    "annotate.": "kernels",
    "cli.": "demo",
    "cli.demo": ".",
    "engine.": "core exchange expressions matching recursion relational streams",
    "engine.core": "exchange recursion relational streams",
    "engine.exchange": "core recursion",
    "engine.expressions": "core",
    "engine.matching": "core expressions",
    "engine.recursion": ". core exchange",
    "engine.relational": "core expressions",
    "engine.streams": ". core exchange expressions matching relational",
    "explain.": "ask derive show",
    "explain.ask": ". derive kernels",
    "explain.derive": ". kernels",
    "explain.kernels": ".",
    "explain.retrieve": ". derive",
    "explain.show": ". ask kernels",
    "explain.why_not": ". derive",
    "io.": "kernels",
    "plan.": "algebra streams",
    "plan.algebra": ". streams",
    "plan.knowledge": "algebra recursion streams",
    "plan.optimizer": "algebra",
    "plan.partitions": "algebra recursion rewrite streams",
    "plan.recursion": "algebra rewrite",
    "plan.rewrite": "algebra recursion streams",
    "plan.streams": "algebra recursion rewrite",
    "plan.templates": "algebra streams",
    "runtime.": "durable lookups questions reading sources spark.driver spark.frames subscriptions writing",
    "runtime.durable": ". writing",
    "runtime.questions": ". durable reading sources writing",
    "runtime.reading": ". questions spark.driver spark.frames writing",
    "runtime.sources": "subscriptions writing",
    "runtime.spark": ". spark.session",
    "runtime.spark.driver": ". durable questions reading spark.frames spark.session spark.worker writing",
    "runtime.spark.frames": ". spark.session spark.worker writing",
    "runtime.spark.session": ".",
    "runtime.spark.worker": ". reading",
    "runtime.subscriptions": ". questions writing",
    "server.": "access sockets verbs web writing",
    "server.access": "writing",
    "server.delivery": ". access",
    "server.sockets": ". access delivery verbs web writing",
    "server.verbs": ". access web writing",
    "server.web": ". access delivery sockets verbs",
    "state.": "kernels",
    "subscribe.simulate": ".",
}

SIMULATION = "whence.subscribe.simulate"


def _name(path: Path) -> str:
    """The dotted name of a module."""
    parts = ("whence", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of Whence that a module imports when it runs: at its top or inside functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "whence")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "whence":
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield inside if inside in MODULES else node.module or ""
        waiting.extend(ast.iter_child_nodes(node))


def test_public_classes_have_names_of_their_own() -> None:
    """Only a logical node and the operator that runs it share a name."""
    named = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(name)
    shared = {}
    for name, modules in named.items():
        classes = [getattr(importlib.import_module(module), name) for module in modules] if len(modules) > 1 else []
        pair = len(classes) == 2 and {issubclass(c, Node) for c in classes} == {
            issubclass(c, Operator) for c in classes
        }
        if classes and not (pair and any(issubclass(c, Node) for c in classes)):
            shared[name] = modules
    assert not shared


@pytest.mark.parametrize("room", ORDER)
def test_rooms_import_from_rooms_below(room: str) -> None:
    allowed = ORDER[: ORDER.index(room) + 1]
    for name, path in MODULES.items():
        if name.split(".")[1:2] == [room]:
            rooms = ORDER if name.startswith(SIMULATION) else allowed  # it runs the whole of it
            wrong = [m for m in imported(path) if m != "whence" and m.split(".")[1] not in rooms]
            assert not wrong, f"{name} imports {', '.join(wrong)}"


def _package(module: str) -> str:
    """The package of a room that a module is in: engine.core, runtime.spark.driver, or engine. beside the packages."""
    room, *inner = module.split(".")[1:]
    folders = inner if MODULES[module].name == "__init__.py" else inner[:-1]
    return f"{room}.{'.'.join(folders[: 2 if folders[:1] == ['spark'] else 1])}"


def test_packages_import_from_those_they_may_know() -> None:
    """The table has exactly what is imported: take out what is gone, and think before you add to it."""
    known = defaultdict(set)
    for name, path in MODULES.items():
        for other in imported(path) if name != "whence" else ():
            here, there = _package(name), _package(other) if other.count(".") else ""
            if here != there and here.split(".")[0] == there.split(".")[0] and other in MODULES:
                known[here].add(there.partition(".")[2] or ".")
    assert {package: " ".join(sorted(others)) for package, others in sorted(known.items())} == INSIDE


def test_every_room_has_a_place() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == {*ORDER}
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__"}


PACKAGES = [path.parent for path in sorted(PACKAGE.glob("*/**/__init__.py"))]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_a_package_opens_with_a_table_of_its_modules(folder: Path) -> None:
    """The first column of a table in the docstring names each module and package once, and nothing else."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    named = [name for row in re.findall(r"^\|([^|]*)\|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(named) == sorted(modules | {path.parent.name for path in folder.glob("*/__init__.py")})
