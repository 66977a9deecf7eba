"""Keep: the rows of a join that is arranged, to be looked up by joins over it instead of being merged with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from whence.plan.algebra.logical.node import Unary


@dataclass(frozen=True)
class Keep(Unary):
    """The rows of its input, as they are. Equal inputs are one operator, whichever views keep them."""

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("keep",)

    def describe(self) -> str:
        return "kept"

    @property
    def is_small(self) -> bool:
        return self.input.is_small
