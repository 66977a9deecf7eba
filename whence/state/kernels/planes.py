"""Join byte planes: all first bytes, then all second bytes, … become words of eight bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel


@kernel
def join_planes(planes: NDArray[np.uint8], out: Codes) -> None:
    """Join eight read-only planes into words."""
    n = out.shape[0]
    for i in range(n):
        low = planes[i] | planes[n + i] << 8 | planes[2 * n + i] << 16 | planes[3 * n + i] << 24
        high = planes[4 * n + i] | planes[5 * n + i] << 8 | planes[6 * n + i] << 16 | planes[7 * n + i] << 24
        out[i] = low | high << 32
