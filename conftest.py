"""Doctests use `whence` without importing it and run in an empty folder, so that examples read as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("doctest_namespace")["whence"] = whence
        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
