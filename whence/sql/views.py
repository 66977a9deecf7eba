"""CREATE VIEW: views bound together, so that they may refer to each other in any order, and to themselves.

First every view gets a schema from those of its branches that can be bound; then all are bound over and over, their
column types only ever widening, until nothing changes. A replaced view takes those that depend on it along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from whence.model import types as t
from whence.model.errors import CatalogError, SqlError
from whence.model.types import Kind, Schema, Type
from whence.plan.algebra.constructors import relabel
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program, View
from whence.plan.recursion.strata import references
from whence.plan.streams.model import MemoryLimit
from whence.sql.options import memory_option, retain_option
from whence.sql.parameter_join import joined_with
from whence.sql.parse import parse_stored
from whence.sql.position import error
from whence.sql.queries import (
    QueryBinder,
    Session,
    UnboundView,
    UnresolvedError,
    cast_plan,
    rename_columns,
    set_type,
    type_nulls,
    without_zones,
)
from whence.sql.reader import deep_stack
from whence.sql.scope import parameter_scope
from whence.sql.statements import CreateTemplate, CreateView

_MORE_ROUNDS = 8


def bind_views(creates: Sequence[CreateView], program: Program, declared: bool = True) -> Program:
    """Return a copy of the program with the views added or replaced; the program given is left alone. Unless the types
    of the parameters of templates are `declared`, they are being found (`templates.py`).

    >>> from whence.sql.parse import parse
    >>> views = parse("create view a as select 1 as x union select x + 1 from b where x < 5; create view b as from a")
    >>> str(bind_views(views, Program()).views["b"].schema)
    '(x BIGINT)'
    """
    wanted = _wanted(creates, program)
    again = _dependents(set(wanted) & set(program.views), program, set(wanted))
    base = program.copy()
    for name in [*wanted, *again]:
        base.views.pop(name, None)
    base.views = {n: v for n, v in base.views.items() if v.owner not in wanted and v.owner not in again}
    session = Session()
    for create in [*wanted.values(), *again.values()]:
        parameters = base.tables[create.template] if isinstance(create, CreateTemplate) else None
        around = parameter_scope(parameters.schema, declared) if parameters is not None else None
        binder = QueryBinder(base, session, create.name, stored=create.stored, parameters=around)
        session.pending[create.name] = UnboundView(
            create.query, binder, create.columns, options=create.options, parameters=parameters
        )
        session.schemas[create.name] = None
    try:
        with deep_stack():
            plans = resolve(session)
            for pending in session.pending.values():
                pending.binder.check_read(pending.query)
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
    except SqlError as failure:
        raise _blamed(failure, session, wanted) from None
    statements = {**wanted, **again}
    for name, plan in plans.items():
        pending = session.pending[name]
        options: tuple[tuple[str, str], ...] = ()
        sql = ""
        if pending.owner is None:
            options, sql = statements[name].options, statements[name].sql
        elif pending.owner in statements:
            options = statements[pending.owner].options
        try:
            kept = retain_option(options), memory_option(options)
            _check_pool(kept[1], base, name)
        except ValueError as failure:
            raise SqlError(f'in "{pending.owner or name}": {failure}') from None
        base.views[name] = View(name, plan.schema, plan, options, sql, pending.owner, *kept)
    return base


def _check_pool(limit: MemoryLimit | None, program: Program, name: str) -> None:
    """Raise ValueError if another view says that a pool has other memory."""
    if limit is None or not limit.pool:
        return
    for other in program.views.values():
        shared = other.memory
        if other.name != name and shared is not None and shared.pool == limit.pool and shared.text != limit.text:
            raise ValueError(
                f'the pool {limit.pool} has {shared.text} of memory, as "{other.name}" says, not {limit.text}'
            )


def resolve(session: Session) -> dict[str, Node]:
    """Bind the session's views to their plans, and find their schemas."""
    _find_schemas(session)
    for _ in range(_MORE_ROUNDS + len(session.pending)):
        plans: dict[str, Node] = {}
        stable = True
        while len(plans) < len(session.pending):  # binding may find hidden views
            for name in [n for n in session.pending if n not in plans]:
                plan = known_first(session, partial(_bind, session, name))
                known = session.schemas[name]
                assert known is not None
                widened = _widen(known, plan.schema)
                stable = stable and widened == known
                session.schemas[name] = widened
                plans[name] = plan
        if not stable:
            continue
        found: dict[str, Node] = {}
        unsettled = [n for n, s in session.schemas.items() if s and any(c.kind is Kind.NULL for c in s.types)]
        if unsettled:
            for name in unsettled:
                session.schemas[name] = _without_nulls(session.schemas[name])
            continue
        for name, plan in plans.items():
            schema = session.schemas[name]
            assert schema is not None
            found[name] = relabel(cast_plan(type_nulls(plan), schema.types), schema)
        return found
    names = ", ".join(sorted(n for n, p in session.pending.items() if p.owner is None))
    raise SqlError(f"the column types of the recursive views {names} keep growing; cast them in every branch")


