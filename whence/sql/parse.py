"""The parser of scripts: from SQL text to statements.

The frame of a statement (CREATE VIEW … WITH (…) AS, DROP, EXPLAIN, SHOW) is read here token by token; queries,
expressions and column definitions are sqlglot's. A script's statements are separated by semicolons, or, the way the
papers print them, by nothing at all where the next one begins with CREATE or WITH RECURSIVE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from whence.model.errors import SqlError
from whence.model.types import Schema
from whence.plan.algebra.program import Source, Table, template_name
from whence.plan.promises import NO_PROMISES
from whence.plan.streams.model import DEFAULT_RETENTION
from whence.sql import statements as st
from whence.sql.addresses import source_address
from whence.sql.ledger import is_given, refuse_others
from whence.sql.open_bounds import open_bounds
from whence.sql.options import Target, check_name, read_lifetime, read_lookup, read_placement, read_value, retain_option
from whence.sql.parameter_tokens import Parameter, read_parameter
from whence.sql.promises import read_closes, read_ordered
from whence.sql.reader import Script
from whence.sql.tables import read_table

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
MAX_STATEMENTS = 10_000

_QUERIES, _SHORT = 256, 10_000  # parsed queries that are kept, and the characters of the longest


def parse(text: str) -> list[st.Statement]:
    """Parse a script into its statements, in order.

    >>> [type(s).__name__ for s in parse("create table t (a int); create view v as select a from t")]
    ['CreateTable', 'CreateView']
    >>> parse("with recursive r(a) as (select a from t union select a from r)")[0].name
    'r'
    """
    source = Script(text)
    found: list[st.Statement] = []
    for number, tokens in enumerate(_split(source.tokens)):
        if number == MAX_STATEMENTS:
            raise source.error(f"a script may have {MAX_STATEMENTS:,} statements; give it in parts", tokens[0])
        found.extend(_Reader(source, tokens).statements())
    return found


def parse_one(text: str) -> st.Statement:
    """Parse a text of one statement."""
    found = parse(text)
    if len(found) != 1:
        raise SqlError(f"expected one statement, found {len(found)}")
    return found[0]


@lru_cache(_QUERIES)
def _remembered(text: str) -> st.Statement:
    return parse_one(text)


def parse_query(text: str) -> st.Query:
    """Parse a text of one SELECT. What it returns is kept for the next time and must not be changed: copy it first.

    >>> parse_query("SELECT 1 AS x").query.sql(), parse_query("SELECT 1") is parse_query("SELECT 1")
    ('SELECT 1 AS x', True)
    """
    found = _remembered(text) if isinstance(text, str) and len(text) <= _SHORT else parse_one(text)
    if not isinstance(found, st.Query):
        raise SqlError("query takes a SELECT; use execute for other statements", line=1, column=1)
    return found


def parse_stored(text: str) -> st.Statement:
    """Return the statement of a text that a database keeps, which an earlier version of Whence may have accepted."""
    found = parse_one(text)
    return replace(found, stored=True) if isinstance(found, st.CreateView) else found


def with_view_option(sql: str, name: str, value: str) -> str:
    """Return the text of a CREATE VIEW with an option set.

    >>> with_view_option("create view v (a) as select 1", "policy", "dred")
    "create view v (a) WITH (policy = 'dred') as select 1"
    >>> with_view_option("create view v with (policy = 'support', retain = 'all') as select 1", "policy", "dred")
    "create view v WITH (policy = 'dred', retain = 'all') as select 1"
    """
    source = Script(sql)
    reader = _Reader(source, source.tokens)
    while not reader.accept("VIEW"):
        reader.at += 1
    reader.accept("IF", "NOT", "EXISTS")
    reader.name("view")
    if reader.peek() == "(":
        reader.names("column")
    end = reader.tokens[reader.at - 1].end + 1
    options = {**dict(reader.options("view")), name: value}
    settings = ", ".join(f"{key} = {exp.Literal.string(text).sql()}" for key, text in options.items())
    return f"{sql[:end]} WITH ({settings}) {sql[reader.tokens[reader.at].start :]}"


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    depth, current = 0, list[Token]()
    for at, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is TokenType.SEMICOLON and depth <= 0:
            depth = 0
            if current:
                yield current
            current = []
            continue
        if depth == 0 and current and _begins_another(tokens, at, current):
            yield current
            current = []
        current.append(token)
    if current:
        yield current


def _begins_another(tokens: Sequence[Token], at: int, current: list[Token]) -> bool:
    """Tell whether a statement begins at this token although no semicolon ended the one before."""
    if tokens[at].token_type is TokenType.CREATE:
        return [token.text.upper() for token in current[:3]] not in (["EXPLAIN"], ["EXPLAIN", "ANALYZE"])
    following = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
    return (
        tokens[at].token_type is TokenType.WITH
        and following == "RECURSIVE"
        and current[-1].token_type is TokenType.R_PAREN
        and current[0].token_type in (TokenType.CREATE, TokenType.WITH)
        and any(t.token_type is TokenType.ALIAS for t in current)
    )


def _required(schema: Schema, column: int) -> Schema:
    """Return the schema with a column that is never NULL."""
    columns = list(schema.columns)
    columns[column] = replace(columns[column], nullable=False)
    return Schema(tuple(columns))


class _Reader:
    """A cursor over the tokens of one statement."""

    def __init__(self, source: Script, tokens: Sequence[Token]) -> None:
        self.source, self.tokens, self.at = source, tokens, 0
        self.values: dict[str, Token] = {}  # of options, where they stand

    # -- the cursor

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text.upper() if at < len(self.tokens) else ""

    def accept(self, *words: str) -> bool:
        """Step over the words if they come next, all of them."""
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.error(f"expected {' '.join(words)}")

    def error(self, message: str) -> SqlError:
        if self.at < len(self.tokens):
            return self.source.error(f"syntax error: {message}", self.tokens[self.at])
        return self.source.error(f"syntax error: {message} after this", self.tokens[-1])

    def name(self, what: str) -> str:
        """Read an identifier; names are case-insensitive and kept lower-case."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or not (token.token_type in _NAMES or token.text.isidentifier()):
            raise self.error(f"expected the name of a {what}")
        self.at += 1
        if self.peek() == ".":
            raise self.error("names have no schema or catalog part")
        return token.text.lower()

    def names(self, what: str) -> tuple[str, ...]:
        """Read `(a, b, …)`."""
        self.expect("(")
        found = [self.name(what)]
        while self.accept(","):
            found.append(self.name(what))
        self.expect(")")
        return tuple(found)

    def balanced(self) -> list[Token]:
        """Read the tokens of a parenthesis, both ends included."""
        start, depth = self.at, 0
        if self.peek() != "(":
            raise self.error("expected (")
        while self.at < len(self.tokens):
            kind = self.tokens[self.at].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            self.at += 1
            if depth == 0:
                return list(self.tokens[start : self.at])
        raise self.source.error("syntax error: this parenthesis is not closed", self.tokens[start])

    def rest(self) -> exp.Expr:
        if self.at >= len(self.tokens):
            raise self.error("expected a query")
        return self.source.parse(self.tokens[self.at :])

    def done(self) -> None:
        if self.at < len(self.tokens):
            raise self.source.error("syntax error: unexpected", self.tokens[self.at])

    def options(self, target: Target) -> tuple[tuple[str, str], ...]:
        """Read `WITH (name = 'value', …)`, if it comes next; names are lower-cased."""
        if not (self.peek() == "WITH" and self.peek(1) == "("):
            return ()
        self.at += 2
        found: dict[str, str] = {}
        while True:
            at = self.at
            key = self.name("option")
            try:
                check_name(target, key)
                if key in found:
                    raise ValueError(f'the option "{key}" is given twice')
                self.expect("=")
                if self.peek() in ("", ",", ")"):
                    raise self.error(f"expected a value for the option {key}")
                at = self.at
                sign = "-" if self.accept("-") else ""
                found[key] = read_value(target, key, sign + self.tokens[self.at].text)
                self.values[key] = self.tokens[at]
            except ValueError as failure:
                raise self.source.error(str(failure), self.tokens[at]) from None
            self.at += 1
            if not self.accept(","):
                break
        self.expect(")")
        return tuple(found.items())

    # -- statements

    def statements(self) -> list[st.Statement]:
        line, column = self.source.lines.at(self.tokens[0].start)
        parameters = self.parameters()
        if parameters and self.peek() == "CREATE" and self.peek(1) != "TEMPLATE":
            raise self._fixed(parameters[0])
        found = self._dispatch()
        if parameters and any(isinstance(s, st.CreateView) and not isinstance(s, st.CreateTemplate) for s in found):
            raise self._fixed(parameters[0])
        return [replace(s, sql=s.sql or self.text(), line=line, column=column, parameters=parameters) for s in found]

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters among the tokens, in their order."""
        source = self.source
        return tuple(
            read_parameter(token, source.text, source.lines.at(token.start))
            for token in self.tokens
            if token.token_type is TokenType.PLACEHOLDER
        )

    def _fixed(self, parameter: Parameter) -> SqlError:
        """Return the error for a parameter of what stays when the call is over."""
        message = (
            "CREATE takes no parameters: a table or view outlives the call; write the value, or make a view with "
            "parameters by CREATE TEMPLATE"
        )
        return SqlError(message, line=parameter.line, column=parameter.column, text=parameter.text)

    def text(self) -> str:
        return self.source.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def _dispatch(self) -> list[st.Statement]:
        match self.peek():
            case "CREATE":
                return [self._create()]
            case "WITH":
                return self._with()
            case "DROP":
                return [self._drop()]
            case "INSERT":
                return [self._insert()]
            case "DELETE":
                return [self._delete()]
            case "UPDATE":
                return [self._update()]
            case "EXPLAIN":
                return [self._explain()]
            case "DESCRIBE" | "DESC":
                self.at += 1
                named = st.Describe(name=self.name("table, stream or view"))
                self.done()
                return [named]
            case "SHOW":
                return [self._show()]
            case "SELECT" | "VALUES" | "(" | "FROM":
                return [st.Query(query=self._query(self.rest()))]
        raise self.error("expected CREATE, DROP, INSERT, DELETE, UPDATE, SELECT, WITH, EXPLAIN, DESCRIBE or SHOW")

    def _query(self, tree: exp.Expr) -> exp.Expr:
        if not isinstance(tree, (exp.Query, exp.Values)):
            raise self.source.error("syntax error: expected a query", self.tokens[min(self.at, len(self.tokens) - 1)])
        return tree

    def _create(self) -> st.Statement:
        self.expect("CREATE")
        is_replace = self.accept("OR", "REPLACE")
        if self.peek() in ("TABLE", "STREAM"):
            return self._create_table("table" if self.peek() == "TABLE" else "stream", is_replace)
        if self.peek() in ("INDEX", "UNIQUE"):
            return self._create_index(is_replace)
        if self.peek() == "SOURCE":
            return self._create_source(is_replace)
        if self.peek() == "TEMPLATE":
            return self._create_template(is_replace)
        if not (self.accept("RECURSIVE", "VIEW") or self.accept("MATERIALIZED", "VIEW") or self.accept("VIEW")):
            raise self.error("expected TABLE, STREAM, SOURCE, VIEW, TEMPLATE or INDEX")
        exists = self.accept("IF", "NOT", "EXISTS")
        name = self.name("view")
        columns_named = self.names("column") if self.peek() == "(" else None
        options = self.options("view")
        self.expect("AS")
        return st.CreateView(
            name=name,
            columns=columns_named,
            options=options,
            query=self._query(self.rest()),
            replace=is_replace,
            if_not_exists=exists,
        )

    def _create_template(self, is_replace: bool) -> st.Statement:
        """Parse CREATE TEMPLATE name AS a query with parameters."""
        if is_replace:
            raise self.error("CREATE OR REPLACE is for views; drop the template first")
        self.at += 1
        exists = self.accept("IF", "NOT", "EXISTS")
        template = self.name("template")
        if self.peek() == "(":
            raise self.error("the parameters of a template are those of its query; name its columns there")
        if self.peek() == "WITH" and self.peek(1) == "(":
            raise self.error("a template has no options")
        self.expect("AS")
        query = open_bounds(self._query(self.rest()))
        return st.CreateTemplate(name=template_name(template), template=template, query=query, if_not_exists=exists)

    def _create_index(self, is_replace: bool) -> st.Statement:
        if is_replace:
            raise self.error("CREATE OR REPLACE is for views; drop the index first")
        if self.peek() == "UNIQUE":
            raise self.error("an index does not make rows unique; declare a PRIMARY KEY in CREATE TABLE")
        self.expect("INDEX")
        exists = self.accept("IF", "NOT", "EXISTS")
        name = self.name("index")
        self.expect("ON")
        relation = self.name("table or view")
        if self.peek() == "USING":
            raise self.error("there is one kind of index: leave USING out")
        if self.peek() != "(":
            raise self.error("expected the columns of the index in parentheses")
        self.at += 1
        columns: list[str] = []
        while True:
            columns.append(self.name("column"))
            if self.peek() in ("ASC", "DESC", "NULLS", "COLLATE"):
                raise self.error("an index has no order: it finds rows by the values of its columns")
            if self.peek() not in (",", ")"):
                raise self.error("an index is on columns, not on expressions; index a view that computes them")
            self.at += 1
            if self.tokens[self.at - 1].text == ")":
                break
        if self.peek() == "WHERE":
            raise self.error("an index has all rows; index a view that selects some")
        self.done()
        if len(set(columns)) < len(columns):
            raise SqlError(f'index "{name}": a column is named twice')
        return st.CreateIndex(name=name, relation=relation, columns=tuple(columns), if_not_exists=exists)

    def _create_table(self, kind: Literal["table", "stream"], is_replace: bool) -> st.Statement:
        what = self.tokens[self.at]
        self.at += 1
        if is_replace:
            raise self.source.error(f"CREATE OR REPLACE is for views; drop the {kind} first", self.tokens[1])
        exists = self.accept("IF", "NOT", "EXISTS")
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        table = self._table(kind, what, token, self.name(kind))
        return st.CreateTable(table=table, if_not_exists=exists)

    def _table(self, kind: Literal["table", "stream"], what: Token, token: Token, name: str) -> Table:
        """Read the columns and options of a table or stream; the tokens are those of its kind and its name."""
        # sqlglot reads the parenthesis after these tokens as column definitions
        as_table = Token(TokenType.TABLE, "TABLE", start=what.start, end=what.end)
        columns = self.source.parse([self.tokens[0], as_table, token, *self.balanced()])
        options = self.options(kind)
        self.done()
        table = replace(read_table(name, columns, options), sql=self.text())
        if kind == "stream":
            if table.key:
                raise self.source.error("a stream has no PRIMARY KEY: rows are only ever appended", token)
            table = replace(table, stream=retain_option(options) or DEFAULT_RETENTION)
        elif table.tick is not None:
            raise self.source.error("only streams have tick_time(): a row of a table may change later", token)
        option, given = "ttl_column", dict(options)
        try:
            lifetime = read_lifetime(options, table.schema)
            option = "partition_by"
            placement = read_placement(options, table)
            option = "ordered"
            ordered = read_ordered(given, table.schema, table.tick)
            option = "closes"
            closes = read_closes(given, table.schema, name, table.tick)
            option = next((name for name in ("memory", "keep", "model", "lifetime") if name in given), "memory")
            lookup = read_lookup(options, table) if kind == "table" else None
        except ValueError as failure:
            raise self.source.error(str(failure), self.values[option]) from None
        promises = replace(table.promises, ordered=ordered, closes=closes) or NO_PROMISES
        if ordered is not None:
            table = replace(table, schema=_required(table.schema, ordered.column))
        table = replace(table, lifetime=lifetime, placement=placement, promises=promises, lookup=lookup)
        return table

    def _create_source(self, is_replace: bool) -> st.Statement:
        """Parse CREATE SOURCE name FROM 'url', … WITH (…); and what it is, if it says so: AS STREAM (…) WITH (…)."""
        if is_replace:
            raise self.error("CREATE OR REPLACE is for views; drop the source first")
        self.at += 1
        exists = self.accept("IF", "NOT", "EXISTS")
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        name = self.name("source")
        self.expect("FROM")
        urls = [self._address(name)]
        while self.accept(","):
            urls.append(self._address(name))
        source = Source(tuple(urls), self.options("source"))
        if not self.accept("AS"):
            self.done()
            return st.CreateSource(name=name, source=source, if_not_exists=exists)
        if self.peek() not in ("TABLE", "STREAM"):
            raise self.error("expected STREAM or TABLE, and its columns")
        what = self.tokens[self.at]
        self.at += 1
        table = self._table("table" if what.text.upper() == "TABLE" else "stream", what, token, name)
        return st.CreateTable(table=replace(table, source=source), if_not_exists=exists)

    def _address(self, name: str) -> str:
        """Read where a source is: the address of a server, and behind it what is asked of it."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.token_type is not TokenType.STRING:
            raise self.error(f"expected the address of a source in quotes, such as 'ws://127.0.0.1:8080/{name}'")
        try:
            source_address(token.text)
        except ValueError as failure:
            raise self.source.error(str(failure), token) from None
        self.at += 1
        return token.text

    def _with(self) -> list[st.Statement]:
        """Parse WITH: with a SELECT it is a query; WITH RECURSIVE v AS (…) alone declares v, as in paper 000."""
        self.expect("WITH")
        self.accept("RECURSIVE")
        views: list[st.CreateView] = []
        while True:
            start = self.tokens[min(self.at, len(self.tokens) - 1)]
            name = self.name("view")
            columns = self.names("column") if self.peek() == "(" else None
            if (self.peek(), self.peek(1)) == ("USING", "KEY"):  # for queries that DuckDB answers
                self.at = 0
                return [st.Query(query=self._query(self.rest()))]
            self.expect("AS")
            for words in (("NOT", "MATERIALIZED"), ("MATERIALIZED",)):
                if self.accept(*words):
                    break
            body = self.balanced()
            sql = f"CREATE RECURSIVE VIEW {self.source.text[start.start : body[-1].end + 1]}"
            views.append(st.CreateView(name=name, columns=columns, query=exp.Null(), sql=sql))
            if self.at >= len(self.tokens):
                break
            if not self.accept(","):
                self.at = 0
                tree = self.rest()
                if isinstance(tree, exp.Insert):
                    return [self._inserted(tree)]
                return [st.Query(query=self._query(tree))]
        return [replace(view, query=cte.this) for view, cte in zip(views, self._declared(), strict=True)]

    def _declared(self) -> list[exp.Expr]:
        """Parse the CTEs of a WITH that no query follows, by appending the smallest query there is."""
        select = Token(TokenType.SELECT, "select", start=self.tokens[-1].start, end=self.tokens[-1].end)
        one = Token(TokenType.NUMBER, "1", start=self.tokens[-1].start, end=self.tokens[-1].end)
        tree = self.source.parse([*self.tokens, select, one])
        return list(tree.args["with_"].expressions)

    def _drop(self) -> st.Statement:
        self.expect("DROP")
        kind: Literal["table", "stream", "source", "view", "template", "index"]
        if self.accept("TABLE"):
            kind = "table"
        elif self.accept("INDEX"):
            kind = "index"
        elif self.accept("STREAM"):
            kind = "stream"
        elif self.accept("SOURCE"):
            kind = "source"
        elif self.accept("TEMPLATE"):
            kind = "template"
        elif self.accept("VIEW") or self.accept("MATERIALIZED", "VIEW"):
            kind = "view"
        else:
            raise self.error("expected TABLE, STREAM, SOURCE, VIEW, TEMPLATE or INDEX")
        exists = self.accept("IF", "EXISTS")
        name = self.name(kind)
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")
        moved_to = self._moved_to() if kind == "view" and self.accept("MOVED", "TO") else None
        self.done()
        return st.Drop(kind=kind, name=name, cascade=cascade, if_exists=exists, moved_to=moved_to)

    def _moved_to(self) -> str:
        """Read the address of a server."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.token_type is not TokenType.STRING:
            raise self.error("expected the address of a server in quotes, such as 'http://127.0.0.1:8080'")
        self.at += 1
        return token.text

    def _insert(self) -> st.Statement:
        tree = self.rest()
        if not isinstance(tree, exp.Insert):
            raise self.error("expected INSERT INTO a table")
        return self._inserted(tree)

    def _inserted(self, tree: exp.Insert) -> st.Statement:
        self._only(
            tree,
            ("with_", "this", "expression"),
            "only INSERT INTO table (columns) VALUES … or a query is supported (a row with an existing primary key"
            " replaces the old one)",
        )
        target, columns = tree.this, None
        if isinstance(target, exp.Schema):
            columns = tuple(c.name.lower() for c in target.expressions)
            target = target.this
        source = tree.expression
        if source is None:
            raise self.source.error("syntax error: expected VALUES or a query", self.tokens[-1])
        if tree.args.get("with_") is not None:
            source.set("with_", tree.args["with_"])
        return st.InsertRows(table=self._target(target), columns=columns, source=source)

    def _only(self, tree: exp.Expr, args: tuple[str, ...], message: str) -> None:
        """Refuse a statement that says more than these arguments."""
        for arg, value in tree.args.items():
            if arg not in args and is_given(value):
                raise self.source.error(message, self.tokens[0])

    def _target(self, node: object) -> str:
        """Read the name of the table to be changed."""
        if not (isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)):
            raise self.source.error("syntax error: expected the name of a table", self.tokens[0])
        if node.args.get("db") is not None:
            raise self.source.error("names have no schema or catalog part", self.tokens[0])
        refuse_others(node, "this")
        return node.name.lower()

    def _delete(self) -> st.Statement:
        tree = self.rest()
        message = "only DELETE FROM table WHERE … is supported"
        if not isinstance(tree, exp.Delete):
            raise self.source.error(message, self.tokens[0])
        self._only(tree, ("this", "where"), message)
        where = tree.args.get("where")
        return st.DeleteRows(table=self._target(tree.this), where=where.this if where else None)

    def _update(self) -> st.Statement:
        tree = self.rest()
        message = "only UPDATE table SET column = … WHERE … is supported"
        if not isinstance(tree, exp.Update):
            raise self.source.error(message, self.tokens[0])
        self._only(tree, ("this", "expressions", "where"), message)
        where = tree.args.get("where")
        pairs = []
        for pair in tree.expressions:
            if not (isinstance(pair, exp.EQ) and isinstance(pair.this, exp.Column)):
                raise self.source.error("only SET column = expression is supported", self.tokens[0])
            refuse_others(pair.this, "this")
            pairs.append((pair.this.name.lower(), pair.expression))
        return st.UpdateRows(
            table=self._target(tree.this), assignments=tuple(pairs), where=where.this if where else None
        )

    def _explain(self) -> st.Statement:
        self.expect("EXPLAIN")
        if self.peek() == "ANALYZE" and self.at < len(self.tokens) - 1:
            self.at += 1
            if self.at == len(self.tokens) - 1 and self.peek() not in ("SELECT", "WITH"):
                return st.Explain(what=self.name("view"), analyze=True)
            what = _Reader(self.source, self.tokens[self.at :]).statements()
            if len(what) != 1 or not isinstance(what[0], st.Query):
                raise self.error("expected a view's name or a query: EXPLAIN ANALYZE says what has been done")
            return st.Explain(what=what[0], analyze=True)
        if self.at == len(self.tokens) - 1 and self.peek() not in ("SELECT", "WITH"):
            return st.Explain(what=self.name("view"))
        if self.peek() == "EXPLAIN":
            raise self.error("expected a view's name, a query or a CREATE VIEW")
        inner = _Reader(self.source, self.tokens[self.at :]).statements() if self.at < len(self.tokens) else []
        plain = len(inner) == 1 and isinstance(inner[0], (st.Query, st.CreateView))
        if not plain or isinstance(inner[0], st.CreateTemplate):
            raise self.error("expected a view's name, a query or a CREATE VIEW")
        assert isinstance(inner[0], (st.Query, st.CreateView))
        return st.Explain(what=inner[0])

    def _show(self) -> st.Statement:
        self.expect("SHOW")
        what = self.peek()
        self.at += 1
        if what == "TABLES":
            shown = st.Show(what="tables")
        elif what == "STREAMS":
            shown = st.Show(what="streams")
        elif what == "SOURCES":
            shown = st.Show(what="sources")
        elif what == "VIEWS":
            shown = st.Show(what="views")
        elif what == "TEMPLATES":
            shown = st.Show(what="templates")
        elif what == "FUNCTIONS":
            shown = st.Show(what="functions")
        elif what == "DEFINITION":
            shown = st.Show(what="definition", name=self.name("relation"))
        elif what == "INDEXES":
            shown = st.Show(what="indexes")
        else:
            self.at -= 1
            raise self.error("expected TABLES, STREAMS, SOURCES, VIEWS, TEMPLATES, INDEXES, FUNCTIONS or DEFINITION")
        self.done()
        return shown
