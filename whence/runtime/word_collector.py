"""Forget the words that nothing refers to any more: interned text of rows that have gone.

The law: forgetting changes no answer. Only what is in no state and no compiled constant is forgotten, while no
transaction is open and both locks are held. Whoever decodes without a lock has a frozen dictionary, and feeds decode
what is not read yet before, or mark what they keep. Codes are not used again: a word that comes again gets a new one.

With a folder, the log says which words were forgotten, so that every replay gives later words the same codes; it is
done before a snapshot, whose image then lacks them. In memory it is done after a transaction.

Cost: one pass over the columns that refer to words, and one over all words. It is paid when there are as many new words
as were kept the last time, and many for the size of the state: so a constant per new word.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from whence.model.codes import Codes
from whence.model.word_marks import WordMarks

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
FEW = 16_384
"""New words that are not worth a look."""
_BYTES = 4096  # of state, that are looked through at most for each new word
_SHARE = 8  # of the words that must be unused, as a divisor, for forgetting them to be worth it


class WordCollector:
    """Forgets words for one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._next = 0  # words from which on to look again whether it is due

    def consider(self) -> None:
        """Look for unused words after a transaction, if there may be many and no snapshot will do it."""
        if self._coordinator.storage.folder is None and self._coordinator.dictionary.words >= self._next:
            self.collect()

    def collect(self, asked: bool = False) -> int:
        """Forget unused words, if there may be many or if it is `asked` for; return how many were forgotten.

        In partitions nothing is forgotten: their state is elsewhere."""
        coordinator = self._coordinator
        with coordinator.paused():
            backend, words = coordinator.catalog.backend, coordinator.dictionary
            if coordinator.open_transaction is not None or not backend.at_hand:
                return 0
            if not (asked or self._is_due()):
                return 0
            start, marks = time.perf_counter(), WordMarks(len(words))
            backend.flow.mark_words(marks)
            coordinator.feeds.mark_words(marks)
            unused = words.unused(marks)
            if not len(unused) or (not asked and len(unused) * _SHARE < words.words):
                words.kept = words.words
                return 0
            coordinator.storage.write_forgotten(unused)
            self.forget(unused)
            coordinator.storage.epoch_done()
            seconds = time.perf_counter() - start
        log.info("%d unused words forgotten in %.1f ms, %d kept", len(unused), seconds * 1000, words.words)
        return len(unused)

    def forget(self, codes: Codes) -> None:
        """Forget the words of these codes, as a record of the log says. Both locks are held."""
        self._coordinator.feeds.decode(codes)
        self._coordinator.dictionary.forget(codes)

    def _is_due(self) -> bool:
        words = self._coordinator.dictionary
        wanted = max(FEW, words.kept, self._coordinator.catalog.flow.state_bytes // _BYTES)
        self._next = words.kept + wanted
        return words.words >= self._next
