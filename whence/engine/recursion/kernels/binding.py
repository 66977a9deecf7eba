"""Binding: taking a row into the variables of a rule, and the tests and computations that variables allow."""

from __future__ import annotations

from whence.engine.core.kernels.doubles import to_code, to_float
from whence.engine.exchange.kernels.routing import route_cell
from whence.engine.recursion.kernels.store import (
    MISSING,
    OVERFLOW,
    S_KNOWN,
    S_PARTITION,
    S_PARTITIONS,
    S_PASSED,
    S_PASSES,
    S_STATUS,
)
from whence.model.jit import kernel

NULL = -(2**63)
_MOST = 2**63 - 1

# Tests and computations on bound variables
EQ, NE, LT, LE, GT, GE, SAME, NOT_NULL, IS_NULL, MUST_BE, FITS, HERE = range(12)
ADD, SUB, MUL, FADD, FSUB, FMUL, LEAST, GREATEST, TO_FLOAT = range(16, 25)


@kernel
def _stopped(k, status):
    """Return whether a derivation that failed stops the kernel; else it is skipped, as a test that does not hold."""
    if k.scalar[S_KNOWN]:
        return False
    k.scalar[S_STATUS] = status
    return True


@kernel
def _compute(k, rule, op, to, a, b):
    """Do one operation on the binding: a test returns whether it holds, a computation sets a variable and holds."""
    env = k.env
    x = env[rule, a]
    if op == NOT_NULL:
        return x != NULL
    if op == IS_NULL:
        return x == NULL
    if op == MUST_BE:
        if x == NULL and k.scalar[S_PASSES]:
            k.scalar[S_PASSED] = 1
            return False
        return x != NULL or _stopped(k, MISSING)
    if op == HERE:
        return k.scalar[S_PARTITION] == (route_cell(x, k.scalar[S_PARTITIONS]) if a >= 0 else 0)
    if op == TO_FLOAT:
        env[rule, to] = NULL if x == NULL else to_code(float(x) / float(env[rule, b]))
        return True
    y = env[rule, b]
    if op == SAME:
        return x == y
    if op == FITS:
        return x == NULL or -y < x < y or _stopped(k, OVERFLOW)
    if op < ADD:
        if x == NULL or y == NULL:
            return False
        if op == EQ:
            return x == y
        if op == NE:
            return x != y
        if op == LT:
            return x < y
        if op == LE:
            return x <= y
        if op == GT:
            return x > y
        return x >= y
    if x == NULL or y == NULL:
        if op >= LEAST:
            env[rule, to] = y if x == NULL else x
        else:
            env[rule, to] = NULL
        return True
    z = x
    # Overflow is looked for before computing: the compiler takes it that there is none.
    if op == ADD:
        if (y > 0 and x > _MOST - y) or (y < 0 and x < -_MOST - y):
            return _stopped(k, OVERFLOW)
        z = x + y
    elif op == SUB:
        if (y < 0 and x > _MOST + y) or (y > 0 and x < -_MOST + y):
            return _stopped(k, OVERFLOW)
        z = x - y
    elif op == MUL:
        if y != 0 and abs(x) > _MOST // abs(y):
            return _stopped(k, OVERFLOW)
        z = x * y
    elif op == FADD:
        z = to_code(to_float(x) + to_float(y))
    elif op == FSUB:
        z = to_code(to_float(x) - to_float(y))
    elif op == FMUL:
        z = to_code(to_float(x) * to_float(y))
    elif op == LEAST:
        z = min(x, y)
    else:
        z = max(x, y)
    env[rule, to] = z
    return True


@kernel
def bind(k, rule, row, at):
    """Take a row into the binding: variables, then checks, then operations; `at` is where the plan lists them."""
    plans, env, cells = k.plans, k.env, k.cells
    n = plans[at]
    at += 1
    for _ in range(n):
        env[rule, plans[at + 1]] = cells[row, plans[at]]
        at += 2
    n = plans[at]
    at += 1
    for _ in range(n):
        if env[rule, plans[at + 1]] != cells[row, plans[at]]:
            return False
        at += 2
    n = plans[at]
    at += 1
    for _ in range(n):
        if not _compute(k, rule, plans[at], plans[at + 1], plans[at + 2], plans[at + 3]):
            return False
        at += 4
    return True
