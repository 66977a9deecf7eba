"""Sets of tids in a pool, and how each is stored.

An **id** is `source << 44 | tid`: ids ascend by source and tid. A handle is 0 for the empty set, an id for the set of
just that, and `-1 - number` for a set of the pool. Numbers are never given twice: the pool's rows begin with number
`first`. A row of `sets` is (start in `items`, length in words, kind, base):

| kind       | `items[start : start + length]` |
|------------|---------------------------------|
| ALL_IDS    | its ids, ascending; base is its own number if others are deltas against it |
| INTERVALS  | first and last id of its runs, or of pieces of them; base as for ALL_IDS, or the set it is a delta to |
| DELTA      | its ids: the last ones of the set `base`, and those appended behind these |
| DICTIONARY | a header (`D_*`), and what the LZ library made of the steps from word to word of ids or intervals |
| PARTS      | handles of its parts, which are sets of one source each; all others have one source |

A delta is against the last full set, as the paper has it (001, 5.1), and decoded in one step, because what is appended
to a full set is written behind it once: a window that slides on is the same words, some fewer and some more. Intervals
that are deltas share their words likewise: runs are cut where one of the windows begins or ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel

Ints = NDArray[np.int64]

SOURCE_BIT = 44
TID_MASK = (1 << SOURCE_BIT) - 1

START, LENGTH, KIND, BASE = range(4)
ALL_IDS, INTERVALS, DELTA, DICTIONARY, PARTS = range(5)
D_FIRST, D_LAST, D_COUNT, D_WORDS, D_KIND, D_BYTES, D_DATA = range(7)  # of a DICTIONARY; its ids, words, their kind


@kernel
def survey(a: Ints, sets: Ints, first: int, sources: Ints) -> int:
    """What handles there are, as bits: 1 an empty set, 2 a set of the pool, 4 a dictionary. `sources` are marked."""
    found = 0
    for i in range(len(a)):
        handle = a[i]
        if handle > 0:
            sources[handle >> SOURCE_BIT] = 1
        elif handle == 0:
            found |= 1
        else:
            found |= 2
            if sets[-1 - handle - first, KIND] == DICTIONARY:
                found |= 4
    return found


@kernel
def source_of(handle, sets, items, first):
    """The source of a set of one source; -1 of parts."""
    if handle >= 0:
        return handle >> SOURCE_BIT
    row = -1 - handle - first
    if sets[row, KIND] == PARTS:
        return -1
    return items[sets[row, START]] >> SOURCE_BIT


@kernel
def mark_sources(a: Ints, sets: Ints, items: Ints, first: int, sources: Ints) -> None:
    """Mark the sources of the sets of the pool."""
    for i in range(len(a)):
        if a[i] < 0:
            source = source_of(a[i], sets, items, first)
            if source >= 0:
                sources[source] = 1
            else:
                row = -1 - a[i] - first
                for at in range(sets[row, START], sets[row, START] + sets[row, LENGTH]):
                    sources[source_of(items[at], sets, items, first)] = 1


@kernel
def part(handle, source, sets, items, first):
    """The part of a set that is of a source."""
    if handle == 0:
        return handle
    own = source_of(handle, sets, items, first)
    if own == source:
        return handle
    if own < 0:
        row = -1 - handle - first
        for at in range(sets[row, START], sets[row, START] + sets[row, LENGTH]):
            if source_of(items[at], sets, items, first) == source:
                return items[at]
    return 0


@kernel
def parts_of(a: Ints, source: int, sets: Ints, items: Ints, first: int, out: Ints) -> int:
    """The parts of a source; how many of them are not empty."""
    count = 0
    for i in range(len(a)):
        out[i] = part(a[i], source, sets, items, first)
        count += out[i] != 0
    return count


@kernel
def count_parts(parts: Ints) -> int:
    """The words that sets of several parts need; `parts` is [source, row]."""
    words = 0
    for i in range(parts.shape[1]):
        some = 0
        for s in range(parts.shape[0]):
            some += parts[s, i] != 0
        if some > 1:
            words += some
    return words


@kernel
def join_parts(parts: Ints, sets: Ints, items: Ints, count: int, used: int, first: int, out: Ints) -> int:
    """Sets of these parts, into a pool that has room; how many sets there are then."""
    for i in range(parts.shape[1]):
        start, only = used, 0
        for s in range(parts.shape[0]):
            if parts[s, i] != 0:
                only = parts[s, i]
                items[used] = only
                used += 1
        if used - start > 1:
            sets[count, START] = start
            sets[count, LENGTH] = used - start
            sets[count, KIND] = PARTS
            sets[count, BASE] = -1
            out[i] = -1 - (first + count)
            count += 1
        else:
            used = start
            out[i] = only
    return count


@kernel
def count_ids(a: Ints, sets: Ints, items: Ints, first: int, offsets: Ints) -> None:
    """Where each row's ids begin, one after the other; rows are of one source."""
    total = 0
    for i in range(len(a)):
        offsets[i] = total
        if a[i] > 0:
            total += 1
        elif a[i] < 0:
            row = -1 - a[i] - first
            start, length, kind = sets[row, START], sets[row, LENGTH], sets[row, KIND]
            if kind == INTERVALS:
                for at in range(start, start + length, 2):
                    total += items[at + 1] - items[at] + 1
            elif kind == DICTIONARY:
                total += items[start + D_COUNT]
            else:
                total += length
    offsets[len(a)] = total


