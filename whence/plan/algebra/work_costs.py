"""What the parts of maintaining a join cost: integers, in picoseconds, so that sums are the same in any order.

There are defaults, and what was measured on this machine at set-up (`engine/work_calibration.py`). Plans that several
processes must choose alike go by the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkCosts:
    """Picoseconds of work."""

    probe: int = 14_000  # look a key up in a hash index
    match: int = 10_500  # make a row of one that was found
    test: int = 6_500  # decide a condition of a row
    seek: int = 56_000  # look bounds up in an ordered index
    upkeep: int = 11_000  # link or unlink a row in a hash index
    ordered_upkeep: int = 205_000  # the same in an ordered index
    keep: int = 24_500  # add or remove a row of a relation that is kept
    byte: int = 33  # hold a byte, for each change of what is held: to be written into images and read again
    shipped_byte: int = 7_000  # send a byte to another partition
    superstep: int = 5_000_000_000  # a further round of all partitions


DEFAULTS = WorkCosts()
