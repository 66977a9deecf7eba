"""Which files a cached kernel is compared with."""

from __future__ import annotations

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
        "engine/kernels/helper.py": "from whence.engine.kernels.layout import ROWS\n",
        "engine/kernels/outer.py": "from whence.engine.kernels import (\n    helper,\n)\n",
        "engine/kernels/other.py": "OTHER = 1\n",
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
