"""sqlglot, held to what Whence needs: tokens of a script, and expressions parsed from a run of them.

Function calls stay calls by name (`exp.Anonymous`) apart from those with a syntax of their own, so that the binder has
one table of functions and a user's function may have any name. Hostile input (huge, or nested very deep) is refused
here, before anything recursive meets it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from whence.errors import SqlError
from whence.sql.position import Lines, mark_positions, shorten

MAX_SQL = 4_000_000
MAX_NESTING = 100
_STACK = 20_000
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_JOIN_SAYS = ("on", "using", "method", "side")  # without any of them sqlglot writes a join as a comma
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS)


class WhenceDialect(DuckDB):
    """DuckDB's SQL, in which EXPLAIN and SHOW are words like any other."""

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT = WhenceDialect()


class BareJoinError(Exception):
    """A JOIN that does not say what it joins on, and where."""

    def __init__(self, token: Token) -> None:
        self.token = token


class _Parser(DuckDBParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser
        for name, parser in DuckDBParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")
    }

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """A join; sqlglot has one node for a comma and for a JOIN without ON, so the latter is refused here."""
        comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
        at = self._curr
        join = super()._parse_join(*args, **kwargs)
        if join is None or comma or any(join.args.get(arg) for arg in _JOIN_SAYS):
            return join
        if join.args.get("kind") in (None, "INNER"):
            raise BareJoinError(at)
        return join


class Source:
    """A script as tokens, with the means to parse runs of them and to say where they stand."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SqlError(f"SQL must be text, not {type(text).__name__}")
        if len(text) > MAX_SQL:
            raise SqlError(f"the SQL text has {len(text):,} characters; at most {MAX_SQL:,} are read at once")
        self.text = text
        self.lines = Lines(text)
        try:
            self.tokens: list[Token] = _DIALECT.tokenize(text)
        except (TokenError, RecursionError) as failure:
            raise self._unreadable() from failure
        self._check_nesting()

    def _unreadable(self) -> SqlError:
        """Tokenizing fails on a quote or a comment that never ends: point at where it opens."""
        opened = _unterminated(self.text)
        line, column = self.lines.at(opened)
        return SqlError(
            "cannot read the SQL from here: a quote or a comment that does not end",
            line=line,
            column=column,
            text=shorten(self.text[opened : opened + 40]),
        )

    def _check_nesting(self) -> None:
        depth = run = 0
        for token in self.tokens:
            kind = token.token_type
            if kind in _OPENING:
                depth += 1
            elif kind in _CLOSING:
                depth -= 1
            run = run + 1 if kind in _PREFIX else 0
            if depth > MAX_NESTING or run > MAX_NESTING:
                raise self.error(f"nested too deeply: at most {MAX_NESTING} levels are read", token)

    def error(self, message: str, token: Token | None = None) -> SqlError:
        """An error at a token, or at the end of the script."""
        if token is None:
            line, column = self.lines.at(len(self.text.rstrip()))
            return SqlError(message, line=line, column=column)
        line, column = self.lines.at(token.start)
        return SqlError(message, line=line, column=column, text=shorten(self.text[token.start : token.end + 1]))

    def parse(self, tokens: Sequence[Token]) -> exp.Expr:
        """One statement or query from its tokens."""
        parser = _Parser(dialect=_DIALECT)
        try:
            with deep_stack():
                found = parser.parse(list(tokens), self.text)
        except ParseError as failure:
            raise self._syntax_error(failure, tokens) from None
        except BareJoinError as failure:
            raise self.error("JOIN needs ON or USING; write CROSS JOIN for all pairs", failure.token) from None
        except RecursionError:
            raise self.error("nested too deeply to be read", tokens[0]) from None
        if len(found) != 1 or found[0] is None:
            raise self.error("expected one statement", tokens[0])
        tree: exp.Expr = found[0]
        mark_positions(tree, self.lines)
        return tree

    def _syntax_error(self, failure: ParseError, tokens: Sequence[Token]) -> SqlError:
        detail = failure.errors[0] if failure.errors else {}
        at = next((t for t in tokens if t.line == detail.get("line") and t.col == detail.get("col")), tokens[-1])
        described = str(detail.get("description") or "syntax error").split("<Token")[0].strip()
        described = described.removesuffix("but got").strip()
        message = "syntax error" if described.startswith("Invalid expression") else f"syntax error: {described}"
        return self.error(message, at)


def _unterminated(text: str) -> int:
    """The offset of the last quote or comment that opens and does not close."""
    at, end = 0, len(text)
    while at < end:
        two = text[at : at + 2]
        if two == "--":
            stop = text.find("\n", at)
        elif two == "/*":
            stop = text.find("*/", at + 2)
            if stop < 0:
                return at
            stop += 1
        elif two == "$$":
            stop = text.find("$$", at + 2)
            if stop < 0:
                return at
            stop += 1
        elif text[at] in "'\"":
            stop = text.find(text[at], at + 1)
            if stop < 0:
                return at
        else:
            stop = at
        if stop < 0:
            break
        at = stop + 1
    return 0


@contextmanager
def deep_stack() -> Iterator[None]:
    """Room for recursive descent: nesting is bounded by MAX_NESTING, each level of which costs some twenty frames.

    The limit is the whole process's, so the last thread to leave puts it back.
    """
    with _stack.lock:
        if not _stack.users:
            _stack.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_stack.before, _STACK))
        _stack.users += 1
    try:
        yield
    finally:
        with _stack.lock:
            _stack.users -= 1
            if not _stack.users:
                sys.setrecursionlimit(_stack.before)


class _Stack:
    """Who needs a deep stack now, and what the limit was before."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1000


_stack = _Stack()
