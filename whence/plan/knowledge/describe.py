"""Say in words what each column of a relation knows: for DESCRIBE.

| words | what they say |
|---|---|
| `=` | final as soon as it is there |
| `≥`, `≤` | the final value is at least, at most the one shown |
| `as of` | nothing is known of the final value |
| `…, may go` | that holds while the row is there; it may go, and then does not come back |
| `… while there` | that holds while the row is there; it may go, and come again |
| `true stays`, `false stays` | a condition that is true, or false, remains so |
| `…, = once at passes` | it is final when the horizon of that column has passed the row |
| `…, = once game closes` | it is final when that key is closed |
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.plan.knowledge.checks import rising_columns
from whence.plan.knowledge.model import Branch, LiteralTerm, Operation, RelationKnowledge, SourceFacts, Term, Variable
from whence.plan.knowledge.terms import Direction, growths_in, walk

_WAYS = {"still": "=", "up": "≥", "down": "≤", "any": "as of"}
_TRUTHS = {"up": "true stays", "down": "false stays"}


def describe_cells(knowledge: RelationKnowledge, directions: Sequence[Direction], stays: bool) -> tuple[str, ...]:
    """Return the words for each column; `directions` are theirs, and with `stays` rows never go."""
    found = []
    gone = _closing(knowledge, knowledge.presence)
    for term, direction in zip(knowledge.cells, directions, strict=True):
        words = _WAYS[direction]
        if term.type == "BOOLEAN" and direction != "still":
            words = _TRUTHS.get(direction, "as of")
        if stays:
            found.append(words if direction == "still" else _with(words, _closing(knowledge, [term])))
        elif knowledge.returns:
            words = f"{words} while there" if direction in ("up", "down") else "as of"
            found.append(_with(words, _both(gone, _closing(knowledge, [term]))))
        else:
            words = f"{words}, may go" if direction != "still" else "may go"
            found.append(_with(words, _both(gone, _closing(knowledge, [term]))))
    return tuple(found)


def _with(words: str, closing: str | None) -> str:
    return f"{words}, = once {closing}" if closing else words


def _both(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return None
    return " and ".join(dict.fromkeys([*one.split(" and "), *filter(None, other.split(" and "))]))


def _closing(knowledge: RelationKnowledge, terms: Sequence[Term]) -> str | None:
    """Return what closes everything that terms depend on; None if it may never be closed."""
    words: list[str] = []
    for growth in sorted({g for term in terms for g in growths_in(term)}):
        for branch in knowledge.growths[growth].branches:
            for base in branch.bases if branch.new is None else [branch.bases[n] for n in branch.new]:
                closes = _closes(knowledge.sources[base], branch, branch.bases.index(base))
                if closes is None:
                    return None
                words.append(closes)
    return " and ".join(dict.fromkeys(words))


def _closes(source: SourceFacts, branch: Branch, at: int) -> str | None:
    """Return what keeps rows of a base from coming; None if nothing does."""
    given = _given(branch)
    if source.closes and all((at, column) in given for column in source.closes):
        return f"{source.key_name} closes"
    if source.ordered is None:
        return None
    read = {v for term in (*branch.keys, *branch.where) for v in walk(term) if isinstance(v, Variable)}
    rising = {(at, column) for column in rising_columns(source)}
    decides = any((v.base, v.column) in rising for v in read) or bool(rising & given)
    if decides or source.columns[source.ordered].high is not None:
        return f"{source.column_name} passes"
    return None


def _given(branch: Branch) -> set[tuple[int, int]]:
    """Return the columns of bases whose values are known: keys, constants, and what must equal them."""
    found = {(term.base, term.column) for term in branch.keys if isinstance(term, Variable)}
    for _ in branch.where:
        for condition in branch.where:
            if isinstance(condition, Operation) and condition.op == "=":
                pair = {(arg.base, arg.column) for arg in condition.args if isinstance(arg, Variable)}
                constant = any(isinstance(arg, LiteralTerm) for arg in condition.args)
                if constant or (len(pair) == 2 and pair & found):
                    found |= pair
    return found
