"""Hold: rows that wait before a view that is refreshed on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from whence.plan.algebra.logical.node import Unary

HoldKey = tuple[str, str]
"""A held view, and a table or view that it reads: what is released together."""


@dataclass(frozen=True)
class Hold(Unary):
    """The input as of the last release for `owner`, which reads it as `relation`. Only plans of partitions have it.

    A new `renewal` has the same rows and begins anew, with nothing pending, and so does all that reads it."""

    owner: str
    relation: str
    renewal: int = 0

    passes: ClassVar[bool] = True
    stays_small: ClassVar[bool] = True

    @property
    def key(self) -> HoldKey:
        """What it is released by."""
        return self.owner, self.relation

    @property
    def generation(self) -> int:
        return self.renewal

    def shape(self) -> object:
        return ("hold", self.owner, self.relation)

    def describe(self) -> str:
        return f"hold {self.relation}"

    @property
    def is_small(self) -> bool:
        return self.input.is_small