@kernel
def fill_tids(a: Ints, sets: Ints, items: Ints, first: int, offsets: Ints, out: Ints) -> None:
    """The tids of rows of one source; those of dictionaries are left to the driver."""
    for i in range(len(a)):
        to = offsets[i]
        if a[i] > 0:
            out[to] = a[i] & TID_MASK
        elif a[i] < 0:
            row = -1 - a[i] - first
            start, length, kind = sets[row, START], sets[row, LENGTH], sets[row, KIND]
            if kind == INTERVALS:
                for at in range(start, start + length, 2):
                    for value in range(items[at], items[at + 1] + 1):
                        out[to] = value & TID_MASK
                        to += 1
            elif kind != DICTIONARY:
                for at in range(start, start + length):
                    out[to] = items[at] & TID_MASK
                    to += 1


@kernel
def fill_spans(a: Ints, sets: Ints, items: Ints, first: int, out: Ints) -> None:
    """The first and the last tid of each row, (1, 0) where there is none; rows are of one source."""
    for i in range(len(a)):
        low, high = 1, 0
        if a[i] > 0:
            low = high = a[i] & TID_MASK
        elif a[i] < 0:
            row = -1 - a[i] - first
            start = sets[row, START]
            last = start + D_LAST if sets[row, KIND] == DICTIONARY else start + sets[row, LENGTH] - 1
            low, high = items[start] & TID_MASK, items[last] & TID_MASK
        out[i, 0] = low
        out[i, 1] = high


@kernel
def find_id(a: Ints, wanted: int, sets: Ints, items: Ints, first: int, out: Ints) -> None:
    """Whether an id is in each set of its source: 1, 0, or 2 of a dictionary that may have it."""
    for i in range(len(a)):
        out[i] = a[i] == wanted
        if a[i] < 0:
            row = -1 - a[i] - first
            start, length, kind = sets[row, START], sets[row, LENGTH], sets[row, KIND]
            if kind == DICTIONARY:
                low, high = items[start + D_FIRST], items[start + D_LAST]
                out[i] = 1 if wanted == low or wanted == high else 2 if low < wanted < high else 0
                continue
            step = 2 if kind == INTERVALS else 1
            low, high = 0, length // step  # the last element that does not begin after it is before `high`
            while low < high:
                middle = (low + high) // 2
                if items[start + step * middle] <= wanted:
                    low = middle + 1
                else:
                    high = middle
            out[i] = low > 0 and items[start + step * low - 1] >= wanted


@kernel
def keep_sets(a: Ints, sets: Ints, items: Ints, first: int, keep: Ints) -> None:
    """Mark what a column mentions: 1 a set, and the end of what is needed of its words where others share them."""
    for i in range(len(a)):
        if a[i] >= 0:
            continue
        row = -1 - a[i] - first
        if keep[row] == 0:
            keep[row] = 1
            if sets[row, KIND] == PARTS:
                for at in range(sets[row, START], sets[row, START] + sets[row, LENGTH]):
                    if items[at] < 0:
                        other = -1 - items[at] - first
                        keep[other] = max(keep[other], 1)
                        keep_base(other, sets, first, keep)
            else:
                keep_base(row, sets, first, keep)


@kernel
def keep_base(row, sets, first, keep):
    """A delta keeps its full set, and the words appended to that as far as it needs them: `keep` is where these end."""
    base = sets[row, BASE]
    if base >= 0:
        base -= first
        end = sets[row, START] + sets[row, LENGTH]
        keep[base] = max(keep[base], end, sets[base, START] + sets[base, LENGTH])


@kernel
def is_delta(row, sets, first):
    """Check whether a set has its words in another one."""
    return sets[row, BASE] >= 0 and sets[row, BASE] != first + row


@kernel
def count_kept(sets: Ints, first: int, keep: Ints, size: Ints) -> None:
    """How many sets and words are kept."""
    size[0] = size[1] = 0
    for row in range(len(keep)):
        if keep[row] > 0:
            size[0] += 1
            if not is_delta(row, sets, first):
                size[1] += max(sets[row, LENGTH], keep[row] - sets[row, START])


