"""The smallest witnesses first: a best-first search over the witnesses of all nodes at once.

A set is known at a node when it suffices for it. Sets leave the heap in order of their size and what is still needed
above the node: the base rows that occur for one head only, on the cheapest way from the root down to the node, are in
every witness built this way and not in the set yet. So when a set leaves the heap all smaller sets of its node have
left before: it is minimal exactly if it includes none of them, and nothing is ever taken back.
"""

from __future__ import annotations

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

FAR = np.int64(1) << 40


@kernel
def push(heap, size, key):
    """Add to a binary heap of `size` keys."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if heap[up] <= key:
            break
        heap[at] = heap[up]
        at = up
    heap[at] = key


@kernel
def pop(heap, size):
    """Take the least key from a binary heap of `size` keys."""
    least = heap[0]
    last = heap[size - 1]
    at, end = 0, size - 1
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        if child + 1 < end and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return least


@kernel
def sign_of(node):
    """Return one bit of 64: a set's bits are within those of every set that includes it."""
    return np.uint64(1) << np.uint64((np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58))


@allocating
def still_needed(
    root: int, variable: Ints, first: Codes, head: Ints, start: Codes, body: Ints, begin: Codes, user: Ints
) -> Codes:
    """Count of each node the least number of base rows on the way down to it from the root that no witness of it
    has."""
    nodes = len(variable)
    private = np.zeros(nodes, np.uint8)
    for n in range(nodes):
        if variable[n] >= 0 and begin[n] < begin[n + 1]:
            only = head[user[begin[n]]]
            private[n] = 1
            for u in range(begin[n], begin[n + 1]):
                if head[user[u]] != only:
                    private[n] = 0
                    break
    counted = np.full(nodes, -1, np.int32)  # the last derivation for which it was
    need = np.full(nodes, FAR, np.int64)
    need[root] = 0
    heap = np.empty(len(body) + 2, np.int64)
    heap[0] = root
    size = 1
    while size:
        key = pop(heap, size)
        size -= 1
        n = key & 0xFFFFFFFF
        cost = key >> 32
        if cost > need[n]:
            continue
        for d in range(first[n], first[n + 1]):
            own = cost
            for i in range(start[d], start[d + 1]):
                b = body[i]
                if private[b] and counted[b] != d:
                    counted[b] = d
                    own += 1
            for i in range(start[d], start[d + 1]):
                b = body[i]
                if variable[b] == -1 and own < need[b]:
                    need[b] = own
                    if size == len(heap):
                        wider = np.empty(2 * size, np.int64)
                        wider[:size] = heap
                        heap = wider
                    push(heap, size, (own << 32) | b)
                    size += 1
    return need


