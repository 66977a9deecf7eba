"""The progress of a long task, as a callback."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, of how much: 0 if that is not known. What it raises ends the task."""
