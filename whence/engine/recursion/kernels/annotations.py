"""Loops over annotations of slots: the first-touch log, the index from variables to slots, the variables of rows."""

from __future__ import annotations

from whence.engine.recursion.kernels.store import R_WIDTH, RELATION, S_META, Ints, mix, store
from whence.model.jit import kernel


@kernel
def note(stamps: Ints, stamp: int, slots: Ints, published: Ints, buffered: Ints, log: Ints, n: int) -> int:
    """Log (slot, published, buffered) of each slot that this stamp has not seen, from `n` on; return the new length."""
    for i in range(len(slots)):
        slot = slots[i]
        if stamps[slot] != stamp:
            stamps[slot] = stamp
            log[n, 0] = slot
            log[n, 1] = published[slot]
            log[n, 2] = buffered[slot]
            n += 1
    return n


@kernel
def append(first: Ints, entries: Ints, n: int, slots: Ints, starts: Ints, variables: Ints) -> int:
    """Put slot i into the list of each of its variables, [starts[i], starts[i + 1]); return the number of entries.

    `first[variable]` is the newest entry (slot, next). A slot just put into a list is not put there again."""
    for i in range(len(slots)):
        for j in range(starts[i], starts[i + 1]):
            variable = variables[j]
            newest = first[variable]
            if newest >= 0 and entries[newest, 0] == slots[i]:
                continue
            entries[n, 0] = slots[i]
            entries[n, 1] = newest
            first[variable] = n
            n += 1
    return n


@kernel
def mentioning(first: Ints, entries: Ints, variables: Ints, marks: Ints, mark: int, out: Ints) -> int:
    """Write the distinct slots in the lists of these variables; return how many."""
    n = 0
    for i in range(len(variables)):
        if variables[i] >= len(first):
            continue
        entry = first[variables[i]]
        while entry >= 0:
            slot = entries[entry, 0]
            if marks[slot] != mark:
                marks[slot] = mark
                out[n] = slot
                n += 1
            entry = entries[entry, 1]
    return n


@kernel
def runs(slots: Ints, order: Ints, starts: Ints) -> int:
    """Write where runs of equal slots begin when they are read in this order; return how many there are."""
    n = 0
    for i in range(len(order)):
        if i == 0 or slots[order[i]] != slots[order[i - 1]]:
            starts[n] = i
            n += 1
    return n


@kernel
def _look(rows, table, relations, cells, i):
    """Return the place in the table of a row's variable, or of the -1 where it would go."""
    h = mix(relations[i] + 1, 0)
    for c in range(cells.shape[1]):
        h = mix(h, cells[i, c])
    mask = len(table) - 1
    at = (h ^ (h >> 29)) & mask
    while table[at] >= 0:
        variable = table[at]
        same = rows[variable, 0] == relations[i]
        for c in range(cells.shape[1]):
            same = same and rows[variable, 1 + c] == cells[i, c]
        if same:
            break
        at = (at + 1) & mask
    return at


@kernel
def intern(rows: Ints, table: Ints, free: Ints, counts: Ints, relations: Ints, cells: Ints, out: Ints) -> None:
    """Write the variable of each row (relations[i], cells[i]), new ones from `free` or at the end; there must be room.

    `counts` is [variables ever given, length of free]."""
    for i in range(len(relations)):
        at = _look(rows, table, relations, cells, i)
        if table[at] < 0:
            if counts[1]:
                counts[1] -= 1
                variable = free[counts[1]]
            else:
                variable = counts[0]
                counts[0] += 1
            rows[variable, 0] = relations[i]
            for c in range(cells.shape[1]):
                rows[variable, 1 + c] = cells[i, c]
            table[at] = variable
        out[i] = table[at]


@kernel
def lookup(rows: Ints, table: Ints, relations: Ints, cells: Ints, out: Ints) -> None:
    """Write the variable of each row, -1 for one without."""
    for i in range(len(relations)):
        out[i] = table[_look(rows, table, relations, cells, i)]


@kernel
def rehash(rows: Ints, table: Ints, variables: Ints, relations: Ints, cells: Ints) -> None:
    """Fill an empty table with these variables, whose rows are given once more as `relations` and `cells`."""
    for i in range(len(variables)):
        table[_look(rows, table, relations, cells, i)] = variables[i]


@kernel
def describe(address: int, slots: Ints, relations: Ints, cells: Ints) -> None:
    """Write the relation and the cells of each slot, zeros behind its columns."""
    k = store(address)
    m = k.scalar[S_META]
    for i in range(len(slots)):
        relation = k.meta[slots[i], m] & RELATION
        relations[i] = relation
        for c in range(cells.shape[1]):
            cells[i, c] = k.cells[slots[i], c] if c < k.relations[relation, R_WIDTH] else 0
