"""Images: the state of an operator as named arrays, to be written somewhere and taken up again by its like.

The law: an operator restored from an image answers every epoch to come, and every undo, as the one that gave it would.
An image holds what cannot be computed quickly from the rest of it: rows with their ids, counts, accumulators,
derivations; not hash tables over rows, nor the order labels of interned values, which a dictionary hands out anew in
each process. Codes of interned values do count on the same dictionary.

The arrays of an image just given are views of live memory: whoever wants to keep them copies them before the next
epoch. Those of an image to restore from may be read-only; they are copied, unless the image is `Loaded`.
"""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np

from whence.model.errors import CorruptionError, StorageError

Image = dict[str, np.ndarray]
log = logging.getLogger("whence")
TABLE = "table/"  # begins the keys of the parts that hold tables
ROOM = 256  # rows, and a quarter of an array: what is left free behind it, for what comes next


class Images(Protocol):
    """Images by the keys of `Dataflow.parts`, read when they are asked for."""

    def get(self, key: str, /) -> Image | None:
        """The image of a part, or None."""


class SoundImages:
    """Images of which a damaged part counts as missing, so that its operator is computed; except those of tables,
    from which everything else is computed."""

    def __init__(self, images: Images):
        self._images = images
        self.damage: list[str] = []  # what was found, by message

    def get(self, key: str, /) -> Image | None:
        """Return the image of a part, or None if it is missing or damaged; CorruptionError if a table's is damaged."""
        try:
            return self._images.get(key)
        except CorruptionError as error:
            if key.startswith(TABLE):
                raise
            self.note(str(error))
            return None

    def note(self, damage: str) -> None:
        """Record damage that does not keep the database from opening."""
        log.warning("part of an image cannot be used, and is computed instead: %s", damage)
        self.damage.append(damage)


class Loaded(Image):
    """An image for one operator, which takes its arrays and the room behind them instead of copying: for a large
    state, touching memory is most of the work.

    >>> image = Loaded(); image.make("a", (2,), np.dtype(np.int64))[:] = 7; taken(image, "a", 4).tolist()
    [7, 7, 0, 0]
    """

    def make(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array to fill, the beginning of a longer one of zeros."""
        whole = np.zeros((shape[0] + shape[0] // 4 + ROOM, *shape[1:]) if shape else (), dtype)
        self[name] = whole[: shape[0]] if shape else whole
        return self[name]


def taken(image: Image, name: str, length: int) -> np.ndarray:
    """An array of an image to restore from, made longer, the rest zero."""
    array = image[name]
    if isinstance(image, Loaded) and array.base is not None and len(array.base) >= length:
        whole: np.ndarray = array.base
        return whole[:length]
    return with_room(array, length)


class StaleImage(StorageError):  # noqa: N818  # not a fault: whoever meets it computes the state instead
    """An image of another layout than its operator has; the operator is as it was before."""


def nested(prefix: str, image: Image) -> Image:
    """An image as a part of a larger one.

    >>> sorted(nested("groups", {"rows": np.zeros(1), "ann": np.zeros(1)}))
    ['groups/ann', 'groups/rows']
    """
    return {f"{prefix}/{name}": array for name, array in image.items()}


def inside(prefix: str, image: Image) -> Image:
    """The part of a larger image.

    >>> sorted(inside("groups", {"groups/rows": np.zeros(1), "best0/meta": np.zeros(1)}))
    ['rows']
    """
    start = f"{prefix}/"
    return image.__class__({name[len(start) :]: array for name, array in image.items() if name.startswith(start)})


def expect(image: Image, **shapes: tuple[int, ...]) -> None:
    """Raise StaleImage unless the image has exactly these arrays of int64, of these shapes."""
    if image.keys() != shapes.keys():
        raise StaleImage(f"an image of {sorted(image)} where {sorted(shapes)} was expected")
    for name, shape in shapes.items():
        array = image[name]
        if array.shape != shape or array.dtype != np.int64:
            raise StaleImage(f"{name} is {array.dtype}{list(array.shape)} where int64{list(shape)} was expected")


def with_room(array: np.ndarray, length: int) -> np.ndarray:
    """A copy that is longer, the rest zero."""
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
