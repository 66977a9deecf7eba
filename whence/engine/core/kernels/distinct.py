"""How many distinct keys a relation has in some columns, without an index: HyperLogLog, one pass.

A row's hash picks a register and says how rare it is; a register keeps the rarest. `distinct.py` reads them.
"""

from __future__ import annotations

from whence.engine.core.kernels.table import hash_key
from whence.model.codes import Codes
from whence.model.jit import kernel

REGISTERS = 2048
_BITS = 11


@kernel
def fill_registers(rows: Codes, cols: Codes, ann: Codes, high: int, registers: Codes) -> None:
    """Give each register the most leading zeros, and one, of the hashes that fall into it; rows of annotation zero are
    not there."""
    for i in range(high):
        if ann[i] == 0:
            continue
        tag = hash_key(rows, i, cols)
        place = tag & (REGISTERS - 1)
        rest = tag >> _BITS
        zeros = 1
        while zeros <= 32 - _BITS and (rest >> (32 - _BITS - zeros)) & 1 == 0:
            zeros += 1
        if zeros > registers[place]:
            registers[place] = zeros
