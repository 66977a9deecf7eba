"""The memory of one recursive component, as the kernels see it.

All rows of all relations of a component, external ones included, stand in one array of fixed-size slots, so that a row
and everything known of it share a cache line. `cells` (int64) and `meta` (int32) are two views of that array:

    | cells: one int64 a column … | tag | rank | rule | dependents | body[K] | next[K] | prev[K] | chain[N] |

    tag          relation number, and flags above bit 16
    rank         of a derived row: one more than the largest rank in its derivation; of a row that another partition has
                 sent: the rank that it has there; of an external row: how often it is
    rule         the rule of the chosen derivation, -1 for none
    dependents   head of the list of entries `row * K + position` whose chosen derivation has this row in its body
    body         the rows of the chosen derivation; next/prev link this row's entries into their dependents lists
    chain        next row with the same key, for each index of the relation

A slot is never moved: a dead row keeps its slot, its place in the tables and its chains, and is revived if it is
derived again. `rows` maps (relation, key columns) to a slot and `keys` maps (index, indexed columns) to the first slot
of a chain; both are open-addressing tables of `tag << 32 | slot`. Compaction (`slot_store.py`) is the only thing that
forgets dead rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.jit import kernel
from whence.model.record import RecordType, at_address

Ints = NDArray[np.int64]

STORE = RecordType(
    (
        ("cells", "int64", 2),  # [slots, words]
        ("meta", "int32", 2),  # the same memory, [slots, 2 * words]
        ("rows", "int64", 1),  # hash table of rows
        ("keys", "int64", 1),  # hash table of index keys
        ("relations", "int64", 2),  # [relation, field], fields R_*
        ("indexes", "int64", 2),  # [index, 3 + columns], fields X_*
        ("plans", "int64", 1),  # flattened join plans, written by engine/recursion/rule_plans.py
        ("env", "int64", 2),  # [rule, variable]: the current binding; constants stand there for ever
        ("queue", "int64", 2),  # (priority, row, rank): a ring for sets, a heap where there is MIN or MAX, or peers
        ("touched", "int64", 2),  # (row and whether it was alive, value and rank before) of rows changed this epoch
        ("opened", "int64", 1),  # with peers: rows changed in this round, that is, in one call of a policy's `work`
        ("buckets", "int32", 1),  # suspects by rank
        ("hopes", "int32", 2),  # (a live row of too large a rank, the withdrawn row it might yet derive)
        ("foreign", "int64", 2),  # [.., 1 + atoms + columns]: bindings whose head only Python can compute
        ("scalar", "int64", 1),  # counters, limits and scratch, S_*
    )
)
store = at_address(STORE)

# relations
R_WIDTH, R_KEYS, R_KIND, R_SIGN, R_INDEX, R_INDEXES, R_FORWARD, R_FORWARDS, R_BACKWARD, R_BACKWARDS = range(10)
R_FIELDS = 10
EXTERNAL, ABSENCE, SET, BEST, SENT = range(5)
# ABSENCE: an external relation read only through NOT EXISTS. SENT: rows that other partitions derive, with their ranks.

# indexes
X_RELATION, X_COUNT, X_CHAIN, X_COLUMNS = range(4)

# flags in the tag word
ALIVE, TOUCHED, WITHDRAWN, RETRY, REVIVED = (1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20)
OPENED, DOUBTED = (1 << 21, 1 << 22)  # changed in this round; stands on a row whose rank may have become too large
RELATION = 0xFFFF

# scalars
(
    S_META,  # offset of the tag in a meta row
    S_BODY,  # K, how many body rows a slot remembers: 0 under DRED
    S_ATOMS,  # the largest number of atoms of a rule
    S_CHAIN,  # offset of the chains in a meta row
    S_ROWS,  # slots in use
    S_HEAD,  # queue: first
    S_TAIL,  # queue: one past last (sets), or the heap's size
    S_TOUCHED,  # entries in touched
    S_WITHDRAWN,  # withdrawn and not yet revived
    S_DEAD,  # slots that hold no live row
    S_FOREIGN,  # entries in foreign
    S_STATUS,  # why a kernel came back early
    S_CULPRIT,  # the row at which a limit was met
    S_DEPTH,  # limit on rank
    S_BUDGET,  # limit on slots in use
    S_HEAP,  # 1 if the queue is a heap
    S_POLICY,  # SUPPORT or DRED
    S_CURSOR,  # where an interrupted pass over `touched` or an input goes on
    S_MAXRANK,  # the largest rank waiting in the buckets
    S_KEYS_USED,  # entries in keys
    S_SLOT,  # find's: the free slot a missing row would take in the hash table
    S_HASH,  # find's: the hash of the key
    S_CANDIDATE,  # search: whether a derivation was passed over that may yet do
    S_VALUE,  # search: best value found
    S_FOUND,  # search: whether one was found
    S_BUCKET,  # the rank at which an interrupted withdrawal goes on
    S_WORK,  # derivations looked at, for metrics and S_EFFORT
    S_HOPES,  # entries in hopes
    S_WANTED,  # the rank for which there was no bucket
    S_FORGETS,  # 1 if a best value may stand on an older value of its own group, see plan/recursion/support.py
    S_KNOWN,  # 1 in replay mode: a derivation that fails is skipped, see engine/core/epoch_context.py
    S_EFFORT,  # limit on S_WORK, or 0
) = range(32)
S_SCRATCH = 32  # key under construction
S_STACK = 96  # rows bound at each step of the running plan
S_BODIES = 112  # body rows of the running derivation, by atom
S_CHOSEN = 128  # body rows of the best derivation found by a search
S_PAUSE = 144  # the S_WORK at which a long kernel comes back, to be called again; less by one for each row looked at
S_PEERS = 145  # 1 if rows are sent to other partitions with their ranks
S_PARTITION = 146
S_PARTITIONS = 147
S_OPENED = 148  # entries in opened
S_DOUBTS = 149  # rows that are DOUBTED
S_RETRIES = 150  # rows withdrawn although a derivation was passed over that may yet do, but for hopes
S_PASSES = 151  # 1 if a NULL under `must_be` is passed over for now, and
S_PASSED = 152  # 1 once one was
S_FIELDS = 160
MAX_ATOMS = 16
MAX_COPIES = 1 << 31  # of an external row: its multiplicity stands in an int32
MAX_INDEXES = 1 << 15
MAX_COLUMNS = 63

OK, GROW, LIMIT, FOREIGN_FULL, OVERFLOW, MISSING, PAUSED, UNFOUNDED = range(8)
SUPPORT, DRED = range(2)

_MULTIPLIER = -7046029254386353131  # 2**64 / golden ratio, as a signed number


@kernel
def mix(h, value):
    """Do one step of the hash."""
    h = (h ^ value) * _MULTIPLIER
    return h ^ ((h >> 32) & 0xFFFFFFFF)


@kernel
def find(k, relation, n):
    """Return the slot whose first `n` cells are the scratch key, or -1 with S_SLOT and S_HASH where it would go."""
    scalar, table, cells, meta = k.scalar, k.rows, k.cells, k.meta
    last = scalar[S_SCRATCH + n - 1] if n else 0
    h = mix(relation + 1, last >> 3)
    for c in range(n - 1):
        h = mix(h, scalar[S_SCRATCH + c])
    # Neighbouring codes of the last column share a cache line: what is derived together is looked up together.
    tag = ((h >> 32) ^ (last << 24)) & 0x7FFFFFFF
    mask = len(table) - 1
    at = (h & mask & ~7) | (last & 7)
    m = scalar[S_META]
    while True:
        entry = table[at]
        if entry < 0:
            scalar[S_SLOT] = at
            scalar[S_HASH] = tag
            return -1
        if (entry >> 32) == tag:
            row = entry & 0xFFFFFFFF
            if (meta[row, m] & RELATION) == relation:
                same = True
                for c in range(n):
                    if cells[row, c] != scalar[S_SCRATCH + c]:
                        same = False
                        break
                if same:
                    return row
        at = (at + 1) & mask


@kernel
def find_chain(k, index):
    """Return the first slot of the chain whose indexed columns are the scratch key, or -1, as in `find`."""
    scalar, table, cells, indexes = k.scalar, k.keys, k.cells, k.indexes
    n = indexes[index, X_COUNT]
    h = mix(-(index + 1), n)
    for c in range(n):
        h = mix(h, scalar[S_SCRATCH + c])
    tag = (index << 16) | ((h >> 40) & 0xFFFF)  # the index number itself, so that no other index's entry can pass
    mask = len(table) - 1
    at = h & mask
    while True:
        entry = table[at]
        if entry < 0:
            scalar[S_SLOT] = at
            scalar[S_HASH] = tag
            return -1
        if (entry >> 32) == tag:
            row = entry & 0xFFFFFFFF
            same = True
            for c in range(n):
                if cells[row, indexes[index, X_COLUMNS + c]] != scalar[S_SCRATCH + c]:
                    same = False
                    break
            if same:
                return row
        at = (at + 1) & mask


@kernel
def add_row(k, relation):
    """Add a dead row with the scratch key, right after `find` missed it; linked into its relation's indexes.

    The caller fills the cells after the key. Returns -1 and sets S_STATUS if there is no room.
    """
    scalar, meta, cells = k.scalar, k.meta, k.cells
    row = scalar[S_ROWS]
    indexes = k.relations[relation, R_INDEXES]
    if row >= len(cells) or 2 * (row + 1) > len(k.rows) or 2 * (scalar[S_KEYS_USED] + indexes) > len(k.keys):
        scalar[S_STATUS] = GROW
        return -1
    if row >= scalar[S_BUDGET]:
        scalar[S_STATUS] = LIMIT
        return -1
    scalar[S_ROWS] = row + 1
    scalar[S_DEAD] += 1
    k.rows[scalar[S_SLOT]] = (scalar[S_HASH] << 32) | row
    for c in range(k.relations[relation, R_KEYS]):
        cells[row, c] = scalar[S_SCRATCH + c]
    m = scalar[S_META]
    meta[row, m] = relation
    meta[row, m + 1] = 0
    meta[row, m + 2] = -1
    meta[row, m + 3] = -1
    for j in range(scalar[S_BODY]):
        meta[row, m + 4 + j] = -1
    link_indexes(k, row, relation)
    return row


@kernel
def link_indexes(k, row, relation):
    """Put a row into the chains of its relation's indexes, behind each chain's first row."""
    scalar, meta, indexes = k.scalar, k.meta, k.indexes
    first = k.relations[relation, R_INDEX]
    for index in range(first, first + k.relations[relation, R_INDEXES]):
        n = indexes[index, X_COUNT]
        for c in range(n):
            scalar[S_SCRATCH + c] = k.cells[row, indexes[index, X_COLUMNS + c]]
        chain = indexes[index, X_CHAIN]
        head = find_chain(k, index)
        if head < 0:
            k.keys[scalar[S_SLOT]] = (scalar[S_HASH] << 32) | row
            scalar[S_KEYS_USED] += 1
            meta[row, chain] = -1
        else:
            meta[row, chain] = meta[head, chain]
            meta[head, chain] = row


@kernel
def rehash(address: int, old_rows: Ints, old_keys: Ints) -> None:
    """Fill the (larger, empty) hash tables of a store from the old ones."""
    k = store(address)
    scalar, indexes = k.scalar, k.indexes
    for i in range(len(old_rows)):
        if old_rows[i] >= 0:
            row = old_rows[i] & 0xFFFFFFFF
            relation = k.meta[row, scalar[S_META]] & RELATION
            n = k.relations[relation, R_KEYS]
            for c in range(n):
                scalar[S_SCRATCH + c] = k.cells[row, c]
            find(k, relation, n)
            k.rows[scalar[S_SLOT]] = (scalar[S_HASH] << 32) | row
    for i in range(len(old_keys)):
        if old_keys[i] >= 0:
            row, index = old_keys[i] & 0xFFFFFFFF, old_keys[i] >> 48
            for c in range(indexes[index, X_COUNT]):
                scalar[S_SCRATCH + c] = k.cells[row, indexes[index, X_COLUMNS + c]]
            find_chain(k, index)
            k.keys[scalar[S_SLOT]] = (scalar[S_HASH] << 32) | row


@kernel
def compact(old_address: int, address: int, moved: Ints) -> None:
    """Copy into an empty store, whose slots may have other chains, the rows that live or on whose absence others stand;
    `moved` maps slots."""
    old, k = store(old_address), store(address)
    scalar = k.scalar
    m, body = scalar[S_META], scalar[S_BODY]
    n = 0
    for row in range(old.scalar[S_ROWS]):
        moved[row] = -1
        if old.meta[row, m] & ALIVE or old.meta[row, m + 3] >= 0:
            moved[row] = n
            n += 1
    scalar[S_ROWS] = n
    scalar[S_DEAD] = 0
    scalar[S_KEYS_USED] = 0
    for row in range(old.scalar[S_ROWS]):
        to = moved[row]
        if to < 0:
            continue
        for c in range(min(old.cells.shape[1], k.cells.shape[1])):
            k.cells[to, c] = old.cells[row, c]
        if not k.meta[to, m] & ALIVE:
            scalar[S_DEAD] += 1
        for j in range(3, 4 + 3 * body):
            link = k.meta[to, m + j]
            if link >= 0:
                if j == 3 or j >= 4 + body:
                    k.meta[to, m + j] = moved[link // body] * body + link % body
                else:
                    k.meta[to, m + j] = moved[link]
        relation = k.meta[to, m] & RELATION
        keys = k.relations[relation, R_KEYS]
        for c in range(keys):
            scalar[S_SCRATCH + c] = k.cells[to, c]
        find(k, relation, keys)
        k.rows[scalar[S_SLOT]] = (scalar[S_HASH] << 32) | to
        link_indexes(k, to, relation)


@kernel
def live_rows(address: int, relation: int, out: Ints) -> int:
    """Write the live rows of a relation into out[n, columns]; return how many (with out empty, only that)."""
    k = store(address)
    m = k.scalar[S_META]
    n = 0
    for row in range(k.scalar[S_ROWS]):
        tag = k.meta[row, m]
        if tag & ALIVE and (tag & RELATION) == relation:
            if len(out):
                for c in range(out.shape[1]):
                    out[n, c] = k.cells[row, c]
            n += 1
    return n


@kernel
def find_slots(address: int, relation: int, keys: Ints, out: Ints) -> None:
    """Write the slot of each key [n, key columns] that is live in a relation, or -1."""
    k = store(address)
    n = k.relations[relation, R_KEYS]
    for i in range(len(keys)):
        for c in range(n):
            k.scalar[S_SCRATCH + c] = keys[i, c]
        row = find(k, relation, n)
        out[i] = row if row >= 0 and k.meta[row, k.scalar[S_META]] & ALIVE else -1
