"""Rights: what a caller may do, by the rows of the relation `allowed(who, name, what)` of the database itself.

The law: rights are those of the last committed epoch, so that revoking one withdraws it in that epoch, and `why`
explains one. Without such a relation every caller may do everything; once there was one, its loss denies everything,
until it is there again or the server is started anew. What is denied because a row condition cannot be bound, or since
`allowed` is not what it should be, is denied to all but the owner, and logged.

| module | what it says |
|---|---|
| `grants` | what the rows of `allowed` mean |
| `row_conditions` | conditions of row rights, bound for a caller |
| `sight` | what of a database there is for a caller |
| `restrict` | a query, restricted to that |
| `row_rights` | which rows at hand a caller may read or write |
| `witness_rights` | what a caller may be shown of an explanation |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from whence.io.rows import to_tuples
from whence.model.errors import CatalogError, ForbiddenError, MissingRowError
from whence.plan.algebra.program import Program, subscription_of, template_of
from whence.plan.recursion.strata import dependents
from whence.runtime.subscriptions.queries import followed_name
from whence.runtime.writing.row_selection import condition_of
from whence.server.access.grants import EVERY, RELATION, Grants, What, check_shape, gives
from whence.server.access.restrict import is_read_subscription, relations_read, restrict_bound, restrict_query
from whence.server.access.row_conditions import relations_in
from whence.server.access.row_rights import check_written, rows_seen
from whence.server.access.sight import Sight, beneath, known_relation, quote_name
from whence.server.access.witness_rights import Row, find_readable, readable_witnesses
from whence.server.writing.publishers import TABLE as PUBLISHERS
from whence.sql import statements as st
from whence.sql.bind import bind_assignments, bind_insert, bind_predicate
from whence.sql.parameters import Params

if TYPE_CHECKING:
    from whence.explain.show.explanation import BaseRow, Explanation
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.database import Database
    from whence.runtime.writing.transaction import Savepoint, Transaction

log = logging.getLogger("whence")

_CALLERS = 10_000  # whose sights are kept
_NOT_SERVED = "it is for those who may read everything that it is made of"


@dataclass(frozen=True)
class _RightsState:
    """The rights of one epoch and one program, and what callers see by them."""

    program: Program
    changed: tuple[int, int]  # the epoch in which `allowed` last did, and of which history
    rows: frozenset[tuple[Any, ...]] | None  # of `allowed`; None without one
    grants: Grants | None
    guarded: frozenset[str]
    version: int
    reported: set[tuple[str, str]]  # conditions that deny, and the relation
    sights: dict[str | None, Sight] = field(default_factory=dict)


class Rights:
    """The rights of the callers of a served database.

    `who` is a caller's name, as their token has it. None, for callers in this process, and the `owner`, whose token the
    server itself has made and printed, may do everything.

    >>> import whence
    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE sale (item TEXT, seller TEXT)")
    >>> _ = db.execute("CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    >>> _ = db.insert("sale", [("tea", "ann"), ("rum", "bob")])
    >>> _ = db.insert("allowed", [("*", "sale", "insert where seller = :who"), ("eve", "*", "define")])
    >>> rights = Rights(db)
    >>> rights.visible("ann"), rights.may("ann", "sale", "define"), rights.may("eve", "sale", "define")
    (['sale'], False, True)
    >>> query = whence.sql.parse.parse_query("SELECT item FROM sale").query
    >>> db._coordinator.reader.query(rights.restricted("ann", query)).to_pylist()
    [{'item': 'tea'}]
    """

    def __init__(self, db: Database, owner: str | None = None) -> None:
        self._db, self._coordinator, self._owner = db, db._coordinator, owner
        self._state: _RightsState | None = None
        db._coordinator.refresh()
        with self._coordinator.looking():
            relation = known_relation(self._coordinator.program, RELATION)
            if relation is not None:
                check_shape(relation.schema, self._coordinator.reader.is_stream(RELATION))
        self._now()

    # -- the rights of now ---------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Rises whenever rights may have changed, so that a server checks its subscriptions again."""
        return self._now().version

    def _now(self) -> _RightsState:
        state = self._state
        if state is not None and state.program is self._coordinator.program and state.changed == self._changed():
            return state
        with self._coordinator.looking():
            return self._read()

    def _changed(self) -> tuple[int, int]:
        return self._coordinator.changed.get(RELATION, 0), self._coordinator.restarts

    def _read(self) -> _RightsState:
        """Read the relation again. Called while the committed state cannot change."""
        before, program, changed = self._state, self._coordinator.program, self._changed()
        rows = self._rows()
        if rows is None and before is not None and before.rows is not None:
            log.error('there is no relation "%s" any more: only the owner may do anything until it is back', RELATION)
            rows = frozenset()
        if before is None:
            grants, version = None if rows is None else Grants(rows), 1
        elif rows == before.rows:
            grants, version = before.grants, before.version + (program is not before.program)
        else:
            grants, version = None if rows is None else Grants(rows), before.version + 1
        reported = before.reported if before is not None and program is before.program else set()
        self._state = _RightsState(program, changed, rows, grants, _guarded(grants, program), version, reported)
        return self._state

    def _rows(self) -> frozenset[tuple[Any, ...]] | None:
        coordinator = self._coordinator
        relation = known_relation(coordinator.program, RELATION)
        if relation is None:
            return None
        try:
            check_shape(relation.schema, coordinator.reader.is_stream(RELATION))
        except CatalogError as error:
            log.error("only the owner may do anything: %s", error)
            return frozenset()
        codes, _ = coordinator.reader.contents(RELATION)
        return frozenset(tuple(row[:3]) for row in to_tuples(codes, relation.schema, coordinator.dictionary))

    def sight(self, who: str | None, past: Coordinator | None = None) -> Sight:
        """Return what there is for a caller: now, or in the `past` of the database, by the rights of now."""
        state = self._now()
        grants = None if who is None or (who == self._owner and self._owner is not None) else state.grants
        if past is not None and past is not self._coordinator:
            return Sight(who, grants, past.program, state.guarded, state.reported)
        found = state.sights.get(who)
        if found is None:
            if len(state.sights) >= _CALLERS:
                state.sights.clear()
            found = state.sights[who] = Sight(who, grants, state.program, state.guarded, state.reported)
        return found

    # -- relations -----------------------------------------------------------------------------------------------------

    def may(self, who: str | None, name: str, what: What) -> bool:
        """Return whether a caller has a right on a relation, be it for some rows only; on '*', on whatever there is."""
        sight = self.sight(who)
        return sight.may_all(what) if name == EVERY else bool(sight.reach(name.lower(), what))

    def check(self, who: str | None, name: str, what: What) -> None:
        """CatalogError if there is no such relation for a caller, as for one that there is not; ForbiddenError if there
        is, and they have not this right on it. 'define' on '*' is the right to CREATE and DROP."""
        sight = self.sight(who)
        if name != EVERY:
            sight.check(name.lower(), what)
        elif not sight.may_all(what):
            doing = {"define": "create or drop tables and views", "insert": "insert into every table"}
            raise ForbiddenError(f"you may not {doing.get(what, 'read everything')}")

    def visible(self, who: str | None) -> list[str]:
        """Return the relations that there are for a caller."""
        return list(self.sight(who).names)

    def condition(self, who: str | None, name: str) -> exp.Expr | None:
        """Return the condition that rows of a relation satisfy which a caller may read; None if they may read all. An
        error as of `check` if they may read none."""
        sight = self.sight(who)
        sight.check(name.lower(), "read")
        found = sight.reach(name.lower(), "read").condition
        return None if found is None else found.copy()

    def held(self, who: str | None) -> dict[str, dict[str, str]]:
        """Return by relation the rights that a caller has, and whether on 'all' rows or 'some'."""
        sight, whats = self.sight(who), ("read", "insert", "define")
        found: dict[str, dict[str, str]] = {}
        for name in sight.names:
            reaches = {what: sight.reach(name, what) for what in whats}  # type: ignore[arg-type]  # they are What
            found[name] = {what: "all" if reach.every else "some" for what, reach in reaches.items() if reach}
        return found

    # -- queries -------------------------------------------------------------------------------------------------------

    def restricted(self, who: str | None, query: exp.Expr, past: Coordinator | None = None) -> exp.Expr:
        """Return a query that is asked once, restricted to what a caller may read; the query itself is not changed."""
        return restrict_query(query, self.sight(who, past))

    @staticmethod
    def kind_of_subscription(query: exp.Expr) -> Literal["read", "define"]:
        """Return the right that a subscription to a query takes: 'read' for one relation, filtered and projected."""
        return "read" if is_read_subscription(query) else "define"

    def check_subscription(self, who: str | None, query: exp.Expr) -> exp.Expr:
        """Return the query of a subscription, restricted to what a caller may read; an error if they may not."""
        sight, name = self.sight(who), followed_name(query)
        apart = None if name is None else subscription_of(name)
        if apart is not None:
            return self._check_template(sight, template_of(apart[0]), apart[1], query)
        if sight.is_whole and sight.may_all("define"):
            return query
        if name is not None:
            sight.check(name, "read")
        found = restrict_query(query, sight, kept=True)
        if not is_read_subscription(query):
            for name in relations_read(query, sight):
                sight.check(name, "define")
        return found

    def _check_template(self, sight: Sight, template: str, id: int, query: exp.Expr) -> exp.Expr:
        """Return the query of a subscription to a template; an error unless its row of parameters is there, and a
        caller may read it."""
        sight.check(template, "read")
        coordinator = self._coordinator
        coordinator.reader.template_view(template)
        if not find_readable(coordinator, sight, template, {"id": id}, {}):
            raise MissingRowError(f"there is no subscription {id} to {template}")
        return query

    def check_statement(self, who: str | None, statement: st.Statement) -> st.Statement:
        """Return a statement of a script as a caller may have it carried out, INSERT, DELETE and UPDATE inside
        `writing`; an error if they may not."""
        sight = self.sight(who)
        match statement:
            case st.Query():
                return replace(statement, query=restrict_query(statement.query, sight))
            case st.InsertRows():
                if not sight.is_whole:
                    bind_insert(statement, sight.program)
                sight.check(statement.table, "insert")
                return replace(statement, source=restrict_bound(statement.source, sight))
            case st.DeleteRows() | st.UpdateRows():
                if not sight.is_whole:
                    bind_predicate(statement.where, statement.table, sight.program)
                    if isinstance(statement, st.UpdateRows):
                        bind_assignments(statement, sight.program)
                sight.check(statement.table, "insert")
                return statement
            case st.Describe():
                sight.check(statement.name, "read")
                return statement
            case st.Explain(what=str() as name):
                self.check_question(who, name)
                return statement
            case st.Explain(what=st.Query() as asked):
                restrict_query(asked.query, sight, kept=True)
                if not all(sight.reach(name, "read").every for name in relations_read(asked.query, sight)):
                    raise ForbiddenError("EXPLAIN of this query is for those who may read all rows of what it reads")
                return statement
            case st.Show() if sight.is_whole:
                return statement
        if not sight.may_all("define"):
            raise ForbiddenError("you may not create or drop tables and views, nor list them all")
        return statement

    def check_where(self, who: str | None, table: str, where: str, params: Params | None = None) -> None:
        """Raise the error of a condition in SQL of what a caller deletes or updates, as it is without what they do not
        see: a condition reads no other table."""
        sight, name = self.sight(who), table.lower()
        sight.check(name, "insert")
        if not sight.is_whole:
            condition_of(where, sight.program.tables[name], sight.program, params)

    # -- writing -------------------------------------------------------------------------------------------------------

    def writes_freely(self, who: str | None, table: str) -> bool:
        """Return whether a caller may write any row of a table: then nothing has to be looked at in `writing`."""
        sight, name = self.sight(who), table.lower()
        return sight.reach(name, "insert").every and sight.reach(name, "read").every

    def check_written(self, who: str | None, writes: Transaction, since: Savepoint) -> None:
        """ForbiddenError if a caller may not write one of the rows, of any table, that were written since a savepoint.
        Called inside the transaction, which has to be rolled back then."""
        check_written(self._coordinator, self.sight(who), writes, since)

    @contextmanager
    def writing(self, who: str | None, writes: Transaction) -> Iterator[None]:
        """Let a caller write in a transaction: rows that they may not read are not there for them to delete or update,
        and in the end every row that was written is checked."""
        sight, since = self.sight(who), writes.savepoint()
        with writes.seeing(rows_seen(self._coordinator, sight, writes)):
            yield
        check_written(self._coordinator, sight, writes, since)

    def guarded(self, who: str | None, write: Callable[[Database], int]) -> Callable[[Database], int]:
        """Return a write that is carried out with the rights that its caller has at that time."""

        def guarded_write(db: Database) -> int:
            with self._coordinator.transaction() as writes, self.writing(who, writes):
                return write(db)

        return guarded_write

    # -- questions -----------------------------------------------------------------------------------------------------

    def beneath(self, view: str) -> list[str]:
        """Return every relation that a view reads, directly or through others."""
        return beneath(self._now().program, view.lower())

    def sees_all(self, who: str | None, view: str) -> bool:
        """Return whether a caller may read all rows of a relation and of everything beneath it."""
        return self.sight(who).sees_all(view.lower())

    def check_question(self, who: str | None, view: str) -> None:
        """Raise an error unless a caller may ask what a view's rows stand on, or EXPLAIN it."""
        sight, name = self.sight(who), view.lower()
        sight.check(name, "read")
        if not sight.sees_all(name):
            raise ForbiddenError(f"you may not ask this of {quote_name(name)}: {_NOT_SERVED}")

    def check_trace(self, who: str | None, stream: str) -> None:
        """Raise an error unless a caller may ask what the rows of a stream have led to: every view that reads it."""
        self.check_question(who, stream)
        program = self._now().program
        above = {program.views[view].owner or view for view in dependents(program, stream.lower())}
        if not all(self.sight(who).sees_all(view) for view in above):
            raise ForbiddenError(f"you may not ask this of {quote_name(stream.lower())}: others read it")

    def explain(
        self, who: str | None, view: str, row: Row = None, columns: Mapping[str, Any] | None = None, **options: Any
    ) -> Explanation:
        """Return `db.why` of a row that a caller may read. Unless they see all of the view (`sees_all`), it is a row
        that is there, and only the `readable_witnesses` of the explanation may be shown."""
        sight, name = self.sight(who), view.lower()
        sight.check(name, "read")
        if sight.sees_all(name):
            return self._db.why(name, row, **options, **(columns or {}))
        refusal = ForbiddenError(f"you may not ask why of this row of {quote_name(name)}, or it is not there")
        if not sight.reach(name, "read").every:
            row, columns = find_readable(self._coordinator, sight, name, row, columns or {}), None
        found = self._db.why(name, row, **options, **(columns or {})) if row != {} else None
        if found is None or not found.holds:
            raise refusal
        return found

    def readable_witnesses(self, who: str | None, explanation: Explanation) -> list[list[BaseRow]]:
        """Return the witnesses of a row of which a caller may read every base row; all, if they may read everything
        beneath the view."""
        return readable_witnesses(self._coordinator, self.sight(who), explanation)

    def why(self, who: str, name: str, what: What, asked_by: str | None = None) -> list[Explanation]:
        """Explain a right: why each row of `allowed` is there that gives it. It is asked by one who may define '*'."""
        self.check(asked_by, EVERY, "define")
        if self._now().grants is None:
            raise CatalogError(f'there is no relation "{RELATION}": everyone may do everything')
        with self._coordinator.reading():
            schema = self._coordinator.reader.schema(RELATION)
            codes, _ = self._coordinator.reader.contents(RELATION)
            rows = to_tuples(codes, schema, self._coordinator.dictionary)
        giving = [row for row in rows if gives(row[:3], who, name.lower(), what)]
        return [self._db.why(RELATION, dict(zip(schema.names, row, strict=True))) for row in giving]


def _guarded(grants: Grants | None, program: Program) -> frozenset[str]:
    """Return the relations that rights come from, and the table of publishers: '*' is not enough to write to them."""
    if grants is None:
        return frozenset()
    deciding = {RELATION, *(name for text in grants.conditions() for name in relations_in(text))}
    return frozenset(name for each in deciding for name in (each, *beneath(program, each))) | {PUBLISHERS}