def known_first(session: Session, bind: Callable[[], Node]) -> Node:
    """Bind, finding the schemas of hidden views first that only show while binding: CTEs inside a recursive step."""
    while True:
        if None in session.schemas.values():
            _find_schemas(session)
        try:
            return bind()
        except UnresolvedError:
            if None not in session.schemas.values():
                raise


def _find_schemas(session: Session) -> None:
    """Find a first schema for every view, from the branches that can be bound without the others."""
    session.provisional = True
    try:
        progress = True
        while progress:
            progress = False
            for name in list(session.pending):
                if session.schemas[name] is not None:
                    continue
                known = len(session.pending)
                try:
                    session.schemas[name] = _bind(session, name).schema
                    progress = True
                except UnresolvedError:
                    progress = progress or len(session.pending) > known
    finally:
        session.provisional = False
    missing = [n for n, s in session.schemas.items() if s is None]
    if missing:
        first = session.pending[missing[0]]
        shown = ", ".join(f'"{m.rpartition("$")[2] or m}"' for m in missing)
        raise error(
            f"{shown} has no branch that does not refer to itself, so it has no columns and no rows", first.query
        )


def _bind(session: Session, name: str) -> Node:
    pending = session.pending[name]
    session.current = pending.owner or name
    plan = without_zones(pending.binder.query(pending.query, None))
    if pending.parameters is not None:
        plan = joined_with(pending.parameters, plan, pending.query, pending.binder.program)
    return rename_columns(plan, pending.columns or (), pending.query)


def _widen(old: Schema, new: Schema) -> Schema:
    if len(old) != len(new):
        return new
    pairs = zip(old.columns, new.columns, strict=True)
    return Schema(tuple(replace(b, type=_wider(a.type, b.type), nullable=a.nullable or b.nullable) for a, b in pairs))


def _wider(old: Type, new: Type) -> Type:
    """Return the type of a column that has grown: of a DECIMAL, which may grow in every round, the widest."""
    type = set_type(old, new)
    if type.kind is not Kind.DECIMAL or old.kind is not Kind.DECIMAL:
        return type
    if new.kind is Kind.DECIMAL and new.scale > type.scale:  # digits after the point grow without end: never round them
        return t.decimal(t.MAX_PRECISION, new.scale)
    if type.precision <= old.precision:
        return type
    return t.decimal(t.MAX_PRECISION if type.is_wide else t.NARROW_PRECISION, type.scale)


def _without_nulls(schema: Schema | None) -> Schema | None:
    assert schema is not None
    return Schema(tuple(replace(c, type=t.INTEGER) if c.type.kind is Kind.NULL else c for c in schema.columns))


def _wanted(creates: Sequence[CreateView], program: Program) -> dict[str, CreateView]:
    wanted: dict[str, CreateView] = {}
    for create in creates:
        if create.name in program.tables:
            kind = "table" if program.tables[create.name].stream is None else "stream"
            raise CatalogError(f'"{create.name}" is a {kind}; a view needs another name')
        taken = create.name in wanted or create.name in program.views
        if taken and create.if_not_exists:
            continue
        if taken and not create.replace:
            raise CatalogError(f'view "{create.name}" exists already; use CREATE OR REPLACE VIEW')
        wanted[create.name] = create
    return wanted


def _dependents(replaced: set[str], program: Program, wanted: set[str]) -> dict[str, CreateView]:
    """Parse the statements of the views that depend on the replaced ones again."""
    reached, frontier = set(replaced), set(replaced)
    while frontier:
        found = set()
        for name, view in program.views.items():
            if references(view) & frontier:
                found.add(view.owner or name)
        frontier = found - reached
        reached |= found
    statements = {}
    for name in reached - wanted:
        statement = parse_stored(program.views[name].sql)
        assert isinstance(statement, CreateView)
        statements[name] = replace(statement, options=program.views[name].options)
    return statements


def _blamed(failure: SqlError, session: Session, wanted: dict[str, CreateView]) -> SqlError:
    """Return the error, naming the replaced view if it is in a view that only had to follow."""
    at = session.current
    if at is None or at in wanted:
        return failure
    replaced = ", ".join(f'"{name}"' for name in sorted(wanted))
    message = f'replacing {replaced} breaks the view "{at}": {failure.message}'
    return type(failure)(message, line=failure.line, column=failure.column, text=failure.text)
