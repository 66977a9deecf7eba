"""Where the partitions of a database run: in one partition here, or in several (`spark/driver/deployment.py`).

A deployment makes catalogs, with the backend and the planner that go together, and restores them from images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from whence.engine.core.image import SoundImages
from whence.model.codes import Dictionary
from whence.model.progress import Progress
from whence.runtime.backend import InlineBackend
from whence.runtime.catalog import Catalog
from whence.runtime.partition_plan import WholePlanner
from whence.sql import statements as st
from whence.state.folder import Folder, RecoveryPoint

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.spark.driver.driver import SparkDriver


class Deployment(Protocol):
    """Where the partitions of a database run."""

    def open(self, recursion_limit: int, recomputed: str) -> Catalog:
        """Return an empty catalog; `recomputed` says why rows may be computed again, if they may."""

    def restore(
        self,
        coordinator: Coordinator,
        creates: Sequence[st.Statement],
        images: SoundImages,
        folder: Folder,
        start: RecoveryPoint,
        meta: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        """Take up tables and views with their state from images, of which `meta` says more."""

    def driver(self, coordinator: Coordinator) -> SparkDriver | None:
        """Return what takes in rows by jobs, if partitions may be elsewhere."""


class InlineDeployment:
    """One partition in this process; without `holds` no view waits to be refreshed."""

    def __init__(self, holds: bool = True) -> None:
        self._holds = holds

    def open(self, recursion_limit: int, recomputed: str = "", dictionary: Dictionary | None = None) -> Catalog:
        words = dictionary if dictionary is not None else Dictionary()
        return Catalog(
            recursion_limit, words, InlineBackend(words), WholePlanner(recursion_limit, self._holds), recomputed
        )

    def restore(
        self,
        coordinator: Coordinator,
        creates: Sequence[st.Statement],
        images: SoundImages,
        folder: Folder,
        start: RecoveryPoint,
        meta: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        coordinator.catalog.restore(creates, images, progress, None if start.partitions else images.note)

    def driver(self, coordinator: Coordinator) -> SparkDriver | None:
        return None
