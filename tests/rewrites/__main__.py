"""Fill in the plans of cases that have none: `python -m tests.rewrites`."""

from __future__ import annotations

from tests.rewrites.cases import FILES, read, rewritten

for path in FILES:
    cases = [case if case.after else rewritten(path.stem, case) for case in read(path)]
    path.write_text("\n".join(map(str, cases)))
