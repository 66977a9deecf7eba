"""Blocks of 16 boxes whose ends are compared at once: each end as 32 bits, relative to the block.

A **lane** stands for an end x of a dimension by the block's **frame** of that dimension: a number no end is below, and
by how many bits the distance from it is shifted, so that it fits. Lanes order like ends, if not strictly: they are
exact where the shift is 0. A missing low end is before all others, a missing high end behind. A box that is dead, or
not there, has lanes that meet nothing.

Frame: its low 7 bits are twice the shift, and one more if lanes are not exact; the others are those of the number.
Lanes of block k are 16 low ends of each dimension, then 16 high ends of each; those of a dimension are one cache line.

A **query** is a box in the first dimensions; in the next one, boxes must hold one of some values, if there are any. It
is a line [its number, dimensions of the box, values, least mark, lows of all dimensions, highs, values].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel

BLOCK = 16
Lanes = NDArray[np.uint32]

_NULL = -(2**63)
_LAST = 2**63 - 1
_NO_LOW = 1  # lanes: of a low end that is missing,
_FIRST = 2  # of the frame's number,
_MOST = 2**32 - 5  # greatest distance from it,
_NO_HIGH = 2**32 - 2  # of a high end that is missing,
_DEAD_LOW = 2**32 - 1  # and of a box that meets nothing
_DEAD_HIGH = 0
_BITS = 127
NUMBER, BOXED, COUNT, MARK, LOWS = range(5)  # columns of a query

_LANE = ir.IntType(32)
_LANES = ir.VectorType(_LANE, BLOCK)


def _compared(operator: str) -> Any:
    """Return an intrinsic that compares the 16 lanes from a place on with one: bit j says whether lane j is so."""

    @intrinsic
    def compare(typing_context, lanes, at, lane):
        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.bitcast(builder.gep(array.data, [args[1]]), _LANES.as_pointer())
            nothing = ir.Constant(_LANES, ir.Undefined)
            one = builder.insert_element(nothing, builder.trunc(args[2], _LANE), _LANE(0))
            every = builder.shuffle_vector(one, nothing, ir.Constant(_LANES, [0] * BLOCK))
            found = builder.icmp_unsigned(operator, builder.load(place, align=4), every)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), ir.IntType(64))

        return types.int64(lanes, types.int64, types.int64), codegen

    return compare


at_most, at_least = _compared("<="), _compared(">=")


def _first_bit(typing_context, bits):
    """The place of the lowest bit that is set."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen


