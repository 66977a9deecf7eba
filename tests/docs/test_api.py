"""The reference, docs/api.md, is what the docstrings say, and every public name has an example in it.

When one of these fails: write the docstring and its example, then `python -m tests.docs.api`.
"""

from __future__ import annotations

import inspect
import re

import pytest

import whence
from tests.docs.api import PAGE, Member, members, page, public

NAMES = [name for names in public().values() for name in names]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(whence, name))]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m tests.docs.api"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert examples(inspect.getdoc(getattr(whence, name)) or ""), f"whence.{name}: no docstring with an example"


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_stands_in_an_example(name: str) -> None:
    """In one of its own, or in one of its class: `.name`, for a special method what calls it."""
    missing = [m.title for m in members(name) if not m.is_attribute and not (m.text and has_example(m))]
    assert not missing, f"no docstring, or in no example of its own or of {name}: {', '.join(missing)}"


@pytest.mark.parametrize("name", CLASSES)
def test_every_attribute_is_described(name: str) -> None:
    """By the docstring of its class: in a list of aligned words, or as `name`."""
    text = inspect.cleandoc(getattr(whence, name).__doc__ or "")
    missing = [m.title for m in members(name) if m.is_attribute and not describes(text, m.name)]
    assert not missing, f"not in the docstring of {name}: {', '.join(missing)}"


def examples(text: str) -> str:
    """Return the lines of code in a docstring."""
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)$", text, re.MULTILINE))


def has_example(member: Member) -> bool:
    if member.name.startswith("__"):
        return True
    shown = examples(member.text) + "\n" + examples(getattr(whence, member.of).__doc__ or "")
    return re.search(rf"\.{member.name}\b", shown) is not None


def describes(text: str, name: str) -> bool:
    listed = re.search(rf"^(?:\w+, )*{name}(?:, \w+)* {{2,}}\S", text, re.MULTILINE)
    return listed is not None or f"`{name}`" in text
