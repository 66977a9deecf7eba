"""sqlglot, restricted to what Whence needs: tokens of a script, and expressions parsed from a run of them.

Function calls stay calls by name (`exp.Anonymous`) apart from those with a syntax of their own, so that the binder has
one table of functions and a user's function may have any name. Hostile input (huge, or nested very deep) is refused
here, before anything recursive meets it.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from whence.model.errors import SqlError
from whence.sql.parameter_tokens import join_tokens, parse_placeholder
from whence.sql.position import LineIndex, mark_positions, position, shorten

MAX_SQL = 4_000_000
MAX_WORDS = 300_000  # a word or sign costs some 20 µs until its statement has run
MAX_NESTING = 100
MAX_BRANCHES = 1_000  # of set operations
MAX_TREE = 1_000  # levels of a parsed statement, of which a level of nesting makes several
MAX_NAME = 1_000  # characters of a name or digits of a number
_STACK = 20_000
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_NEED_ON = (None, "INNER", "OUTER", "SEMI", "ANTI")
_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_JOIN_SAYS = ("on", "using", "method")  # what is joined on
_PIVOTS = (TokenType.PIVOT, TokenType.UNPIVOT)
_NAMES = (TokenType.IDENTIFIER, TokenType.VAR)
_NUMBERS = (TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING)
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS)
_WORD = re.compile(  # what the tokenizer will find, nearly, but a hundred times sooner; a comment is none
    r"""(?:--[^\n]*+|/\*.*?\*/|\s++)*+(?:'(?:[^']++|'')*+'?|"(?:[^"]++|"")*+"?|\$\$.*?\$\$|\d++(?:\.\d++)?|\w++|[^\w\s])""",
    re.DOTALL,
)


class WhenceDialect(DuckDB):
    """DuckDB's SQL, in which EXPLAIN and SHOW are ordinary words."""

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Generator(DuckDBGenerator):
        """The generator of queries for DuckDB, which keeps IGNORE NULLS where sqlglot would drop it."""

        def ignorenulls_sql(self, expression: exp.IgnoreNulls) -> str:
            return f"{self.sql(expression, 'this')} IGNORE NULLS"

        def respectnulls_sql(self, expression: exp.RespectNulls) -> str:
            return f"{self.sql(expression, 'this')} RESPECT NULLS"


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
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {TokenType.PLACEHOLDER: parse_placeholder}
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {  # in PostgreSQL `?` is an operator of JSON, too
        kind: parser for kind, parser in DuckDBParser.COLUMN_OPERATORS.items() if kind is not TokenType.PLACEHOLDER
    }

    def _parse_as_command(self, start: Token) -> exp.Command:
        """Refuse a statement that sqlglot does not know; sqlglot would keep it as text and log a warning."""
        self.raise_error("not supported", start)
        return super()._parse_as_command(start)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """Parse a join; refuse one without ON.

        sqlglot has one node for a comma and for such a JOIN; and it takes the joins that follow for a nested one, which
        might have two ONs at its end, and then reads them again, each time twice as often.
        """
        comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
        at = self._curr
        join = super()._parse_join(*args, **kwargs)
        if join is None or comma or any(join.args.get(arg) for arg in _JOIN_SAYS):
            return join
        if join.args.get("kind") in _NEED_ON:
            raise BareJoinError(at)
        return join


