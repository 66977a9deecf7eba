"""The streams that a network traces: their numbers, their names in images, and columns as kernels take them."""

from __future__ import annotations

import numpy as np

from whence.annotate.tracing import Image
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError


def number_of(sources: tuple[str, ...], source: str) -> int:
    """Return a source's number; an error that names it if it is not traced."""
    try:
        return sources.index(source)
    except ValueError:
        raise EvaluationError(f"{source} is not traced here; traced are: {', '.join(sources) or 'none'}") from None


def names_image(sources: tuple[str, ...]) -> np.ndarray:
    """Return the names, as an array of an image."""
    return np.frombuffer("\0".join(sources).encode(), np.uint8).copy()


def names_of(image: Image) -> tuple[str, ...]:
    """Return the names that an image has, in the order of their numbers there."""
    if (names := image.get("sources")) is None or names.dtype != np.uint8:
        raise DataError("annotations in an image do not say whose tids they are")
    try:
        return tuple(names.tobytes().decode().split("\0")) if len(names) else ()
    except UnicodeDecodeError:
        raise DataError("annotations in an image are of streams whose names cannot be read") from None


def ready(column: Codes) -> Codes:
    """Return the column in one piece and writeable, as kernels take it: itself if it is that."""
    flags = column.flags
    return column if flags.c_contiguous and flags.writeable else column.copy()
