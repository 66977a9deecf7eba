"""What answers without the engine: help, versions and usage errors load none of the large libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import whence
from whence.cli.storage import Compression
from whence.io.archive import COMPRESSIONS

LARGE = {"numpy", "numba", "pyarrow", "duckdb", "sqlglot", "pyspark"}
PROGRAM = """
import sys
from whence.cli import main
try:
    main()
finally:
    open(MODULES, "w").write(" ".join(sys.modules))
"""


def run(folder: Path, *arguments: str) -> tuple[int, str, set[str]]:
    """Run the command in a new process; return its exit code, its output, and the large libraries it loaded."""
    modules = folder / "modules"
    program = PROGRAM.replace("MODULES", repr(str(modules)))
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, LARGE & set(modules.read_text().split())


COMMANDS = ("run", "sql", "demo", "serve", "why", "trace", "what-if", "critical", "resilience", "contribution",
            "reliability", "info", "check", "backup", "export", "import")  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "whence demo network"),
        (["--version"], 0, whence.__version__),
        (["run", "--help"], 0, "whence run network.sql --source link=links.jsonl"),
        (["run"], 2, "a script, or --db"),
        (["nope"], 2, "No such command"),
        (["-v"], 2, "Missing command"),
    ],
)
def test_help_and_usage_errors_load_no_engine(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    found, output, loaded = run(tmp_path, *arguments)
    assert (found, loaded) == (code, set())
    assert said in " ".join(output.split())


def test_verbose_version_names_the_libraries(tmp_path: Path) -> None:
    code, output, loaded = run(tmp_path, "--version", "-v")
    lines = output.splitlines()
    assert (code, loaded) == (0, set())
    assert lines[0] == f"whence {whence.__version__}"
    assert lines[1].startswith("Python 3.")
    assert f"duckdb {metadata.version('duckdb')}" in lines


def test_every_command_is_in_a_panel_and_has_examples() -> None:
    from typer.testing import CliRunner

    from whence.cli import app

    said = CliRunner().invoke(app, ["--help"]).output
    assert all(panel in said for panel in ("Programs", "Questions", "Serving", "Storage"))
    assert "Commands" not in said
    for command in COMMANDS:
        assert f" {command} " in said
        assert f"whence {command}" in CliRunner().invoke(app, [command, "--help"]).output.partition("Examples:")[2]


def test_public_names_are_loaded_on_first_use() -> None:
    """The type checker's imports, the table of modules and `__all__` name the same."""
    tree = ast.parse(Path(whence.__file__).read_text(encoding="utf-8"))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    named = {alias.asname or alias.name for node in ast.walk(typed) if isinstance(node, ast.ImportFrom)
             for alias in node.names}  # fmt: skip
    assert named == {*whence._MODULES}
    assert {*whence._MODULES} <= {*whence.__all__}
    assert all(getattr(whence, name) is not None for name in whence.__all__)
    assert {*whence.__all__} <= {*dir(whence)}
    with pytest.raises(AttributeError, match="nope"):
        whence.nope  # noqa: B018


def test_compressions_are_those_of_exports() -> None:
    assert [choice.value for choice in Compression] == [*COMPRESSIONS]
