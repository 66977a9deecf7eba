"""Look for programs that fail: `python -m tests.programs [--minutes 5] [--seed 0] [--skip REGEX]`.

Every failure of a new kind is made small and printed, with its seed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from tests.programs.generate import make_program
from tests.programs.reduce import alike, failure, reduce, show


def main() -> int:
    """Search until the time is up; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--programs", type=int, default=1_000_000, help="at most so many")
    parser.add_argument("--reduce", type=float, default=60.0, help="seconds to spend on making one failure small")
    parser.add_argument("--skip", help="leave out programs whose SQL matches: what is known to fail hides the rest")
    args = parser.parse_args()
    end, kinds, seed = time.monotonic() + 60 * args.minutes, set[str](), args.seed
    while time.monotonic() < end and seed < args.seed + args.programs:
        program = make_program(seed)
        known = args.skip is not None and re.search(args.skip, show(program)) is not None
        said = failure(program) if not known else None
        if said is not None and alike(said) not in kinds:
            kinds.add(alike(said))
            small = reduce(program, args.reduce)
            print(f"-- seed {seed}: {failure(small)}\n{show(small)}\n", flush=True)
        seed += 1
    print(f"{seed - args.seed} programs, {len(kinds)} kinds of failure")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
