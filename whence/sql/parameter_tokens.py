"""Parameters in SQL text: `?`, `$1`, `:name` and `$name`, each as one token and one node with its position.

To sqlglot's tokenizer `$1` and `:name` are two tokens, and a colon has other meanings: `{'a':b}`, `x[1:n]` and the
alias of `x: 1`. It begins a parameter where an operand can begin, a name follows at once, and no word is right before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

Style = Literal["?", "$1", ":name"]
_OPERAND_ENDS = {
    *(TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.PLACEHOLDER),
    *(TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE),
}
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


@dataclass(frozen=True)
class Parameter:
    """A parameter: its number (from 1) or its name, as it is written, and where (1-based line and column)."""

    key: int | str
    text: str
    start: int  # offset in the script
    line: int
    column: int

    @property
    def style(self) -> Style:
        if self.text == "?":
            return "?"
        return "$1" if isinstance(self.key, int) else ":name"


def join_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Make one PLACEHOLDER token of each parameter. Its text is `$` and the number or name; those of `?` are counted.

    >>> from sqlglot.dialects.duckdb import DuckDB
    >>> [token.text for token in join_tokens(DuckDB().tokenize("x = ? AND y IN (:a, $b) AND z[1:n] = ?"))]
    ['x', '=', '?1', 'AND', 'y', 'IN', '(', '$a', ',', '$b', ')', 'AND', 'z', '[', '1', ':', 'n', ']', '=', '?2']
    """
    found: list[Token] = []
    at = count = 0
    while at < len(tokens):
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.token_type is TokenType.PLACEHOLDER:
            count += 1
            found.append(_parameter(f"?{count}", token, token))
        elif following is not None and _begins_parameter(found, token, following):
            found.append(_parameter(f"${following.text}", token, following))
            at += 1
        else:
            found.append(token)
        at += 1
    return found


def _parameter(text: str, first: Token, last: Token) -> Token:
    return Token(TokenType.PLACEHOLDER, text, line=first.line, col=first.col, start=first.start, end=last.end)


def _begins_parameter(before: Sequence[Token], token: Token, following: Token) -> bool:
    """Tell whether a `$` or a `:` and what follows it are a parameter."""
    if following.start != token.end + 1 or following.token_type in _QUOTED:
        return False
    if token.token_type is TokenType.PARAMETER:
        return following.text.isidentifier() or (following.text.isdecimal() and following.text.isascii())
    return token.token_type is TokenType.COLON and following.text.isidentifier() and _may_begin_operand(before, token)


def _may_begin_operand(before: Sequence[Token], colon: Token) -> bool:
    if not before:
        return True
    last = before[-1]
    if last.token_type in _OPERAND_ENDS or (last.end + 1 == colon.start and last.text.isidentifier()):
        return False
    sliced = last.token_type is TokenType.L_BRACKET and len(before) > 1
    return not (sliced and (before[-2].token_type in _OPERAND_ENDS or before[-2].token_type is TokenType.VAR))


def read_parameter(token: Token, script: str, place: tuple[int, int]) -> Parameter:
    """Return the parameter of a PLACEHOLDER token of a script."""
    text = script[token.start : token.end + 1]
    return Parameter(_key(token.text), text, token.start, *place)


def _key(text: str) -> int | str:
    return int(text[1:]) if text[1:].isdecimal() else text[1:]


def parse_placeholder(parser: Any) -> exp.Placeholder:
    """Return the node of the PLACEHOLDER token that the parser has just read."""
    token: Token = parser._prev
    named = token.text[1:] if token.text.startswith("$") else None
    return exp.Placeholder(this=named).update_positions(token)
