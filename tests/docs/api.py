"""Write the API reference, docs/api.md, from the docstrings: `python -m tests.docs.api`.

The page has every name of `whence.__all__`: functions with their signatures, classes with their attributes, properties
and methods in the order of the source. `test_api.py` checks that it is up to date and that nothing is without an
example. Its examples run twice: as doctests of their modules, and in order as one session of the page (`test_docs.py`).

Docstrings are read as they are written here: paragraphs, lists of aligned words, and examples. An example that needs
Spark has `# doctest: +SKIP` on its lines; the page leaves that out, and is run with a session.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import whence

PAGE = Path(__file__).parents[2] / "docs/api.md"
OPENING = """# API reference

After this chapter you can look up every public name of the `whence` package: its signature, what it does, and an
example. [Python](python.md) introduces the calls by purpose. This page is written from the docstrings by
`python -m tests.docs.api`, and `help(whence.open)` shows the same. The tests run its examples, which need

```python
import whence
```
"""

# A name stands under the first heading whose modules it comes from.
HEADINGS = {
    "Errors": ("whence.model.errors",),
    "Databases": ("whence.runtime.database", "whence.runtime.following", "whence.runtime.lookups"),
    "Reading": (
        "whence.runtime.reading",
        "whence.runtime.subscriptions",
        "whence.subscribe",
        "whence.model",
        "whence.engine.streams",
        "whence.io.results",
    ),
    "Answers": ("whence.explain", "whence.runtime.questions"),
    "Folders": ("whence.runtime.durable", "whence.io", "whence.state"),
    "Serving": ("whence.server", "whence.client"),
    "Spark": ("whence.runtime.spark",),
}
ORDER = ("Databases", "Reading", "Answers", "Folders", "Serving", "Spark", "Errors")

# What other modules of Whence call, and users do not.
INTERNAL = {
    "Archive.check",
    "Archive.read",
    "Changes.decode",
    "Changes.end",
    "Changes.mark_words",
    "Changes.push",
    "Difference.lines",
    "Explanation.drawn",
    "Explanation.lines",
    "Explanation.of_missing",
    "Explanation.root",
    "Interval.fits",
    "Messages.decode",
    "Messages.end",
    "Messages.mark_words",
    "Messages.push",
    "Notifications.decode",
    "Notifications.end",
    "Notifications.mark_words",
    "Notifications.push",
    "Origins.lines",
    "Result.as_grid",
    "Sink.begin",
    "Sink.__call__",
    "Sink.definition",
    "Sink.end",
    "Sink.redefine",
    "Trace.lines",
    "WhenceError.transient",
}


@dataclass(frozen=True)
class Member:
    """A public part of a class: an attribute that is set, a property, or a method."""

    name: str
    of: str
    value: Any
    section: str = ""

    @property
    def title(self) -> str:
        return f"{self.of}.{self.name}"

    @property
    def is_attribute(self) -> bool:
        """Whether the docstring of its class describes it: what is set, and properties without a docstring."""
        return self.value is None or (self.is_property and not self.text)

    @property
    def function(self) -> Callable[..., Any]:
        found = self.value
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, functools.cached_property):
            found = found.func
        return inspect.unwrap(getattr(found, "__func__", found))

    @property
    def is_property(self) -> bool:
        return isinstance(self.value, (property, functools.cached_property))

    @property
    def text(self) -> str:
        return "" if self.value is None else inspect.cleandoc(self.function.__doc__ or "")


def public() -> dict[str, list[str]]:
    """Return the names of `whence.__all__` by heading; the database itself comes first."""
    found: dict[str, list[str]] = {heading: [] for heading in ORDER}
    for name in whence.__all__:
        value = getattr(whence, name)
        if not isinstance(value, str | ModuleType):  # the version; modules have chapters of their own
            module = value.__module__
            heading = next(h for h, modules in HEADINGS.items() if any(module.startswith(m) for m in modules))
            found[heading].append(name)
    for names in found.values():
        names.sort(key=lambda name: (name != "WhenceError", inspect.isclass(getattr(whence, name)), name))
    return found


def members(name: str) -> list[Member]:
    """Return the public members of a class, and those of its bases that are not public themselves."""
    found: dict[str, Member] = {}
    for base in _own_bases(getattr(whence, name)):
        section = ""
        for node in _definition(base):
            if isinstance(node, str):
                section = node
            elif isinstance(node, ast.AnnAssign):
                found.setdefault(ast.unparse(node.target), Member(ast.unparse(node.target), name, None))
            elif node.name == "__init__":
                for attribute in _set_by(node):
                    found.setdefault(attribute, Member(attribute, name, None))
            else:
                found[node.name] = Member(node.name, name, vars(base)[node.name], section)
    return [member for member in found.values() if _is_public(member)]


def _own_bases(kind: type) -> list[type]:
    """Return a class after those of its bases in Whence that are not public."""
    exported = [getattr(whence, name) for name in whence.__all__]
    return [b for b in kind.__mro__ if b.__module__.startswith("whence.") and (b is kind or b not in exported)][::-1]


def _is_public(member: Member) -> bool:
    special = member.name.startswith("__") and bool(member.text)
    return member.title not in INTERNAL and (special or not member.name.startswith("_"))


@functools.cache
def _definition(kind: type) -> list[ast.FunctionDef | ast.AnnAssign | str]:
    """Return what a class defines, in order, and the titles of its sections, such as `# -- writing ---`."""
    text = textwrap.dedent(inspect.getsource(kind))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    parts: list[tuple[int, Any]] = [(n.lineno, n) for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AnnAssign))]
    parts += [
        (text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"^    # -- (.+?)(?::.*)? -+$", text, re.M)
    ]
    return [part for _, part in sorted(parts, key=lambda part: part[0])]


def _set_by(init: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes that an `__init__` sets."""
    for node in ast.walk(init):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


