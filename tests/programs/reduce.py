"""Making a failing program small: steps, writes, views and choices are taken away as long as it still fails.

A smaller program counts if it fails in the same way: `alike` compares the messages without names, numbers and rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.programs.generate import Program
from tests.programs.play import Mismatch, play


def failure(program: Program) -> str | None:
    """Return how a program fails, or None."""
    try:
        play(program)
    except Mismatch as error:
        return str(error)
    return None


def alike(message: str) -> str:
    """Return the kind of a failure.

    >>> alike("step 3: Mismatch: v0 after an epoch: too many [(1,)], missing []")
    'Mismatch: too many'
    """
    kind, _, rest = message.partition(": ")[2].partition(": ")
    for known in (
        "too many",
        "changes do not",
        "changes withdraw",
        "made from nothing it has",
        "must fail",
        "failed, but",
    ):
        if known in rest:
            return f"{kind}: {known}"
    return f"{kind}: {re.sub(r'[0-9]+|line.*?:|[(].*', '', rest)[:40]}"


def reduce(program: Program, seconds: float = 60, test: Callable[[Program], str | None] = failure) -> Program:
    """Return a smaller program that fails in the same way; after so many seconds, the smallest found so far."""
    found = test(program)
    if found is None:
        return program
    wanted, end = alike(found), time.monotonic() + seconds

    def fails(candidate: Program) -> bool:
        said = test(candidate) if time.monotonic() < end else None
        return said is not None and alike(said) == wanted

    while time.monotonic() < end:
        smaller = next((candidate for candidate in _candidates(program) if fails(candidate)), None)
        if smaller is None:
            break
        program = smaller
    return program


def _candidates(program: Program) -> Iterator[Program]:
    """Yield programs that are a little smaller, those that save most first."""
    if program.partitions is not None:
        yield replace(program, partitions=None)
    steps, count = program.steps, len(program.steps)
    size = count // 2
    while size:
        for start in range(0, count, size):
            yield replace(program, steps=steps[:start] + steps[start + size :])
        size //= 2
    for at, step in enumerate(steps):
        for gone in range(len(step.writes)):
            less = replace(step, writes=step.writes[:gone] + step.writes[gone + 1 :])
            yield replace(program, steps=(*steps[:at], less, *steps[at + 1 :]))
    for number, record in enumerate(program.choices):
        for shorter in _shorter(record):
            yield replace(program, choices=(*program.choices[:number], shorter, *program.choices[number + 1 :]))
    for at, step in enumerate(steps):
        for place, write in enumerate(step.writes):
            for column, value in enumerate(write.row):
                if value is not None and column:
                    row = (*write.row[:column], None, *write.row[column + 1 :])
                    writes = (*step.writes[:place], replace(write, row=row), *step.writes[place + 1 :])
                    yield replace(program, steps=(*steps[:at], replace(step, writes=writes), *steps[at + 1 :]))


def _shorter(record: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield records of choices with some left out, or made 0."""
    size = len(record)
    while size:
        for start in range(0, len(record), size):
            yield record[:start] + record[start + size :]
        size //= 2
    for at, choice in enumerate(record):
        if choice:
            yield (*record[:at], 0, *record[at + 1 :])


def show(program: Program) -> str:
    """Return a program as a script of its steps."""
    lines = [table.create() + ";" for table in program.tables]
    views = program.views()
    if program.partitions is not None:
        lines.insert(0, f"-- in a folder, on {program.partitions or 'no'} partitions")
    for number, step in enumerate(program.steps):
        if step.create is not None and step.create < len(views):
            lines.append(f"{views[step.create].create()};  -- step {number}")
        elif step.drop is not None:
            lines.append(f"DROP VIEW v{step.drop};  -- step {number}")
        elif step.reopen is not None:
            lines.append(f"-- step {number}: reopen on {step.reopen or 'no'} partitions, snapshot: {step.snapshot}")
        elif step.writes:
            lines.append(f"-- step {number}: a transaction" + (" that is made to fail" if step.poisoned else ""))
            lines += [f"--   {w.sql or ('+' if w.sign > 0 else '-') + f' {w.table} {w.row}'}" for w in step.writes]
    return "\n".join(lines)