@allocating
def best_first(
    root: int,
    variable: Ints,
    first: Codes,
    head: Ints,
    start: Codes,
    body: Ints,
    begin: Codes,
    user: Ints,
    need: Codes,
    limit: int,
    budget: int,
    extra: int,
) -> tuple[Codes, Ints, bool, int]:
    """Find minimal witnesses of the root in order of size: their (begin, elements), whether these are all there are,
    and the steps taken. `variable` is -1 for derived nodes, -2 for absences. Ends when there is no more, after `budget`
    steps, or after `limit` witnesses and `extra` steps more."""
    nodes = len(variable)
    newest = np.full(nodes, -1, np.int64)  # the accepted sets of a node, as a chain
    waiting = np.zeros(len(head), np.int64)  # distinct derived bodies without a set
    stamp = np.zeros(nodes, np.int64)
    clock = 0
    sets = 256
    at = np.empty(sets, np.int64)
    length = np.empty(sets, np.int64)
    sign = np.empty(sets, np.uint64)
    node = np.empty(sets, np.int64)
    older = np.empty(sets, np.int64)
    elements = np.empty(2048, np.int32)
    made, used = 0, 0
    heap = np.empty(256, np.int64)
    size = 0
    steps = 0
    found = np.empty(16, np.int64)
    n_found = 0
    widest = 0
    for d in range(len(head)):
        widest = max(widest, start[d + 1] - start[d])
    others = np.empty(widest + 1, np.int64)
    wheel = np.empty(widest + 1, np.int64)
    for d in range(len(head)):
        clock += 1
        for i in range(start[d], start[d + 1]):
            b = body[i]
            if variable[b] == -1 and stamp[b] != clock:
                stamp[b] = clock
                waiting[d] += 1
    ready = 0
    accepted = -1
    u = np.int64(0)
    while True:
        # the next derivation to combine: at first those without derived bodies, then the users of the accepted set
        d = -1
        if accepted < 0:
            while ready < len(head):
                if waiting[ready] == 0 and need[head[ready]] < FAR:
                    d = ready
                    ready += 1
                    break
                ready += 1
        else:
            n = node[accepted]
            while u < begin[n + 1]:
                e = user[u]
                u += 1
                if (u - 1 == begin[n] or user[u - 2] != e) and waiting[e] == 0 and need[head[e]] < FAR:
                    d = e
                    break
        if d < 0:
            # accept the least set that includes no accepted one of its node
            accepted = -1
            while size and steps < budget and not (n_found >= limit and extra <= 0):
                s = pop(heap, size) & 0x7FFFFFFF
                size -= 1
                n = node[s]
                clock += 1
                for i in range(at[s], at[s] + length[s]):
                    stamp[elements[i]] = clock
                before = steps
                steps += length[s] + 1
                covered = False
                a = newest[n]
                scanned = 0
                while a >= 0:
                    scanned += 1
                    if sign[a] & ~sign[s] == 0 and length[a] <= length[s]:
                        covered = True
                        for i in range(at[a], at[a] + length[a]):
                            if stamp[elements[i]] != clock:
                                covered = False
                                break
                        if covered:
                            break
                    a = older[a]
                steps += scanned >> 3
                if n_found >= limit:
                    extra -= steps - before
                if covered:
                    continue
                accepted = s
                break
            if accepted < 0:
                break
            n = node[accepted]
            if newest[n] < 0:
                for k in range(begin[n], begin[n + 1]):
                    if k == begin[n] or user[k] != user[k - 1]:
                        waiting[user[k]] -= 1
            older[accepted] = newest[n]
            newest[n] = accepted
            if n == root:
                if n_found == len(found):
                    wider = np.empty(2 * n_found, np.int64)
                    wider[:n_found] = found
                    found = wider
                found[n_found] = accepted
                n_found += 1
            u = begin[n]
            continue
        # every choice of one accepted set for each other derived body, with the accepted set for its own node
        own = node[accepted] if accepted >= 0 else -1
        clock += 1
        k = 0
        for i in range(start[d], start[d + 1]):
            b = body[i]
            if variable[b] == -1 and b != own and stamp[b] != clock:
                stamp[b] = clock
                others[k] = b
                wheel[k] = newest[b]
                k += 1
        while True:
            clock += 1
            begin_at = used
            most = start[d + 1] - start[d]
            if accepted >= 0:
                most += length[accepted]
            for j in range(k):
                most += length[wheel[j]]
            if used + most > len(elements):
                more = np.empty(2 * len(elements) + most, np.int32)
                more[:used] = elements[:used]
                elements = more
            mask = np.uint64(0)
            for j in range(-1, k):
                s = accepted if j < 0 else wheel[j]
                if s < 0:
                    continue
                for i in range(at[s], at[s] + length[s]):
                    b = elements[i]
                    if stamp[b] != clock:
                        stamp[b] = clock
                        elements[used] = b
                        used += 1
                        mask |= sign_of(b)
            for i in range(start[d], start[d + 1]):
                b = body[i]
                if variable[b] >= 0 and stamp[b] != clock:
                    stamp[b] = clock
                    elements[used] = b
                    used += 1
                    mask |= sign_of(b)
            steps += used - begin_at + 1
            if n_found >= limit:
                extra -= used - begin_at + 1
            if made == sets:
                sets *= 2
                at = np.append(at, np.empty(made, np.int64))
                length = np.append(length, np.empty(made, np.int64))
                sign = np.append(sign, np.empty(made, np.uint64))
                node = np.append(node, np.empty(made, np.int64))
                older = np.append(older, np.empty(made, np.int64))
            if size == len(heap):
                heap = np.append(heap, np.empty(size, np.int64))
            at[made] = begin_at
            length[made] = used - begin_at
            sign[made] = mask
            node[made] = head[d]
            push(heap, size, ((length[made] + need[head[d]]) << 31) | made)
            size += 1
            made += 1
            j = 0
            while j < k:
                wheel[j] = older[wheel[j]]
                if wheel[j] >= 0:
                    break
                wheel[j] = newest[others[j]]
                j += 1
            if j == k or steps >= budget or (n_found >= limit and extra <= 0):
                break
        if steps >= budget or (n_found >= limit and extra <= 0):
            break
    complete = size == 0 and steps < budget and not (n_found >= limit and extra <= 0)
    starts = np.zeros(n_found + 1, np.int64)
    for i in range(n_found):
        starts[i + 1] = starts[i] + length[found[i]]
    listed = np.empty(starts[n_found], np.int32)
    for i in range(n_found):
        s = found[i]
        listed[starts[i] : starts[i + 1]] = elements[at[s] : at[s] + length[s]]
    return starts, listed, complete, steps