@kernel
def copy_kept(
    sets: Ints, items: Ints, first: int, keep: Ints, sources: Ints, to_sets: Ints, to_items: Ints, end: Ints
) -> None:
    """Copy what is kept behind the end of another pool; `keep` becomes the new numbers, -1 for none.

    `end` is the number of the other pool's first set, its sets and its words; `sources` are the sources' numbers there.
    A base stands before its deltas, and the parts of a set before it, so that one pass renames them."""
    to_first, count, used = end[0], end[1], end[2]
    for row in range(len(keep)):
        if keep[row] <= 0:
            keep[row] = -1
            continue
        start, length, kind, base = sets[row, START], sets[row, LENGTH], sets[row, KIND], sets[row, BASE]
        number = to_first + count
        to_sets[count, LENGTH] = length
        to_sets[count, KIND] = kind
        if is_delta(row, sets, first):
            new_base = keep[base - first]
            to_sets[count, START] = to_sets[new_base - to_first, START] + start - sets[base - first, START]
            to_sets[count, BASE] = new_base
        else:
            to_sets[count, START] = used
            to_sets[count, BASE] = number if base >= 0 else -1
            words = max(length, keep[row] - start)
            ids = D_LAST + 1 if kind == DICTIONARY else words
            for i in range(words):
                word = items[start + i]
                if kind == PARTS and word < 0:
                    word = -1 - keep[-1 - word - first]
                elif i < ids:
                    word = sources[word >> SOURCE_BIT] << SOURCE_BIT | word & TID_MASK
                to_items[used + i] = word
            used += words
        keep[row] = number
        count += 1


@kernel
def rename(a: Ints, first: int, names: Ints) -> None:
    """Give the sets numbered from `first` on their new names, in place; others have theirs already."""
    for i in range(len(a)):
        number = -1 - a[i]
        if first <= number < first + len(names):
            a[i] = -1 - names[number - first]


@kernel
def sound_handle(handle, before, sources):
    """Whether a handle is an id of a known source, or one of the first `before` sets."""
    return handle >> SOURCE_BIT < sources if handle >= 0 else -1 - handle < before


@kernel
def sound_ids(items, start, length, step, sources):
    """Whether words are ids of one known source that ascend; of intervals, which may be of one id, with gaps."""
    before = 0
    for i in range(start, start + length):
        word = items[i]
        if word <= 0 or word >> SOURCE_BIT >= sources or word >> SOURCE_BIT != items[start] >> SOURCE_BIT:
            return False
        if word < before + (1 if step == 1 or (i - start) % 2 == 0 else 0):
            return False
        before = word
    return True


@kernel
def sound_parts(items, start, length, sets, before, sources):
    """Whether words are ids, or sets of one source among the first `before` sets."""
    for i in range(start, start + length):
        if items[i] == 0 or not sound_handle(items[i], before, sources):
            return False
        if items[i] < 0 and sets[-1 - items[i], KIND] == PARTS:
            return False
    return True


@kernel
def sound(a: Ints, sets: Ints, items: Ints, sources: int, ends: Ints) -> bool:
    """Whether handles, sets numbered from 0, and items hold together, so that reading them stays inside. What is in a
    dictionary is seen when it is unpacked. `ends` becomes where the words of each set end, those of deltas included."""
    for i in range(len(a)):
        if not sound_handle(a[i], len(sets), sources):
            return False
    for row in range(len(sets)):
        start, length, kind, base = sets[row, START], sets[row, LENGTH], sets[row, KIND], sets[row, BASE]
        if start < 0 or length < 1 or length > len(items) or start > len(items) - length or kind < 0 or kind > PARTS:
            return False
        ends[row] = start + length
        if kind == DELTA or (kind == INTERVALS and base >= 0 and base != row):
            step = 2 if kind == INTERVALS else 1
            if base < 0 or base >= row or sets[base, BASE] != base or length % step:
                return False
            if sets[base, KIND] != (INTERVALS if kind == INTERVALS else ALL_IDS):
                return False
            skipped = start - sets[base, START]
            if skipped < 0 or skipped >= sets[base, LENGTH] or skipped % step:
                return False
            if start + length > ends[base]:
                if not sound_ids(items, ends[base] - step, start + length - ends[base] + step, step, sources):
                    return False
                ends[base] = start + length
            continue
        if base != -1 and (base != row or kind not in (ALL_IDS, INTERVALS)):
            return False
        if kind == DICTIONARY:
            if length < D_DATA or not sound_ids(items, start, 1, 1, sources):
                return False
            if (
                items[start + D_LAST] >> SOURCE_BIT != items[start] >> SOURCE_BIT
                or items[start + D_LAST] < items[start]
            ):
                return False
            if items[start + D_COUNT] < 1 or items[start + D_WORDS] < 1:
                return False
            if items[start + D_BYTES] < 0 or items[start + D_BYTES] > 8 * (length - D_DATA):
                return False
        elif kind == INTERVALS:
            if length % 2 == 1 or not sound_ids(items, start, length, 2, sources):
                return False
        elif kind == ALL_IDS:
            if not sound_ids(items, start, length, 1, sources):
                return False
        elif kind == PARTS and not sound_parts(items, start, length, sets, row, sources):
            return False
    return True
