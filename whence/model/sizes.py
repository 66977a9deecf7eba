"""Sizes in bytes, as people read them."""

from __future__ import annotations


def in_bytes(n: int) -> str:
    """Write a number of bytes with its unit.

    >>> in_bytes(999), in_bytes(1_500_000)
    ('999 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n = n / 1000  # type: ignore[assignment]  # a float from here on, only to be shown
    return f"{n:.1f} GB"
