"""The cache of compiled kernels: which sources a kernel depends on, and that no process loads what others made of other
sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from whence.model import jit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a package with a kernel that calls a helper, which reads a record's layout, and a module of the driver's."""
    files = {
        "model/jit.py": "",
        "model/record.py": "",
        "engine/kernels/layout.py": "ROWS = 0\n",
        "engine/kernels/helper.py": "from whence.engine.kernels.layout import ROWS\n"
        "from whence.model.wide import A\nfrom whence.model.types import Type\n",
        "engine/kernels/outer.py": "from whence.engine.kernels import (\n    helper,\n)\n",
        "engine/kernels/other.py": "OTHER = 1\n",
        "model/wide.py": "A = 1\n",
        "model/types.py": "class Type: ...\n",
        "engine/driver.py": "A = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)
    yield tmp_path
    _forget()


def _forget() -> None:
    for function in (jit.stamp, jit._text, jit._kernel_imports):
        function.cache_clear()


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("engine/kernels/outer.py", True),
        ("engine/kernels/helper.py", True),
        ("engine/kernels/layout.py", True),
        ("model/record.py", True),
        ("model/wide.py", True),
        ("model/types.py", False),
        ("engine/kernels/other.py", False),
        ("engine/driver.py", False),
    ],
)
def test_stamp_follows_kernel_imports(package: Path, changed: str, stale: bool) -> None:
    outer = package / "engine/kernels/outer.py"
    before = jit.stamp(outer)
    (package / changed).write_text((package / changed).read_text() + "B = 2\n")
    _forget()
    assert (jit.stamp(outer) != before) == stale


def test_code_of_other_sources_is_never_loaded(tmp_path: Path) -> None:
    old, new = (jit.CodeFiles(tmp_path, "module.f", stamp) for stamp in ("aa", "bb"))
    old.save(("int64",), "old code")
    assert (old.load(("int64",)), new.load(("int64",))) == ("old code", None)
    new.save(("int64",), "new code")
    new.save(("float64",), "other code")
    assert old.load(("int64",)) is None  # removed: nobody starts with these sources again
    old.save(("int64",), "old code")  # by a process that runs on
    assert new.load(("int64",)) in ("new code", None)
    new.save(("int64",), "new code")
    assert (new.load(("int64",)), new.load(("float64",))) == ("new code", None)
    assert [file.name.split(".")[2] for file in tmp_path.iterdir()] == ["bb"]


PACKAGE = Path(jit.__file__).parents[1]
COMPILED = [path for path in PACKAGE.rglob("*.py") if "kernels" in path.parts or "model.jit import" in path.read_text()]


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_stamps_have_all_that_is_compiled(path: Path) -> None:
    """A kernel uses kernel modules and constants, whose modules are in its stamp, and nothing else of ours."""
    tree = ast.parse(path.read_text())
    used = {
        name.id
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and ("kernels" in path.parts or _is_compiled(function))
        for statement in function.body  # types do not count
        for name in ast.walk(statement)
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("whence") for alias in node.names), ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("whence"):
            imported = {alias.asname or alias.name for alias in node.names}
            covered = ".kernels" in (node.module or "") or node.module in ("whence.model.jit", "whence.model.record")
            constants = {name for name in imported if name.isupper()}  # the stamp has their modules
            assert node.level == 0
            assert covered or not imported & used - constants, ast.unparse(node)


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id in ("kernel", "allocating") for d in function.decorator_list)