def _prefetch(typing_context, array, at):
    """Have the cache line that an item is in fetched, without waiting for it."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        form = ir.FunctionType(ir.VoidType(), (address.type, _LANE, _LANE, _LANE))
        to_read, to_stay, of_data = _LANE(0), _LANE(3), _LANE(1)
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", fnty=form), [address, to_read, to_stay, of_data])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


first_bit: Any = intrinsic(_first_bit)
prefetch: Any = intrinsic(_prefetch)


@kernel
def frame_of(low: int, high: int, exact: bool) -> int:
    """The frame of ends from `low` to `high`."""
    base = low & ~_BITS
    distance = np.uint64(high) - np.uint64(base)
    shift = 0
    while distance >> np.uint64(shift) > np.uint64(_MOST):
        shift += 1
    return base | 2 * shift | int(shift > 0 or not exact)


@kernel
def lane_of(x: int, frame: int) -> int:
    """The lane of an end, or of a number that is compared with ends."""
    base = frame & ~_BITS
    distance = (np.uint64(x) - np.uint64(base)) >> np.uint64((frame & _BITS) >> 1)
    lane = _NO_HIGH if x >= _LAST - 1 or distance > np.uint64(_MOST) else int(np.int64(distance)) + _FIRST
    lane = _NO_LOW if x < base or x <= _NULL + 1 else lane
    return 0 if x == _NULL else lane


@kernel
def bury(lanes: Lanes, k: int, j: int, dims: int) -> None:
    """Let box j of block k meet nothing."""
    at = k * 2 * dims * BLOCK + j
    for d in range(dims):
        lanes[at + d * BLOCK] = _DEAD_LOW
        lanes[at + (dims + d) * BLOCK] = _DEAD_HIGH


@kernel
def pack_block(boxes: Codes, first: int, count: int, dims: int, frames: Codes, lanes: Lanes, k: int) -> None:
    """Make block k of some boxes: lines that begin with the low ends and the high ends of all dimensions."""
    for d in range(dims):
        low = _LAST
        high = _NULL
        exact = True
        for i in range(first, first + count):
            for c in range(d, 2 * dims, dims):
                end = boxes[i, c]
                if _NULL + 1 < end < _LAST - 1:
                    low = min(low, end)
                    high = max(high, end)
                elif end != (_NULL + 1 if c == d else _LAST):  # of ranges that are points, or as far as differences go
                    exact = False
        if low > high:
            low = 0
            high = 0
        frame = frame_of(low, high, exact)
        frames[k, d] = frame
        at = (k * 2 * dims + d) * BLOCK
        for j in range(count):
            lanes[at + j] = lane_of(boxes[first + j, d], frame)
            lanes[at + dims * BLOCK + j] = max(lane_of(boxes[first + j, dims + d], frame), _NO_LOW)
    for j in range(count, BLOCK):
        bury(lanes, k, j, dims)


@kernel
def bound_block(boxes: Codes, first: int, count: int, dims: int, bounds: Codes, b: int) -> None:
    """Write the bounds of some boxes into a line, which may be that of the first."""
    for d in range(dims):
        low = boxes[first, d]
        high = boxes[first, dims + d]
        for i in range(first + 1, first + count):
            low = min(low, boxes[i, d])
            high = max(high, boxes[i, dims + d])
        bounds[b, d] = low
        bounds[b, dims + d] = high


@kernel
def meeting(frames: Codes, lanes: Lanes, k: int, dims: int, queries: Codes, line: int) -> int:
    """The boxes of block k that meet a query, a bit each; more than these where lanes are not exact."""
    at = k * 2 * dims * BLOCK
    behind = dims * BLOCK
    found = 0xFFFF
    boxed = queries[line, BOXED]
    for d in range(boxed):
        low = queries[line, LOWS + d]
        high = queries[line, LOWS + dims + d]
        frame = frames[k, d]
        last = lane_of(high, frame)
        first = last if low == high else lane_of(low, frame)
        found &= at_most(lanes, at, last) & at_least(lanes, at + behind, max(first, _NO_LOW))
        if found == 0:
            return 0
        at += BLOCK
    count = queries[line, COUNT]
    if count == 0:
        return found
    frame = frames[k, boxed]
    values = LOWS + 2 * dims
    held = 0
    for v in range(values, values + count):
        lane = lane_of(queries[line, v], frame)
        held |= at_most(lanes, at, lane) & at_least(lanes, at + behind, max(lane, _NO_LOW))
        if held & found == found:
            break
    return found & held


@kernel
def is_exact(frames: Codes, k: int, queries: Codes, line: int) -> bool:
    """Whether lanes of block k are exact in the dimensions that a query asks about."""
    inexact = 0
    for d in range(queries[line, BOXED] + (queries[line, COUNT] > 0)):
        inexact |= frames[k, d]
    return bool(inexact & 1 == 0)


@kernel
def meets(boxes: Codes, i: int, dims: int, queries: Codes, line: int) -> bool:
    """Whether box i meets a query."""
    boxed = queries[line, BOXED]
    for d in range(boxed):
        if boxes[i, d] > queries[line, LOWS + dims + d] or boxes[i, dims + d] < queries[line, LOWS + d]:
            return False
    count = queries[line, COUNT]
    if count == 0:
        return True
    values = LOWS + 2 * dims
    for v in range(values, values + count):
        if boxes[i, boxed] <= queries[line, v] <= boxes[i, dims + boxed]:
            return True
    return False
