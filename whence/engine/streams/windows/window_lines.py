"""The driver's side of `kernels/window_lines.py`: a store of lines that grows, and can undo an epoch."""

from __future__ import annotations

import numpy as np

from whence.engine.core.image import Image, StaleImage, taken, with_room
from whence.engine.streams.windows.kernels import window_lines as lk
from whence.model.codes import Codes
from whence.model.record import KernelRecord

_START = 64  # lines


class LineStore:
    """A growing store of lines of `width` words; the first `reserved` are scratch."""

    def __init__(self, width: int, reserved: int = 0):
        self.width, self._reserved = width, reserved
        self.k = KernelRecord(lk.LINES)
        self.address = self.k.address
        self.clear()

    def _fresh(self) -> Codes:
        meta = np.zeros(lk.M_FIELDS, np.int64)
        meta[lk.M_HIGH], meta[lk.M_FREE] = self._reserved, -1
        return meta

    def _set(self, data: Codes, meta: Codes) -> None:
        length = len(data)
        self.k.replace(
            data=data,
            real=data.view(np.float64),
            old=np.empty_like(data),
            stamp=np.zeros(length, np.int64),
            ids=np.empty(length, np.int64),
            meta=meta,
        )
        self.meta = meta

    @property
    def capacity(self) -> int:
        return len(self.k.data)

    @property
    def used(self) -> int:
        """Lines that have ever been allocated."""
        return int(self.meta[lk.M_HIGH])

    def __len__(self) -> int:
        return int(self.meta[lk.M_HIGH] - self.meta[lk.M_SPARE]) - self._reserved

    @property
    def nbytes(self) -> int:
        return int(self.k.data.nbytes)

    def make_room(self, least: int) -> None:
        """Grow if there is little room, or room for fewer than `least` lines."""
        free = self.capacity - len(self) - self._reserved
        if free >= max(_START // 2, least) and free * 8 >= self.capacity:
            return
        length, k = 2 * self.capacity, self.k
        ids = k.ids[: self.meta[lk.M_TOUCHED]]
        data, old = with_room(k.data, length), np.empty((length, self.width), np.int64)
        old[ids] = k.old[ids]
        k.replace(data=data, real=data.view(np.float64), old=old)
        k.replace(stamp=with_room(k.stamp, length), ids=with_room(k.ids, length))

    def undo(self) -> None:
        """Go back to the state when the epoch began."""
        k, meta = self.k, self.meta
        ids = k.ids[: meta[lk.M_TOUCHED]]
        k.data[ids] = k.old[ids]
        meta[lk.M_TOUCHED], meta[lk.M_HIGH] = 0, meta[lk.M_BASE]
        meta[[lk.M_FREE, lk.M_SPARE]] = meta[[lk.M_FREE_BEFORE, lk.M_SPARE_BEFORE]]

    def clear(self) -> None:
        self._set(np.zeros((_START, self.width), np.int64), self._fresh())

    def image(self) -> Image:
        return {"data": self.k.data[: self.used], "meta": self.meta[: lk.M_BASE]}

    def check(self, image: Image) -> None:
        """Raise StaleImage if the image is not one of lines of this width."""
        if image.keys() != {"data", "meta"} or image["meta"].shape != (lk.M_BASE,) or image["meta"].dtype != np.int64:
            raise StaleImage(f"an image of {sorted(image)}, not of lines")
        if image["data"].shape != (int(image["meta"][lk.M_HIGH]), self.width) or image["data"].dtype != np.int64:
            raise StaleImage(f"lines of {image['data'].shape} where {self.width} words were expected")
        if not 0 <= image["meta"][lk.M_SPARE] <= len(image["data"]) - self._reserved:
            raise StaleImage("more lines are free than there are")

    def restore(self, image: Image) -> None:
        meta = self._fresh()
        meta[: lk.M_BASE] = image["meta"]
        length = _START
        while length < len(image["data"]) * 5 // 4 + _START:
            length *= 2
        self._set(taken(image, "data", length), meta)