# -- text ------------------------------------------------------------------------------------------------------------

_ITEM = re.compile(r"^([\w$]+(?:, \w+)*) {2,}(\S.*)$")


def markdown(text: str) -> str:
    r"""Write a docstring in Markdown.

    >>> markdown("Say it.\n\nname  what it is\n      called").splitlines()
    ['Say it.', '', '- `name`: what it is called']
    """
    return "\n\n".join(_block(block) for block in text.split("\n\n"))


def _block(block: str) -> str:
    if block.startswith(">>>"):
        return f"```python\n{re.sub(r'  # doctest: [+]SKIP', '', block)}\n```"
    if _ITEM.match(block.partition("\n")[0]):
        items: list[list[str]] = []
        for line in block.splitlines():
            found = _ITEM.match(line)
            if found:
                items.append([f"- {', '.join(f'`{name}`' for name in found[1].split(', '))}: {found[2]}"])
            else:
                items[-1].append(line.strip())
        return "\n".join(textwrap.fill(_plain(" ".join(item)), 120, subsequent_indent="  ", **_WRAP) for item in items)
    return block if block.startswith((" ", "|")) else textwrap.fill(_plain(block), 120, **_WRAP)


_WRAP: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _plain(text: str) -> str:
    """Keep `<` of names from being markup, outside of code."""
    return "".join(p if p.startswith("`") else re.sub(r"<(?=\w)", "&lt;", p) for p in re.split(r"(`[^`]*`)", text))


