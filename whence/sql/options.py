"""The options of `WITH (name = value)`: which there are, on what, and the values they take.

An option that is not in the table is refused, so that a misspelt one never passes for a wish that was heard. Options of
recursion are accepted on every view: a view may become part of a recursion through another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whence.sql.position import did_you_mean

Target = Literal["table", "view"]
_DIGITS = 15  # of a whole number


@dataclass(frozen=True)
class Option:
    """An option: one of some words, or, without any, a whole number above zero."""

    name: str
    words: tuple[str, ...] = ()


_OPTIONS: dict[Target, tuple[Option, ...]] = {
    "table": (),
    "view": (
        Option("policy", ("support", "dred")),
        Option("recursion_limit"),
        Option("recursion_rows"),
        Option("aggregate_selection", ("on", "off")),
    ),
}
_LATER: dict[Target, tuple[str, ...]] = {
    "table": ("ttl",),
    "view": ("maintain", "provenance", "refresh", "respond_within", "memory"),
}


def check_name(target: Target, name: str) -> None:
    """ValueError if there is no such option.

    >>> check_name("view", "polcy")
    Traceback (most recent call last):
    ValueError: a view has no option "polcy"; did you mean "policy"? Its options are policy, recursion_limit, \
recursion_rows, aggregate_selection
    """
    known = [option.name for option in _OPTIONS[target]]
    if name in known:
        return
    if name in _LATER[target]:
        raise ValueError(f'the option "{name}" is not available yet')
    hint = did_you_mean(name, known) or "."
    listed = f"Its options are {', '.join(known)}" if known else f"A {target} has no options yet"
    raise ValueError(f'a {target} has no option "{name}"{hint} {listed}')


def read_value(target: Target, name: str, text: str) -> str:
    """The value as the planner takes it; ValueError if the option does not take it.

    >>> read_value("view", "policy", "DRed")
    'dred'
    """
    (option,) = (o for o in _OPTIONS[target] if o.name == name)
    if option.words:
        if text.lower() not in option.words:
            listed = " or ".join(f"'{word}'" for word in option.words)
            raise ValueError(f"there is no {name} {text!r}; it is {listed}")
        return text.lower()
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ValueError(f"{name} must be a whole number above zero, not {text!r}")
    return text
