"""Take rows in between out of bodies, for `explain/derive/contract.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel


@allocating
def splice(stays: Any, start: Codes, body: Ints, skip: Any, own: Codes) -> tuple[Codes, Ints, Any]:
    """Return of the derivations that stay how large they are, their bodies, and which of them changed, when the body of
    derivation `own[n]` takes the place of each node n to skip, down to nodes that stay."""
    size = np.empty(len(stays), np.int64)
    changed = np.zeros(len(stays), np.bool_)
    stack = np.empty((len(own) + 1, 2), np.int64)
    none = np.empty(0, np.int32)
    end = count = 0
    for d in range(len(stays)):
        if stays[d]:
            size[count] = _expand(start[d], start[d + 1], start, body, skip, own, stack, none, 0)
            for i in range(start[d], start[d + 1]):
                if skip[body[i]]:
                    changed[count] = True
            end += size[count]
            count += 1
    out = np.empty(end, np.int32)
    end = 0
    for d in range(len(stays)):
        if stays[d]:
            end = _expand(start[d], start[d + 1], start, body, skip, own, stack, out, end)
    return size[:count], out, changed[:count]


@kernel
def _expand(at, last, start, body, skip, own, stack, out, end):
    """Write the nodes that a part of a body stands for from place `end` on, if there is any room, and where that ends.
    The stack has the rest of the bodies that are still to be gone through."""
    depth = 0
    while at < last or depth:
        if at == last:
            depth -= 1
            at, last = stack[depth, 0], stack[depth, 1]
            continue
        n = body[at]
        at += 1
        if skip[n]:
            stack[depth, 0], stack[depth, 1] = at, last
            depth += 1
            at, last = start[own[n]], start[own[n] + 1]
            continue
        if len(out):
            out[end] = n
        end += 1
    return end


@allocating
def alike(some: Codes, start: Codes, size: Codes, body: Ints, relation: Ints, step: Ints) -> tuple[Codes, Codes]:
    """Return the kind of each derivation, and which is the first of each kind. Derivations of one step whose bodies are
    of the same relations are of one kind."""
    kind = np.empty(len(some), np.int64)
    first = np.empty(len(some), np.int64)
    places = 16
    while places < 2 * len(some):
        places *= 2
    table = np.full(places, -1, np.int64)
    kinds = 0
    for i in range(len(some)):
        d = some[i]
        h = np.int64(step[d])
        for j in range(start[d], start[d] + size[d]):
            h = (h * 1000003) ^ relation[body[j]]
        at = (h ^ (h >> 20)) & (places - 1)
        while table[at] >= 0:
            other = first[table[at]]
            same = step[other] == step[d] and size[other] == size[d]
            j = 0
            while same and j < size[d]:
                same = relation[body[start[other] + j]] == relation[body[start[d] + j]]
                j += 1
            if same:
                break
            at = (at + 1) & (places - 1)
        if table[at] < 0:
            table[at] = kinds
            first[kinds] = d
            kinds += 1
        kind[i] = table[at]
    return kind, first[:kinds]