class _Text(str):
    """An annotation that is shown as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(function: Callable[..., Any], title: str, skip_first: bool = False) -> str:
    """Write a signature, on one line if it fits."""
    given = inspect.signature(function)
    parameters = [p.replace(annotation=_annotation(p.annotation)) for p in given.parameters.values()]
    given = given.replace(parameters=parameters[skip_first:], return_annotation=_annotation(given.return_annotation))
    line = f"{title}{given}"
    if len(line) <= 100:
        return line
    arrow = f" -> {given.return_annotation}" if given.return_annotation is not inspect.Signature.empty else ""
    return f"{title}(\n{''.join(f'    {part},{chr(10)}' for part in _parts(given))}){arrow}"


def _parts(given: inspect.Signature) -> Iterator[str]:
    """Yield the parameters with the marks between them."""
    last = None
    kinds = inspect.Parameter
    for parameter in given.parameters.values():
        if last is kinds.POSITIONAL_ONLY and parameter.kind is not kinds.POSITIONAL_ONLY:
            yield "/"
        if parameter.kind is kinds.KEYWORD_ONLY and last not in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL):
            yield "*"
        yield str(parameter)
        last = parameter.kind


def _annotation(given: Any) -> Any:
    return _Text(given) if isinstance(given, str) else given


# -- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """Return the whole reference."""
    found = public()
    parts = [OPENING + "\n" + "\n".join(_contents(found))]
    for heading, names in found.items():
        parts.append(f"## {heading}")
        parts += [part for name in names for part in _entry(name)]
    parts += ["## Types in signatures", _types()]
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _link(title: str, shown: str) -> str:
    return f"[`{shown}`](#{_anchor(title)})"


def _contents(found: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines of contents: each name with its members, by section."""
    for heading, names in found.items():
        yield f"- [{heading}](#{_anchor(heading)})"
        for name in names:
            parts: dict[str, list[str]] = {}
            for member in _described(name):
                if not member.name.startswith("__"):
                    parts.setdefault(member.section, []).append(_link(member.title, member.name))
            shown = "; ".join(
                (f"{section}: " if section else "") + ", ".join(links) for section, links in parts.items()
            )
            title = f"whence.{name}" if inspect.isfunction(getattr(whence, name)) else name
            yield f"  - {_link(title, name)}{f': {shown}' if shown else ''}"


def _described(name: str) -> list[Member]:
    """Return the members of a class that have entries of their own; attributes stand in its description."""
    value = getattr(whence, name)
    return [m for m in members(name) if not m.is_attribute] if inspect.isclass(value) else []


def _entry(name: str) -> Iterator[str]:
    value = getattr(whence, name)
    text = inspect.cleandoc(value.__doc__ or "")
    if not inspect.isclass(value):
        yield f"### `whence.{name}`\n\n```py\n{signature(value, f'whence.{name}')}\n```\n\n{markdown(text)}"
        return
    bases = [b.__name__ for b in value.__bases__ if b.__name__ in whence.__all__]
    above = f"\n\nA kind of {', '.join(_link(base, base) for base in bases)}." if bases else ""
    yield f"### `{name}`\n\n{markdown(text)}{above}"
    for member in _described(name):
        shown = (
            f"{member.title}: {_annotation(inspect.signature(member.function).return_annotation)}"
            if member.is_property
            else signature(member.function, member.title, skip_first=True)
        )
        yield f"#### `{member.title}`\n\n```py\n{shown}\n```\n\n{markdown(member.text)}"


def _types() -> str:
    """Describe the names in signatures that `whence` does not export."""
    functions = [getattr(whence, name) for names in public().values() for name in names]
    seen: dict[str, str] = {}
    for function in [f for f in functions if not inspect.isclass(f)] + [
        m.function for names in public().values() for n in names for m in _described(n)
    ]:
        given = inspect.signature(function)
        written = [p.annotation for p in given.parameters.values()] + [given.return_annotation]
        for name in re.findall(r"(?<![\w.])[A-Z]\w+", " ".join(w for w in written if isinstance(w, str))):
            module = sys.modules[function.__module__]
            if name not in whence.__all__ and name not in seen and (said := _meaning(module, name)):
                seen[name] = said
    return "\n".join(["| name | |", "|---|---|", *(f"| `{name}` | {seen[name]} |" for name in sorted(seen))])


def _meaning(module: ModuleType, name: str) -> str:
    """Say what a type of Whence's own is: what an alias stands for, or the first sentence of a class."""
    home = _home(module, name)
    if home is None:
        return ""
    value = getattr(importlib.import_module(home), name)
    if inspect.isclass(value):
        return re.split(r"(?<=\.)\s", " ".join((value.__doc__ or "").split()))[0]
    written = next(
        ast.unparse(node.value)
        for node in ast.parse(inspect.getsource(sys.modules[home])).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return f"`{written}`".replace("|", "\\|")


def _home(module: ModuleType, name: str) -> str | None:
    """Return the module of Whence that a name comes from, if it is one of Whence's."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            if not (node.module or "").startswith("whence"):
                return None
            return _home(importlib.import_module(node.module or ""), name)
    return module.__name__ if name in vars(module) else None


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
