"""Aggregate selection against brute force: random cyclic graphs whose links come and go, on both runtimes.

The brute force follows the definition in docs/sql.md step by step: best values first, then the fewest steps in which
they are derived from best values, then of the last steps of so many the first one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

import whence
from tests.oracle import every_policy, on_partitions

Link = tuple[str | None, str, float]
Row = tuple[str | None, str, str | None, float]  # src, dst, vec, value
Step = tuple[int, tuple[object, ...], Row]  # rule, what the row is made of, and the row

CASES = {
    # the recursive rule's value, what is best, how link and path give a value
    "widest": ("LEAST(link.w, path.v)", "MAX", min),
    "narrowest": ("GREATEST(path.v, link.w)", "MIN", max),
    "cheapest": ("path.v + abs(link.w)", "MIN", lambda w, v: v + abs(w)),
}
Value = Callable[[float, float], float]


@pytest.fixture(params=(None, 3), ids=("embedded", "partitions"), autouse=True)
def runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with on_partitions(request.param):
        yield


def written(value: str, best: str, number: str, options: str, nonlinear: bool = False) -> str:
    step = "path AS link" if nonlinear else "link"
    ours = "link.vec" if nonlinear else "link.src"
    value = value.replace("link.w", "link.v") if nonlinear else value
    return f"""
        CREATE TABLE link (src TEXT, dst TEXT, w {number});
        CREATE VIEW path {options} AS
          SELECT src, dst, src || '.' || dst AS vec, w AS v FROM link
          UNION
          SELECT link.src, path.dst, {ours} || '.' || path.vec, {value} FROM {step} JOIN path ON link.dst = path.src;
        CREATE VIEW best AS SELECT src, dst, {best}(v) AS v FROM path GROUP BY src, dst;
    """


READER = """CREATE VIEW chosen AS SELECT p.src, p.dst, p.vec, p.v FROM path AS p JOIN best AS b
    ON p.src IS NOT DISTINCT FROM b.src AND p.dst = b.dst AND p.v = b.v"""


def tight_steps(links: list[Link], rows: dict[tuple[str | None, str], Row], value: Value) -> Iterator[Step]:
    """All last steps over links, or over a link and one of the rows."""
    for src, dst, w in links:
        yield 0, (w,), (src, dst, None if src is None else f"{src}.{dst}", w)
        for (start, end), (_, _, vec, v) in rows.items():
            if start == dst:
                made = None if src is None or vec is None else f"{src}.{vec}"
                yield 1, (start, w), (src, end, made, value(w, v))


def one_best_row(links: list[Link], value: Value, better: Callable[[float, float], bool]) -> set[Row]:
    best: dict[tuple[str | None, str], float] = {}
    while True:
        found = dict(best)
        rows = {key: (*key, None, v) for key, v in best.items()}
        for _, _, (src, dst, _, v) in tight_steps(links, rows, value):
            if (src, dst) not in found or better(v, found[src, dst]):
                found[src, dst] = v
        if found == best:
            break
        best = found
    kept: dict[tuple[str | None, str], Row] = {}
    while len(kept) < len(best):  # each round: the groups that take one step more
        steps: dict[tuple[str | None, str], list[Step]] = {}
        for rule, parts, row in tight_steps(links, kept, value):
            group = row[:2]
            if group not in kept and row[3] == best[group]:
                steps.setdefault(group, []).append((rule, parts, row))
        assert steps, "a best value without a derivation"
        kept |= {group: min(found, key=lambda s: s[:2])[2] for group, found in steps.items()}
    return set(kept.values())


def follow(
    db: whence.Database, rng: random.Random, integers: bool, check: Callable[[list[Link]], None], least: int = 0
) -> None:
    """Insert and delete random links, several in one transaction, and check after each."""
    links: list[Link] = []
    for _ in range(9):
        with db.transaction():
            for _ in range(rng.randint(1, 3)):
                if links and rng.random() < 0.4:
                    gone = links.pop(rng.randrange(len(links)))
                    db.delete("link", [gone])
                else:
                    src = None if rng.random() < 0.05 else rng.choice("ABCDE")
                    w = rng.randint(least, 3) if integers else rng.choice((0.1, 0.2, 0.3, 1e16, 0.0, -0.1))
                    link = (src, rng.choice("ABCDE"), w)
                    if link not in links:
                        links.append(link)
                        db.insert("link", [link])
        check(links)


@every_policy
@pytest.mark.parametrize("number", ["INT", "DOUBLE"])
@pytest.mark.parametrize("case", CASES)
def test_one_best_row_is_kept(case: str, number: str, policy: str) -> None:
    text, best, value = CASES[case]
    better = (lambda a, b: a > b) if best == "MAX" else (lambda a, b: a < b)
    asked = f"WITH (aggregate_selection = 'one', policy = '{policy}')"
    with whence.open() as db:
        db.execute(written(text, best, number, asked) + READER)

        def check(links: list[Link]) -> None:
            expected = one_best_row(links, value, better)
            assert sorted(db["path"].rows, key=repr) == sorted(expected, key=repr)
            assert sorted(db["chosen"].rows, key=repr) == sorted(expected, key=repr)

        follow(db, random.Random(f"{case} {number}"), number == "INT", check)


@pytest.mark.parametrize("number", ["INT", "DOUBLE"])
@pytest.mark.parametrize("case", CASES)
def test_values_alone_need_no_asking(case: str, number: str) -> None:
    """No reader sees which of several best rows is kept, so a cycle ends without any option."""
    text, best, value = CASES[case]
    better = (lambda a, b: a > b) if best == "MAX" else (lambda a, b: a < b)
    with whence.open() as db:
        db.execute(written(text, best, number, ""))

        def check(links: list[Link]) -> None:
            expected = {(src, dst, v) for src, dst, _, v in one_best_row(links, value, better)}
            assert set(db["best"].rows) == expected
            assert len(db["best"].rows) == len(expected)

        # Sums of whole numbers keep all best rows, of which a cycle of zero cost has no end.
        follow(db, random.Random(case), number == "INT", check, least=1)


@every_policy
def test_a_step_over_two_recursive_rows_keeps_one_row(policy: str) -> None:
    """path over path: every group has one row, which is a way of the links that are there, of the best value."""
    with whence.open() as db:
        asked = f"WITH (aggregate_selection = 'one', policy = '{policy}')"
        db.execute(written("LEAST(link.w, path.v)", "MAX", "INT", asked, True) + READER)

        def check(links: list[Link]) -> None:
            best = {row[:2]: row[3] for row in one_best_row(links, min, lambda a, b: a > b)}
            rows = db["path"].rows
            assert {row[:2]: row[3] for row in rows} == best
            assert len(rows) == len(best)
            width: dict[tuple[str | None, str], float] = {}
            for src, dst, w in links:
                width[src, dst] = max(w, width.get((src, dst), -math.inf))
            for src, dst, vec, v in rows:
                if vec is not None:  # A.B joined with B.C is A.B.B.C
                    ends = vec.split(".")
                    assert (ends[0], ends[-1]) == (src, dst)
                    assert v <= min(width[hop] for hop in zip(ends[::2], ends[1::2], strict=True))

        follow(db, random.Random(5), True, check)


def test_several_aggregates_keep_one_row_each() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE TABLE link (src TEXT, dst TEXT, w INT);
            CREATE VIEW path WITH (aggregate_selection = 'one') AS
              SELECT src, dst, src || '.' || dst AS vec, w AS v, 1 AS hops FROM link
              UNION
              SELECT link.src, path.dst, link.src || '.' || vec, LEAST(link.w, path.v), hops + 1
              FROM link JOIN path ON link.dst = path.src;
            CREATE VIEW widest AS SELECT src, dst, MAX(v) AS v FROM path GROUP BY src, dst;
            CREATE VIEW fewest AS SELECT src, dst, MIN(hops) AS hops FROM path GROUP BY src, dst;
        """)

        def check(links: list[Link]) -> None:
            widest = {row[:2]: row for row in one_best_row(links, min, lambda a, b: a > b)}
            assert {row[:2]: row[2] for row in db["widest"]} == {key: row[3] for key, row in widest.items()}
            rows = db["path"].rows
            assert len(rows) <= 2 * len(widest)
            assert set(widest.values()) <= {row[:4] for row in rows}
            least = {row[:2]: row[2] for row in db["fewest"]}
            assert {row[:2] for row in rows if row[4] == least[row[:2]]} == widest.keys()

        follow(db, random.Random(9), True, check)
