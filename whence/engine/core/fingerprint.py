"""Fingerprints: a name for what an operator computes that is the same in every process.

Law: equal fingerprints, equal output and equal layout of state over equal tables. A fingerprint is a hash of the
operator's shape, written out as a canonical text, and of the fingerprints of its inputs. Values are written with their
types and never as codes of a dictionary; a Python function is known by the name it is registered under, which stands
beside it in every node that holds one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from whence.model.types import Kind
from whence.plan.algebra.expressions import Call, Cast

_PLAIN = (bool, int, float, str, bytes, Decimal, dt.date, dt.timedelta, np.generic)


# Operations that mean something else since a version of Whence that wrote images: the state of what computes them is
# computed anew, from images of before. DuckDB's rules for case, blanks, graphemes, INTERVAL order and text to values.
_REVISED = frozenset(("lower", "upper", "ilike", "reverse", "trim", "ltrim", "rtrim", "extract:epoch"))
_ORDERING = ("<", "<=", ">", ">=")


# Classes that were renamed since they were first written into images, and the names that are stored.
_STORED = {
    "Distribution": "Dist",
    "DropProvenance": "Plain",
    "LocalFilter": "Mine",
    "ProvenanceJoin": "Traced",
    "RequiredDistribution": "Wish",
    "StreamToRelation": "Relate",
}


class _End:
    """Where a part that was taken apart ends."""


def canonical(value: Any) -> str:
    """A text of a value, an expression or a plan, equal in every process and only for what is equal in every detail.

    >>> canonical(1), canonical(1.0), canonical(True), canonical("1"), canonical((None, "a )"))
    ('int 1', 'float 1.0', 'bool True', "str '1'", "tuple( none str 'a )' )")
    """
    out: list[str] = []
    left = [value]
    while left:  # not by recursion: a plan may be deeper than Python's stack
        part = left.pop()
        name = type(part).__name__
        name = _STORED.get(name, name)
        if isinstance(part, _End):
            out.append(")")
        elif part is None:
            out.append("none")
        elif isinstance(part, Enum):
            out.append(f"{name}.{part.name}")
        elif isinstance(part, _PLAIN):
            out.append(f"{name} {part!r}")
        elif isinstance(part, (tuple, list)) or is_dataclass(part):
            items = part if isinstance(part, (tuple, list)) else _values(part)
            out.append(f"{name}{'@2' if _is_revised(part) else ''}(")
            left += [_End(), *reversed(items)]
        elif callable(part):
            out.append("function")
        else:
            raise TypeError(f"{name} has no canonical text")
    return " ".join(out)


def _is_revised(part: object) -> bool:
    if isinstance(part, Call):
        return part.op in _REVISED or (part.op in _ORDERING and part.args[0].type.kind is Kind.INTERVAL)
    return isinstance(part, Cast) and part.arg.type.kind is Kind.TEXT


def _values(part: Any) -> list[Any]:
    """List the fields of a dataclass; one that was added later only if it is not as it was before."""
    found = [(f, getattr(part, f.name)) for f in fields(part) if f.compare]
    return [value for f, value in found if not (f.metadata.get("added") and value == f.default)]


def fingerprint(shape: object, inputs: Iterable[str] = ()) -> str:
    """The fingerprint of an operator of a shape over inputs with these fingerprints."""
    text = "\n".join([canonical(shape), *inputs])
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