class Script:
    """A script as tokens, with the means to parse runs of them and to say where they stand."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SqlError(f"SQL must be text, not {type(text).__name__}")
        if len(text) > MAX_SQL:
            raise SqlError(f"the SQL text has {len(text):,} characters; at most {MAX_SQL:,} are read at once")
        self.text = text
        self.lines = LineIndex(text)
        self._check_text()
        try:
            self.tokens = join_tokens(_DIALECT.tokenize(text))
        except (TokenError, RecursionError) as failure:
            raise self._unreadable() from failure
        self._check_nesting()
        self._check_words()

    def _check_text(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError as failure:
            raise self._at("half of a character (a lone surrogate) is not text", failure.start) from None
        beyond = next(islice(_WORD.finditer(self.text), MAX_WORDS, None), None)
        if beyond is not None:
            what = f"the SQL text has more than {MAX_WORDS:,} words and signs"
            raise self._at(f"{what}; give many rows to db.insert, or the script in parts", beyond.start())

    def _at(self, message: str, offset: int) -> SqlError:
        line, column = self.lines.at(offset)
        return SqlError(message, line=line, column=column)

    def _unreadable(self) -> SqlError:
        """Point at the quote or comment that never ends, which makes tokenizing fail."""
        opened = _unterminated(self.text)
        line, column = self.lines.at(opened)
        return SqlError(
            "cannot read the SQL from here: a quote or a comment that does not end",
            line=line,
            column=column,
            text=shorten(self.text[opened : opened + 40]),
        )

    def _check_nesting(self) -> None:
        depth = run = stacked = 0
        before = None
        for token in self.tokens:
            kind = token.token_type
            if kind in _OPENING:
                depth += 1
            elif kind in _CLOSING:
                depth -= 1
            run = run + 1 if kind in _PREFIX else 0
            stacked += kind in _PIVOTS or (kind is TokenType.L_BRACKET and before is TokenType.R_BRACKET)
            before = kind
            if max(depth, run, stacked) > MAX_NESTING:
                raise self.error(f"nested too deeply: at most {MAX_NESTING} levels are read", token)

    def _check_words(self) -> None:
        for token in self.tokens:
            kind, size = token.token_type, len(token.text)
            if kind in _NUMBERS and size > MAX_NAME:
                raise self.error(f"a number of {size:,} digits; at most {MAX_NAME:,} are read", token)
            if kind not in _NAMES:
                continue
            if not size:
                raise self.error("a name cannot be empty", token)
            if size > MAX_NAME:
                raise self.error(f"a name of {size:,} characters; it may have {MAX_NAME:,}", token)
            if "\0" in token.text:
                raise self.error("a name cannot contain the character NUL", token)

    def error(self, message: str, token: Token | None = None) -> SqlError:
        """Return an error at a token, or at the end of the script."""
        if token is None:
            line, column = self.lines.at(len(self.text.rstrip()))
            return SqlError(message, line=line, column=column)
        line, column = self.lines.at(token.start)
        return SqlError(message, line=line, column=column, text=shorten(self.text[token.start : token.end + 1]))

    def parse(self, tokens: Sequence[Token]) -> exp.Expr:
        """Parse one statement or query from its tokens."""
        beyond = next(islice((t for t in tokens if t.token_type in _SET_OPERATIONS), MAX_BRANCHES, None), None)
        if beyond is not None:
            raise self.error(f"a statement may have {MAX_BRANCHES:,} UNIONs and other set operations", beyond)
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
        depth, deepest = _depth(tree)
        if depth > MAX_TREE:
            line, column = position(deepest)
            raise SqlError(f"nested too deeply: more than {MAX_TREE:,} levels", line=line, column=column)
        return tree

    def _syntax_error(self, failure: ParseError, tokens: Sequence[Token]) -> SqlError:
        detail = failure.errors[0] if failure.errors else {}
        at = next((t for t in tokens if t.line == detail.get("line") and t.col == detail.get("col")), tokens[-1])
        described = str(detail.get("description") or "").split("<Token")[0].strip()
        described = described.removesuffix("but got").strip()
        plain = described and not described.startswith(("Invalid expression", "Required keyword"))
        message = f"syntax error: {described}" if plain else "syntax error"
        return self.error(message, at)


def _depth(tree: exp.Expr) -> tuple[int, exp.Expr]:
    """Measure how deep a tree is, and where; a chain such as a AND b AND c is one level, as nothing recursive follows
    it."""
    deepest, waiting = (1, tree), [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth >= deepest[0]:
            deepest = depth, node
        for child in node.iter_expressions():
            chained = isinstance(node, (exp.Connector, exp.SetOperation)) and type(child) is type(node)
            waiting.append((child, depth if chained else depth + 1))
    return deepest


def _unterminated(text: str) -> int:
    """Return the offset of the last quote or comment that opens and does not close."""
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
    """Make room for recursive descent: nesting is bounded by MAX_NESTING, each level of which costs some twenty frames.

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
    """The users of a deep stack, and the limit before them."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1000


_stack = _Stack()
