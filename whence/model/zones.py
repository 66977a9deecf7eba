"""Time zones: the offset from UTC at an instant, and the instant of a local time, for whole columns.

The data is Python's (`zoneinfo`: the system's, or the package tzdata). A zone becomes two arrays once, its transitions
and the offsets from each on. After the last transition that the data lists, a rule holds for ever; the calendar repeats
every 400 years, so transitions are made for that long, and later times are looked up 400 years earlier.

A local time that a clock shows twice is the second one, and one that it skips is read with the offset before the gap,
as in PostgreSQL and DuckDB.
"""

from __future__ import annotations

import datetime as dt
import importlib.resources
import io
import struct
import zoneinfo
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import xxhash

from whence.model.codes import Codes

_SECOND = 1_000_000
_CYCLE = 146_097 * 86_400  # seconds of 400 years
_STEP = 20 * 86_400  # no rule changes the clocks twice within
_EPOCH = dt.datetime(1970, 1, 1)
_LAST = int((dt.datetime(9999, 12, 31) - _EPOCH).total_seconds())
_HEADER = struct.Struct(">4sc15x6l")


@dataclass(frozen=True, eq=False)
class Zone:
    """A time zone: transitions in microseconds since 1970, and offsets in microseconds, one more than transitions."""

    name: str
    transitions: Codes
    offsets: Codes
    end: int  # microseconds from which on times are looked up in the cycle before
    digest: str  # of the arrays: the same in two places if both have the same data

    def to_local(self, instants: Codes) -> Codes:
        """Return what clocks of the zone show at instants (microseconds since 1970 in UTC).

        >>> at = find_zone("Europe/Berlin").to_local(np.array([0, 1_720_000_000_000_000]))
        >>> (at - [0, 1_720_000_000_000_000]) // 3_600_000_000
        array([1, 2])
        """
        return instants + self.offsets[np.searchsorted(self.transitions, self._folded(instants), "right")]

    def to_instants(self, local: Codes) -> Codes:
        """Return the instants at which clocks of the zone show local times."""
        from_there_on = np.maximum.accumulate(self.transitions + self.offsets[1:])
        return local - self.offsets[np.searchsorted(from_there_on, self._folded(local), "right")]

    def _folded(self, times: Codes) -> Codes:
        """Move times that come after all transitions back by whole cycles."""
        beyond = times >= self.end
        if not beyond.any():
            return times
        cycle = _CYCLE * _SECOND
        return np.where(beyond, (times - self.end) % cycle + self.end - cycle, times)


def zone_names() -> list[str]:
    """Return the names of all time zones."""
    return sorted(zoneinfo.available_timezones())


@cache
def _canonical() -> dict[str, str]:
    return {name.lower(): name for name in zone_names()}


@lru_cache(maxsize=1024)
def find_zone(name: str) -> Zone:
    """Return a time zone by its name, in any case; raise KeyError if there is none.

    >>> find_zone("europe/berlin").name
    'Europe/Berlin'
    """
    known = _canonical()[name.lower()]
    with _open(known) as file:
        times, offsets = _read(file)
    more_times, more_offsets = _follow(zoneinfo.ZoneInfo(known), times[-1] if times else 0)
    transitions = np.array(times + more_times, np.int64) * _SECOND
    shown = np.array(offsets + more_offsets, np.int64) * _SECOND
    end = ((times[-1] if times else 0) + _CYCLE + 2 * _STEP) * _SECOND
    digest = xxhash.xxh3_64_hexdigest(transitions.tobytes() + shown.tobytes())[:8]
    return Zone(known, transitions, shown, end, digest)


def _open(name: str) -> IO[bytes]:
    """Open the data of a zone, where zoneinfo finds it."""
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.open("rb")
    return io.BytesIO(importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes())


def _read(file: IO[bytes]) -> tuple[list[int], list[int]]:
    """Read the transitions of a TZif file (RFC 9636), in seconds since 1970, and the offsets before and after them."""
    version, sizes = _header(file)
    width = 4
    if version >= b"2":  # the same again, with 64 bits
        times, types, abbreviations, leaps, standard, universal = _sizes(sizes)
        file.seek(times * 5 + types * 6 + abbreviations + leaps * 8 + standard + universal, io.SEEK_CUR)
        version, sizes = _header(file)
        width = 8
    times, types, *_ = _sizes(sizes)
    found = struct.unpack(f">{times}{'q' if width == 8 else 'l'}", file.read(times * width))
    kinds = file.read(times)
    offsets = [struct.unpack(">lBB", file.read(6))[0] for _ in range(types)]
    return list(found), [offsets[0], *(offsets[kind] for kind in kinds)]


def _header(file: IO[bytes]) -> tuple[bytes, tuple[int, ...]]:
    magic, version, *sizes = _HEADER.unpack(file.read(_HEADER.size))
    assert magic == b"TZif"
    return version, tuple(sizes)


def _sizes(sizes: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
    """Return the numbers of transitions, types, bytes of abbreviations, leap seconds, and flags of two kinds."""
    universal, standard, leaps, times, types, abbreviations = sizes
    return times, types, abbreviations, leaps, standard, universal


def _follow(zone: zoneinfo.ZoneInfo, last: int) -> tuple[list[int], list[int]]:
    """Return the transitions of the rule that holds after the last one that is listed, for 400 years."""

    def offset(second: int) -> int:
        moment = (_EPOCH + dt.timedelta(seconds=second)).replace(tzinfo=zone)
        return int(zone.fromutc(moment).utcoffset().total_seconds())  # type: ignore[union-attr]  # it is aware

    times, offsets = list[int](), list[int]()
    at, now = last, offset(last)
    stop, constant = min(last + _CYCLE + 3 * _STEP, _LAST), last + 3 * 366 * 86_400
    while at < stop and (times or at < constant):
        following = offset(at + _STEP)
        if following != now:
            low, high = at, at + _STEP
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == now else (low, middle)
            times.append(high)
            offsets.append(following)
            now = following
        at += _STEP
    return times, offsets
