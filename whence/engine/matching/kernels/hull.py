"""Least values of ranges: points (group, x, y) in leaves, the least y of each leaf, and of each 64 leaves.

Points are rows of an ordered multiset (`engine/core/kernels/ordered.py`): `prefix` columns of a group, then x, then y.
`least[leaf]` is the least y of a leaf, `blocks[b]` the least of the leaves at places 64 b to 64 b + 63. A search for
the next y up to a limit skips leaves and blocks whose least is above it, so it looks at a leaf, at most two blocks, and
one word per 4096 rows: the paper's A2B-tree with three levels.

A **rectangle** is a row of [group, lowest x1, highest x1, lowest x2, highest x2, value]: the ranges [x1, x2] whose
least value has changed to that one. Its bounds are closed; the least and the greatest int64 say that a side is open.
"""

from __future__ import annotations

from whence.engine.core.kernels.ordered import LEAF, add_row, compare, seek
from whence.model.codes import Codes
from whence.model.jit import kernel

LOWEST = -(2**63)
HIGHEST = 2**63 - 1


@kernel
def refresh_leaf(store: Codes, size: Codes, least: Codes, leaf: int, y: int) -> None:
    low = HIGHEST
    for line in range(leaf * LEAF, leaf * LEAF + size[leaf]):
        low = min(low, store[line, y])
    least[leaf] = low


@kernel
def refresh_block(top: Codes, meta: Codes, least: Codes, blocks: Codes, block: int) -> None:
    low = HIGHEST
    for place in range(block * LEAF, min(meta[0], (block + 1) * LEAF)):
        low = min(low, least[top[place]])
    blocks[block] = low


