"""`python -m whence.subscribe.simulate --seeds 300`: simulate, and say how to repeat what fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from whence.subscribe.simulate.bugs import BUGS, describe_bugs
from whence.subscribe.simulate.database_bugs import DATABASE_BUGS
from whence.subscribe.simulate.runs import run_seed, run_seeds


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return how many runs failed, at most 1."""
    bugs = describe_bugs()
    names = "\n".join(f"  {name:28} {what}" for name, what in bugs.items())
    parser = argparse.ArgumentParser(
        prog="python -m whence.subscribe.simulate",
        description="Simulate publishers, brokers and subscribers over links that lose, and check what they are told.",
        epilog=f"planted bugs:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--depth", choices=["model", "databases"], default="model", help="what nodes are made of")
    parser.add_argument("--bug", choices=list(bugs), help="plant a bug; the first run that finds it ends the search")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    if given.bug is not None and given.bug not in (BUGS if given.depth == "model" else DATABASE_BUGS):
        parser.error(f"this bug is not one of the depth {given.depth}")
    began, failed, runs, shown, messages = time.monotonic(), 0, 0, 0, 0
    seen: Counter[str] = Counter()
    for result in run_seeds(range(given.first, given.first + given.seeds), given.bug, given.jobs, given.depth):
        runs, shown, messages = runs + 1, shown + result.shown, messages + result.messages
        seen.update(dict(result.seen))
        if result.failure is not None:
            failed += 1
            print(run_seed(result.seed, given.bug, True, given.depth) if given.seeds == 1 else result)
            if given.bug is not None:
                break
    seconds = time.monotonic() - began
    print("faults: " + ", ".join(f"{count} {name}" for name, count in sorted(seen.items()) if count))
    print(f"{runs} runs, {failed} failed, {shown} values checked, {messages} messages, {seconds:.1f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
