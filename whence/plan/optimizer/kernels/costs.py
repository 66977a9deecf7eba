"""Row counts of entries and local costs of alternatives: integers, computed in one place for all optimizers.

An and-or graph is two arrays. `entries` has a row an OR node: its expression, its first alternative and the one after
the last. `alternatives` has a row an AND node: its entry, its operator, its left and right input (-1 if there is none).
`logs` has two columns an entry: the log of the rows that its joins find, and of those that it passes on; `rows` has the
row counts of these.
"""

from __future__ import annotations

from whence.model.codes import Codes
from whence.model.jit import kernel

FRACTION = 20  # bits of a log after the point
MOST_BITS = 40  # a row count is at most 2 ** MOST_BITS, so that the cost of a plan fits 62 bits
EXPRESSION, FIRST, LAST = 0, 1, 2  # columns of entries
ENTRY, OPERATOR, LEFT, RIGHT = 0, 1, 2, 3  # columns of alternatives
FOUND, PASSED = 0, 1  # columns of logs and rows
FIXED, PER_LEFT, PER_RIGHT, PER_FOUND, PER_SORTED = 0, 1, 2, 3, 4  # columns of rates
FELL, ROSE, STALE = 1, 2, 4  # what has happened to an alternative
NO_COST = 1 << 61  # no plan is known


@kernel
def rows_of(log: int) -> int:
    """Return the row count of a log: at least one, as planners do."""
    if log <= 0:
        return 1
    if log >= MOST_BITS << FRACTION:
        return 1 << MOST_BITS
    return int(2.0 ** (log / (1 << FRACTION)) + 0.5)


@kernel
def local_cost(rates: Codes, operator: int, left: int, right: int, found: int) -> int:
    """Return what an operator costs over so many rows."""
    cost = (
        rates[operator, FIXED]
        + rates[operator, PER_LEFT] * left
        + rates[operator, PER_RIGHT] * right
        + rates[operator, PER_FOUND] * found
    )
    if rates[operator, PER_SORTED] != 0:
        bits, rest = 1, left
        while rest > 1:
            rest >>= 1
            bits += 1
        cost += rates[operator, PER_SORTED] * left * bits
    return int(cost)


@kernel
def local_of(alternative: int, alternatives: Codes, rows: Codes, rates: Codes, given: Codes) -> int:
    """Return the local cost of an alternative: the one that was given, or that of its operator."""
    if given[alternative] >= 0:
        return int(given[alternative])
    left, right = alternatives[alternative, LEFT], alternatives[alternative, RIGHT]
    entry = alternatives[alternative, ENTRY]
    return local_cost(
        rates,
        alternatives[alternative, OPERATOR],
        rows[left, PASSED] if left >= 0 else rows[entry, PASSED],
        rows[right, PASSED] if right >= 0 else 0,
        rows[entry, FOUND],
    )


@kernel
def fill_locals(start: int, alternatives: Codes, rows: Codes, rates: Codes, given: Codes, local: Codes) -> None:
    """Compute the local costs of all alternatives from `start` on."""
    for alternative in range(start, len(alternatives)):
        local[alternative] = local_of(alternative, alternatives, rows, rates, given)


@kernel
def fill_rows(start: int, logs: Codes, rows: Codes) -> None:
    """Compute the row counts of all entries from `start` on."""
    for entry in range(start, len(logs)):
        rows[entry, FOUND] = rows_of(logs[entry, FOUND])
        rows[entry, PASSED] = rows_of(logs[entry, PASSED])


@kernel
def shift_rows(
    expression: int, own: int, change: int, aggregated: int, entries: Codes, logs: Codes, rows: Codes, moved: Codes
) -> None:
    """Add to the logs of all entries that contain an expression; what the joins of the expression itself find changes
    only if it is `own`. Mark the entries that moved, and those whose alternatives did."""
    for entry in range(len(entries)):
        each = entries[entry, EXPRESSION]
        if each & expression != expression:
            continue
        moved[entry] |= ROSE if change > 0 else FELL
        if each & aggregated:  # groups do not grow with rows
            moved[entry] |= STALE
            continue
        logs[entry, PASSED] += change
        rows[entry, PASSED] = rows_of(logs[entry, PASSED])
        if own or each != expression or expression & (expression - 1) == 0:
            moved[entry] |= STALE
            logs[entry, FOUND] += change
            rows[entry, FOUND] = rows_of(logs[entry, FOUND])


@kernel
def move_locals(
    entries: Codes,
    alternatives: Codes,
    rows: Codes,
    rates: Codes,
    given: Codes,
    moved: Codes,
    local: Codes,
    hit: Codes,
    touched: Codes,
) -> tuple[int, int]:
    """Compute the local costs of alternatives whose entries moved; mark those that did, and list them in `touched`;
    return how many there are, and the most that a plan can have fallen by."""
    count, fallen = 0, 0
    for entry in range(len(entries)):
        if not moved[entry] & STALE:
            continue
        deepest = 0
        for alternative in range(entries[entry, FIRST], entries[entry, LAST]):
            new = local_of(alternative, alternatives, rows, rates, given)
            old = local[alternative]
            hit[alternative] |= (FELL if new < old else 0) | (ROSE if new > old else 0)
            if new == old:
                hit[alternative] |= moved[entry] & (FELL | ROSE)
            deepest = max(deepest, old - new)
            local[alternative] = new
            touched[count] = alternative
            count += 1
        fallen += deepest
    return count, fallen