@kernel
def refresh_blocks(top: Codes, meta: Codes, least: Codes, blocks: Codes, first: int) -> None:
    """Compute the blocks anew, from one on."""
    for block in range(first, (meta[0] + LEAF - 1) // LEAF):
        refresh_block(top, meta, least, blocks, block)


@kernel
def refresh(store: Codes, size: Codes, top: Codes, meta: Codes, least: Codes, blocks: Codes, y: int) -> None:
    """Compute all minima anew."""
    for place in range(meta[0]):
        refresh_leaf(store, size, least, top[place], y)
    refresh_blocks(top, meta, least, blocks, 0)


@kernel
def add_point(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    batch: Codes,
    i: int,
    change: int,
    y: int,
) -> int:
    """Add a count to one point, given a free leaf; return by how many the number of points has changed."""
    leaves = meta[0]
    points = meta[3]
    place = add_row(store, count, size, top, spare, meta, batch, i, change)
    if meta[0] != leaves:
        for at in range(place, min(place + 2, meta[0])):
            refresh_leaf(store, size, least, top[at], y)
        refresh_blocks(top, meta, least, blocks, place // LEAF)
    elif meta[3] > points:
        least[top[place]] = min(least[top[place]], batch[i, y])
        blocks[place // LEAF] = min(blocks[place // LEAF], batch[i, y])
    elif meta[3] < points and batch[i, y] == least[top[place]]:
        refresh_leaf(store, size, least, top[place], y)
        refresh_block(top, meta, least, blocks, place // LEAF)
    return int(meta[3] - points)


@kernel
def add_points(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    batch: Codes,
    change: Codes,
    y: int,
    start: int,
) -> int:
    """Add counts to points from position `start` on; return the position reached, short of the end when leaves run
    out."""
    for i in range(start, batch.shape[0]):
        if change[i] == 0:
            continue
        if meta[2] == 0 and meta[1] == size.shape[0]:
            return i
        add_point(store, count, size, top, spare, meta, least, blocks, batch, i, change[i], y)
    return int(batch.shape[0])


@kernel
def next_upto(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    place: int,
    at: int,
    y: int,
    limit: int,
) -> int:
    """Find the line of the first point from a position on whose y is at most `limit`, or -1."""
    while place < meta[0]:
        leaf = top[place]
        if least[leaf] <= limit:
            for line in range(leaf * LEAF + at, leaf * LEAF + size[leaf]):
                if store[line, y] <= limit:
                    return int(line)
        at = 0
        place += 1
        while place < meta[0] and place % LEAF == 0 and blocks[place // LEAF] > limit:
            place += LEAF
    return -1


@kernel
def last_upto(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    place: int,
    at: int,
    y: int,
    limit: int,
) -> int:
    """Find the line of the last point before a position whose y is at most `limit`, or -1."""
    while place >= 0 and meta[0] > 0:
        leaf = top[place]
        if least[leaf] <= limit:
            for line in range(leaf * LEAF + at - 1, leaf * LEAF - 1, -1):
                if store[line, y] <= limit:
                    return int(line)
        place -= 1
        while place >= 0 and place % LEAF == LEAF - 1 and blocks[place // LEAF] > limit:
            place -= LEAF
        at = size[top[place]] if place >= 0 else 0
    return -1


@kernel
def first_of(store: Codes, size: Codes, top: Codes, meta: Codes, key: Codes, columns: int) -> int:
    """Find the line of the first point with a prefix of its columns, or -1."""
    if meta[0] == 0:
        return -1
    place, at = seek(store, size, top, meta, key, 0, columns)
    if at == size[top[place]]:
        place += 1
        at = 0
    if place < meta[0] and compare(store, top[place] * LEAF + at, key, 0, columns) == 0:
        return int(top[place] * LEAF + at)
    return -1


@kernel
def right_of(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    key: Codes,
    x: int,
    limit: int,
    prefix: int,
) -> int:
    """Find the line of the group's first point right of x whose y is at most `limit`, or -1: the least of its x."""
    if x == HIGHEST:
        return -1
    key[0, prefix] = x + 1
    place, at = seek(store, size, top, meta, key, 0, prefix + 1)
    line = next_upto(store, size, top, meta, least, blocks, place, at, prefix + 1, limit)
    return line if line >= 0 and compare(store, line, key, 0, prefix) == 0 else -1


@kernel
def left_of(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    key: Codes,
    x: int,
    limit: int,
    prefix: int,
) -> int:
    """Find the group's last x left of x with a y of at most `limit`: the line of its least point, or -1."""
    key[0, prefix] = x
    place, at = seek(store, size, top, meta, key, 0, prefix + 1)
    line = last_upto(store, size, top, meta, least, blocks, place, at, prefix + 1, limit)
    if line < 0 or compare(store, line, key, 0, prefix) != 0:
        return -1
    key[0, prefix] = store[line, prefix]
    return first_of(store, size, top, meta, key, prefix + 1)


@kernel
def mar(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    batch: Codes,
    i: int,
    key: Codes,
    prefix: int,
    bounds: Codes,
) -> None:
    """Write the lowest and highest x within a point's Mar; an empty one has them the wrong way round."""
    for c in range(prefix + 1):
        key[0, c] = batch[i, c]
    x = batch[i, prefix]
    y = batch[i, prefix + 1]
    peak = first_of(store, size, top, meta, key, prefix + 1)
    if peak >= 0 and store[peak, prefix + 1] <= y:
        bounds[0] = HIGHEST
        bounds[1] = LOWEST
        return
    left = left_of(store, size, top, meta, least, blocks, key, x, y, prefix)
    right = right_of(store, size, top, meta, least, blocks, key, x, y, prefix)
    bounds[0] = LOWEST if left < 0 else store[left, prefix] + 1
    bounds[1] = HIGHEST if right < 0 else store[right, prefix] - 1


@kernel
def put_rectangle(
    out: Codes, n: int, key: Codes, prefix: int, low1: int, high1: int, low2: int, high2: int, value: int
) -> int:
    """Write a rectangle if there is room; return the number of rectangles so far."""
    if n < out.shape[0]:
        for c in range(prefix):
            out[n, c] = key[0, c]
        out[n, prefix] = low1
        out[n, prefix + 1] = high1
        out[n, prefix + 2] = low2
        out[n, prefix + 3] = high2
        out[n, prefix + 4] = value
    return n + 1


@kernel
def hull_rectangles(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    key: Codes,
    x: int,
    y: int,
    value: int,
    none: int,
    prefix: int,
    out: Codes,
    n: int,
) -> int:
    """Write the rectangles of a point that is gone: the minima that it hid, from the peak down on both sides.

    The hull on each side is the strict descent from the peak (the least y left at x). Left and right are merged from
    high to low; of two equal values the right one is taken first, so that each range is in one rectangle. `value` is
    the column that holds the values to tell, `none` the one to tell where no point is left.
    """
    peak = -1
    limit = HIGHEST
    if meta[0] > 0:
        key[0, prefix] = x
        peak = first_of(store, size, top, meta, key, prefix + 1)
        if peak >= 0:
            if store[peak, prefix + 1] <= y:
                return n
            limit = store[peak, prefix + 1] - 1
    left = left_of(store, size, top, meta, least, blocks, key, x, limit, prefix)
    right = right_of(store, size, top, meta, least, blocks, key, x, limit, prefix)
    low1 = LOWEST if left < 0 else store[left, prefix] + 1
    high2 = HIGHEST if right < 0 else store[right, prefix] - 1
    n = put_rectangle(out, n, key, prefix, low1, x, x, high2, none if peak < 0 else store[peak, value])
    while True:
        rising = left >= 0 and store[left, prefix + 1] > y
        if (
            right >= 0
            and store[right, prefix + 1] > y
            and not (rising and store[left, prefix + 1] > store[right, prefix + 1])
        ):
            at = store[right, prefix]
            told = store[right, value]
            right = right_of(store, size, top, meta, least, blocks, key, at, store[right, prefix + 1] - 1, prefix)
            high2 = HIGHEST if right < 0 else store[right, prefix] - 1
            n = put_rectangle(out, n, key, prefix, low1, x, at, high2, told)
        elif rising:
            at = store[left, prefix]
            told = store[left, value]
            left = left_of(store, size, top, meta, least, blocks, key, at, store[left, prefix + 1] - 1, prefix)
            low1 = LOWEST if left < 0 else store[left, prefix] + 1
            n = put_rectangle(out, n, key, prefix, low1, at, x, high2, told)
        else:
            return n


@kernel
def insert_points(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    batch: Codes,
    change: Codes,
    key: Codes,
    bounds: Codes,
    prefix: int,
    value: int,
    out: Codes,
    state: Codes,
) -> None:
    """Add points, in ascending order of y, and write the rectangle of each that changes a range.

    `state` is [points done, rectangles written]; it stops when leaves or rectangles run out.
    """
    y = prefix + 1
    while state[0] < batch.shape[0]:
        i = state[0]
        if (meta[2] == 0 and meta[1] == size.shape[0]) or state[1] == out.shape[0]:
            return
        mar(store, size, top, meta, least, blocks, batch, i, key, prefix, bounds)
        if bounds[0] <= bounds[1]:
            at = batch[i, prefix]
            state[1] = put_rectangle(out, state[1], key, prefix, bounds[0], at, at, bounds[1], batch[i, value])
        add_point(store, count, size, top, spare, meta, least, blocks, batch, i, change[i], y)
        state[0] += 1


@kernel
def delete_points(
    store: Codes,
    count: Codes,
    size: Codes,
    top: Codes,
    spare: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    batch: Codes,
    change: Codes,
    key: Codes,
    prefix: int,
    value: int,
    none: int,
    out: Codes,
    state: Codes,
) -> None:
    """Take points away, in descending order of y, and write the rectangles of each that changes a range.

    `state` is [points done, rectangles written, whether the next point is away already]; it stops when rectangles
    run out.
    """
    y = prefix + 1
    while state[0] < batch.shape[0]:
        i = state[0]
        gone = state[2] == 1
        if not gone:
            gone = add_point(store, count, size, top, spare, meta, least, blocks, batch, i, change[i], y) < 0
        if gone:
            for c in range(prefix + 1):
                key[0, c] = batch[i, c]
            found = hull_rectangles(
                store,
                size,
                top,
                meta,
                least,
                blocks,
                key,
                batch[i, prefix],
                batch[i, y],
                value,
                none,
                prefix,
                out,
                state[1],
            )
            state[2] = int(found > out.shape[0])
            if state[2] == 1:
                return
            state[1] = found
        state[0] += 1


@kernel
def range_least(
    store: Codes,
    size: Codes,
    top: Codes,
    meta: Codes,
    least: Codes,
    blocks: Codes,
    ranges: Codes,
    prefix: int,
    value: int,
    none: int,
    out: Codes,
) -> None:
    """Write the least value of each range, a row of [group, x1, x2], or `none` where it is empty.

    The least so far is lowered point by point: each next point is the first in the range that is below it."""
    for i in range(ranges.shape[0]):
        out[i] = none
        if meta[0] == 0:
            continue
        place, at = seek(store, size, top, meta, ranges, i, prefix + 1)
        if at == size[top[place]]:
            place += 1
            at = 0
        end = ranges[i, prefix + 1]
        limit = HIGHEST
        while place < meta[0]:
            leaf = top[place]
            base = leaf * LEAF
            last = base + size[leaf] - 1
            if last >= base + at and least[leaf] <= limit:
                for line in range(base + at, last + 1):
                    if store[line, prefix] > end or compare(store, line, ranges, i, prefix) != 0:
                        break
                    if store[line, prefix + 1] <= limit:
                        out[i] = store[line, value]
                        limit = store[line, prefix + 1] - 1 if store[line, prefix + 1] > LOWEST else LOWEST
            if store[last, prefix] > end or compare(store, last, ranges, i, prefix) != 0:
                break
            at = 0
            place += 1
            while place < meta[0] and place % LEAF == 0 and blocks[place // LEAF] > limit:
                ahead = min(place + LEAF, meta[0]) - 1
                last = top[ahead] * LEAF + size[top[ahead]] - 1
                if store[last, prefix] > end or compare(store, last, ranges, i, prefix) != 0:
                    break
                place += LEAF
