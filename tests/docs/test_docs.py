"""Run the documentation: README.md and the chapters in docs/.

Each file is one session. Its ```python blocks share a namespace and run in order in an empty folder; for blocks in
doctest style the output is compared (`...` stands for anything). Its ```sql blocks share a database of their own and
run in order; a block after `<!-- error: TEXT -->` must be refused with a message that contains TEXT. Lines of its
```console blocks must be among what the command prints, times aside; a line `...` says that there is more; it may
have the input that `echo` gives. A block
after `<!-- skip -->` is not run. Python that asks for a `spark_session` gets the session of all tests.

Blocks without a language are not run, but the commands in them must exist: `make` targets, `whence` commands with their
options, modules after `python -m`. Links must lead to a file, and to a heading of it.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

import whence
from tests.docs.modules import modules
from whence.cli import app

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [
    *FILES,
    *sorted((ROOT / "docs/papers").glob("*.md")),
    ROOT / "benchmarks/README.md",
    ROOT / "tests/sql/README.md",
]
_NOTE = r"skip|exit code \d+|error: [^\n]*?"
_BLOCK = re.compile(rf"(?:^<!-- ({_NOTE}) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINES = re.MULTILINE | re.DOTALL
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
        given, _, call = first.removeprefix("$ ").rpartition(" | ")
        command, *args = shlex.split(call)
        assert command == "whence"
        assert not given or given.startswith("echo ")
        result = CliRunner().invoke(app, args, input="\n".join(shlex.split(given)[1:]))
        assert result.exit_code == int(block.note.removeprefix("exit code ") or 0), result.output
        wanted, printed = _lines(shown), _lines(result.output.splitlines())
        more = wanted.pop("...", 0)
        assert wanted <= printed, f"line {block.line}: not printed: {wanted - printed}"
        assert more or wanted == printed, f"line {block.line}: not shown: {printed - wanted}"


def _lines(text: list[str]) -> Counter[str]:
    """Lines that say something, times taken out; the order in which rows come is nobody's promise."""
    return Counter(_TIME.sub("ms", line.strip()) for line in text if line.strip())


def texts() -> Any:
    """All Markdown files, as parameters named by their path."""
    return pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())


@texts()
def test_named_files_exist(path: Path) -> None:
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    named = re.findall(r"`((?:docs|examples|benchmarks|tests|whence)/[\w./-]*)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


@texts()
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (heading and heading not in _anchors(target)):
            broken.append(link)
    assert not broken


def _anchors(path: Path) -> set[str]:
    """Return the anchors that a Markdown renderer makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", _FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_readme_is_short_and_lists_every_chapter() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    chapters = text[text.index("## Chapters") :]
    missing = [p.name for p in (ROOT / "docs").rglob("*.md") if f"({p.relative_to(ROOT).as_posix()})" not in chapters]
    assert not missing


@pytest.mark.parametrize("path", FILES[1:], ids=lambda p: p.name)
def test_chapters_open_with_what_they_are_good_for(path: Path) -> None:
    _title, _, opening = path.read_text(encoding="utf-8").partition("\n\n")
    assert opening.startswith("After this chapter you ")


def test_architecture_names_every_module() -> None:
    """`python -m tests.docs.modules` writes the tables."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tables = dict(re.findall(r"^\*\*`([\w/]+)/`\*\*\n(.*?)(?=^\*\*|^<!--)", text, _LINES))
    named = {package: re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE) for package, body in tables.items()}
    assert named == {package: [path.stem for path in paths] for package, paths in modules().items()}


@texts()
def test_commands_exist(path: Path) -> None:
    """Commands in blocks without a language, and modules and settings named in the text."""
    text = path.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in fenced if not language for line in block.splitlines()]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    wrong = [line for line in lines if (found := re.match(r"make ([\w-]+)", line)) and found[1] not in targets]
    wrong += [line for line in lines if line.startswith("whence ") and not _is_command(line)]
    modules = re.findall(r"python -m ([\w.]+)|daemon\.module=([\w.]+)", text)
    wrong += [name for name in map("".join, modules) if not importlib.util.find_spec(name.rstrip("."))]
    assert not wrong


def _is_command(line: str) -> bool:
    """Whether there is such a command, and it has these options."""
    _, *words = shlex.split(line, comments=True)
    command = typer.main.get_command(app)
    while command is not None and hasattr(command, "commands"):
        command = command.commands.get(words.pop(0))
    options = {option for parameter in command.params for option in parameter.opts} if command else set()
    return command is not None and all(word in options for word in words if word.startswith("-"))
