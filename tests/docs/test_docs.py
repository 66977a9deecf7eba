"""The documentation is run: what it shows is what happens.

Each file is one session. Its ```python blocks share a namespace and run in order in an empty folder, the ones in
doctest style with their output compared (`...` stands for anything). Its ```sql blocks share a database of their own
and run in order; a block after `<!-- error: TEXT -->` must be refused with a message that has TEXT in it. Lines of its
```console blocks must be among what the command prints, times aside; a line `...` says that there is more. A block
after `<!-- skip -->` is left alone. Where Python asks for a `spark_session` it gets that of all tests.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import whence
from whence.cli import app

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"(?:^<!-- (skip|error: [^\n]*?) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"[\d.]+ ms")
_FLAGS = doctest.ELLIPSIS


class Block(NamedTuple):
    """A fenced block: its language, text, first line, and what a comment before it says."""

    language: str
    text: str
    line: int
    note: str


def blocks(path: Path, language: str) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        note, kind, body = found.groups()
        if kind == language and note != "skip":
            yield Block(kind, body, text.count("\n", 0, found.start(3)) + 1, note or "")


def having(language: str) -> Any:
    """The files with blocks of a language, as parameters named by the file."""
    return pytest.mark.parametrize("path", [p for p in FILES if any(blocks(p, language))], ids=lambda p: p.name)


def on_spark(path: Path) -> bool:
    return any("spark_session" in block.text for block in blocks(path, "python"))


@pytest.mark.parametrize(
    "path", [p for p in FILES if any(blocks(p, "python")) and not on_spark(p)], ids=lambda p: p.name
)
def test_python(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python(path, tmp_path, monkeypatch)


@pytest.mark.parametrize("path", [p for p in FILES if on_spark(p)], ids=lambda p: p.name)
def test_python_on_spark(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    run_python(path, tmp_path, monkeypatch)


def run_python(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": path.stem}
    for block in blocks(path, "python"):
        if ">>>" not in block.text:
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block.text, names, path.name, str(path), block.line - 1)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=_FLAGS)
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
        assert not said, "".join(said)


@having("sql")
def test_sql(path: Path) -> None:
    with whence.open(recursion_limit=1000) as db:
        for block in blocks(path, "sql"):
            wanted = block.note.removeprefix("error: ")
            if not wanted:
                try:
                    db.execute(block.text)
                except whence.WhenceError as error:
                    pytest.fail(f"{path.name}, line {block.line}: {error}")
                continue
            with pytest.raises(whence.WhenceError) as caught:
                db.execute(block.text)
            assert wanted in str(caught.value), f"{path.name}, line {block.line}: {caught.value}"


@having("console")
def test_console(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(os.environ, "COLUMNS", "80")
    for block in blocks(path, "console"):
        first, *shown = block.text.splitlines()
        command, *args = shlex.split(first.removeprefix("$ "))
        assert command == "whence"
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output
        wanted, printed = _lines(shown), _lines(result.output.splitlines())
        more = wanted.pop("...", 0)
        assert wanted <= printed, f"line {block.line}: not printed: {wanted - printed}"
        assert more or wanted == printed, f"line {block.line}: not shown: {printed - wanted}"


def _lines(text: list[str]) -> Counter[str]:
    """Lines that say something, times taken out; the order in which rows come is nobody's promise."""
    return Counter(_TIME.sub("ms", line.strip()) for line in text if line.strip())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_what_is_pointed_to_exists(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:docs|examples|benchmarks|tests|whence)/[\w./-]*)`", text)
    missing = [name for name in named if not (ROOT / name).exists() and name != "docs/benchmarks.md"]
    assert not missing
