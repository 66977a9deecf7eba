"""Uniting: the images of partitions as those of one database.

The law: a united table holds every row of every share, with its multiplicity and its accumulators (when it is due). A
table of which each partition has a copy is taken from the first. Nothing else is united: what operators keep depends on
which rows they see, so views are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whence.engine.image import Image, Loaded, StaleImage
from whence.state.chain import Chain

TABLE = "table/"  # begins the names of the parts that hold tables


class United:
    """The images of a database, see `engine.image.Images`, of the chains of its partitions."""

    def __init__(self, chains: Sequence[Chain], tables: Mapping[str, Mapping[str, Any]], zero: int):
        """`tables` says of each how it is spread: its "kind" is "all" if every partition has a copy. `zero` is the
        annotation of rows that are not there."""
        self._chains, self._tables, self._zero = chains, tables, zero

    def get(self, key: str, /) -> Image | None:
        """The image of a table; None for other parts."""
        name = key.removeprefix(TABLE)
        if name == key:
            return None
        chains = self._chains[:1] if self._tables.get(name, {}).get("kind") == "all" else self._chains
        shares = [chain.get(key) for chain in chains]
        if any(share is None for share in shares):
            raise StaleImage(f"a partition has no image of table {name}")
        return _unite([share for share in shares if share is not None], self._zero)


def _unite(shares: list[Image], zero: int) -> Image:
    """The live rows of all shares under new ids."""
    if len(shares) == 1:
        return shares[0]
    live = [np.flatnonzero(share["ann"] != zero) for share in shares]
    total = sum(map(len, live))
    image = Loaded()
    for name in ("rows", "ann", "acc"):
        like = shares[0][name]
        if any(share[name].shape[1:] != like.shape[1:] for share in shares):
            raise StaleImage(f"shares of a table differ in the columns of their {name}")
        whole, end = image.make(name, (total, *like.shape[1:]), like.dtype), 0
        for share, ids in zip(shares, live, strict=True):
            np.take(share[name], ids, axis=0, out=whole[end : end + len(ids)])
            end += len(ids)
    image["free"] = np.empty(0, np.int64)
    image["meta"] = np.array([total, 0, total], np.int64)
    return image
