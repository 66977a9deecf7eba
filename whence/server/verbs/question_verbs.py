"""Verbs that ask about provenance: why, what_if, critical, resilience, contribution, reliability, trace.

The law: an explanation shows what a row stands on, so it is for those who may read all of that. Whoever may not is told
of a row that they see the witnesses that they may read, and nothing else; a row that they do not see is not there, in
the same words as one that is not. What is only supposed needs the rights of doing it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.io.files import json_line
from whence.model.errors import DataError, ForbiddenError
from whence.model.types import Schema
from whence.runtime.questions.what_if import Difference, WhatIf
from whence.server.verbs.arguments import (
    ContributionArguments,
    CriticalArguments,
    ReliabilityArguments,
    ResilienceArguments,
    ShownArguments,
    TraceArguments,
    WhatIfArguments,
    WhyArguments,
)
from whence.server.verbs.reading_verbs import read_params
from whence.server.verbs.typed_values import typed_mapping, typed_row, typed_rows
from whence.server.verbs.verb_calls import CallAnswer, VerbCall

if TYPE_CHECKING:
    from whence.explain.show.explanation import Explanation
    from whence.runtime.database import Database


def why(call: VerbCall, args: WhyArguments) -> CallAnswer:
    """Explain a row of a view: everything to who may read everything beneath it, else what they may read."""
    db, name = call.database(args.epoch), args.view.lower()
    row = _row(call, db, name, args.row)
    sight = call.rights.sight(call.who, None if args.epoch is None else db._coordinator)
    sight.check(name, "read")
    if sight.sees_all(name):
        call.check = partial(_check_question, call, db, name)
        with call.within():
            found = db.why(name, row, limit=args.limit)
            value = found.to_dict()
            return _shown(call, value, found, args, dot=found.to_dot() if args.dot else "")
    if args.epoch is not None:
        raise ForbiddenError(f'you may not ask why of the past of "{name:.100}"')
    with call.within():
        explanation = call.rights.explain(call.who, name, row, limit=args.limit)
        return _readable(call, explanation)


def _readable(call: VerbCall, explanation: Explanation) -> CallAnswer:
    """Return of an explanation what a caller may read."""
    witnesses = call.rights.readable_witnesses(call.who, explanation)
    base: list[Any] = []
    for row in (each for witness in witnesses for each in witness):
        if row not in base:
            base.append(row)
    value = {
        "view": explanation.view,
        "row": explanation.row,
        "epoch": explanation.epoch,
        "holds": True,
        "reasons": [],
        "restricted": True,
        "base": [{"table": table, "row": row} for table, row in base],
        "witnesses": {"found": [[base.index(row) for row in witness] for witness in witnesses]},
    }
    lines = [f"{explanation.label} holds; the witnesses that you may read:"]
    lines += [f"  {', '.join(f'{table}({_values(row)})' for table, row in witness)}" for witness in witnesses]
    position = call.service.position_of(explanation.epoch)
    return CallAnswer(_plain(value), text="\n".join(lines), position=position)


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join("NULL" if value is None else str(value) for value in row.values())


def critical(call: VerbCall, args: CriticalArguments) -> CallAnswer:
    """Find the base rows whose loss alone takes rows along."""
    db, name = _asked(call, args, args.view)
    row, where = _row(call, db, name, args.row), None
    if args.where is not None:
        where = typed_mapping(args.where, db._coordinator.reader.schema(name))
    with call.within():
        found = db.critical(name, row, where=where, limit=args.limit)
        value: dict[str, Any] = {
            "view": found.view,
            "row": found.row,
            "where": found.where,
            "epoch": found.epoch,
            "of": found.of,
        }
        value |= {"exact": found.exact, "caveat": found.caveat, "rows": found.to_dicts()}
        return _shown(call, value, found, args)


def resilience(call: VerbCall, args: ResilienceArguments) -> CallAnswer:
    """Find the fewest base rows whose loss removes a row."""
    db, name = _asked(call, args, args.view)
    with call.within():
        found = db.resilience(name, _row(call, db, name, args.row))
        head = {"view": found.view, "row": found.row, "epoch": found.epoch, "caveat": found.caveat}
        return _shown(call, head | found.to_dict(), found, args)


def contribution(call: VerbCall, args: ContributionArguments) -> CallAnswer:
    """Say how much each base row matters to a row."""
    db, name = _asked(call, args, args.view)
    with call.within():
        row = _row(call, db, name, args.row)
        found = db.contribution(name, row, samples=args.samples, seed=args.seed)
        value: dict[str, Any] = {"view": found.view, "row": found.row, "epoch": found.epoch, "exact": found.exact}
        value |= {"caveat": found.caveat, "method": found.method, "samples": found.samples, "error": found.error}
        value |= {"confidence": found.confidence, "rows": found.to_dicts()}
        return _shown(call, value, found, args)


def reliability(call: VerbCall, args: ReliabilityArguments) -> CallAnswer:
    """Compute the probability of a row."""
    db, name = _asked(call, args, args.view)
    options: dict[str, Any] = {"samples": args.samples, "confidence": args.confidence, "seed": args.seed}
    with call.within():
        found = db.reliability(name, _row(call, db, name, args.row), given=args.given, **options)
        return _shown(call, found.to_dict(), found, args)


def trace(call: VerbCall, args: TraceArguments) -> CallAnswer:
    """Find the results that a row of a stream reached."""
    db, name = call.database(args.epoch), args.stream.lower()
    call.check = partial(call.rights.check_trace, call.who, name)
    call.check()
    with call.within():
        found = db.trace(name, args.tid, _row(call, db, name, args.row))
        return _shown(call, found.to_dict(), found, args)


def _asked(call: VerbCall, args: ShownArguments, view: str) -> tuple[Database, str]:
    """Return the database and the view that a question is about, if the caller may ask it."""
    db, name = call.database(args.epoch), view.lower()
    call.check = partial(_check_question, call, db, name)
    call.check()
    return db, name


def _check_question(call: VerbCall, db: Database, name: str) -> None:
    if db is call.service.db:
        call.rights.check_question(call.who, name)
        return
    sight = call.rights.sight(call.who, db._coordinator)
    sight.check(name, "read")
    if not sight.sees_all(name):
        raise ForbiddenError(f'you may not ask this of the past of "{name:.100}"')


def _row(call: VerbCall, db: Database, name: str, row: Any) -> Any:
    """Return a row that is to be identified, with values of the view's types."""
    coordinator = db._coordinator
    coordinator.refresh()
    sight = call.rights.sight(call.who, None if db is call.service.db else coordinator)
    sight.check(name, "read")
    if row is None:
        return None
    return typed_row(row, coordinator.reader.schema(name))


def _shown(call: VerbCall, value: dict[str, Any], found: Any, args: ShownArguments, dot: str = "") -> CallAnswer:
    """Return an answer with its text, and as a page if that is asked for."""
    page = ""
    if args.html:
        page = found.to_html() if hasattr(found, "to_html") else found._repr_html_()
    position = call.service.position_of(found.epoch)
    return CallAnswer(_plain(value), text=str(found), html=page, dot=dot, position=position)


def _plain(value: dict[str, Any]) -> Any:
    return json.loads(json_line(value))


# -- what if ---------------------------------------------------------------------------------------------------------


def what_if(call: VerbCall, args: WhatIfArguments) -> CallAnswer:
    """Say what writes would change, in what the caller may read all rows of."""
    db, whole = call.database(args.epoch), call.service.sees_all(call.caller)
    coordinator = db._coordinator
    coordinator.refresh()
    sight = call.rights.sight(call.who, None if args.epoch is None else coordinator)
    if args.sql and not (whole and sight.may_all("insert")):
        raise ForbiddenError("what_if with a script is for those who may write everything: give insert, delete, update")
    for name in {table.lower() for part in (args.insert, args.delete, args.update) for table in part or ()}:
        sight.check(name, "insert")
        if not (sight.reach(name, "insert").every and sight.reach(name, "read").every):
            raise ForbiddenError(f'what_if is for those who may write all rows of "{name:.100}"')
    views = None if args.views is None else [view.lower() for view in args.views]
    for view in views or ():
        sight.check(view, "read")
    seen = {name for name in sight.names if sight.reach(name, "read").every}
    shown = [view for view in (views or coordinator.reader.views()) if view in seen]
    schemas = {name: coordinator.reader.schema(name) for name in sight.names}
    written = {name: table.written for name, table in coordinator.program.tables.items() if name in schemas}
    with call.within():
        found = db.what_if(
            args.sql,
            read_params(args.params),
            insert=_typed(args.insert, written),
            delete=_typed(args.delete, schemas),
            update=None if args.update is None else {t: _pairs(u, t, schemas) for t, u in args.update.items()},
            views=shown,
            strict=args.strict,
            missing=args.missing,
        )
        readable = _only(found, seen)
        return _shown(call, readable.to_dict(), readable, args)


def _only(found: WhatIf, names: Iterable[str]) -> WhatIf:
    """Return what would change in some tables and views."""
    seen = set(names)
    tables: dict[str, Difference] = {name: change for name, change in found.tables.items() if name in seen}
    return WhatIf(found.epoch, tables, {name: found[name] for name in found if name in seen})


def _typed(given: Mapping[str, Any] | None, schemas: Mapping[str, Schema]) -> dict[str, Any] | None:
    if given is None:
        return None
    return {
        table: typed_rows(rows, schemas[table.lower()], table=table) if isinstance(rows, list) else rows
        for table, rows in given.items()
    }


def _pairs(given: list[Any], table: str, schemas: Mapping[str, Schema]) -> list[Any]:
    """Return pairs of new values and where; in JSON a pair is a list."""
    schema, found = schemas[table.lower()], list[Any]()
    for pair in given:
        values, where = pair if isinstance(pair, list) and len(pair) == 2 else (pair, None)
        if not isinstance(values, dict):
            raise DataError(f"table {table:.80}: an update is a pair of new values and where")
        where = typed_mapping(where, schema) if isinstance(where, dict) else where
        found.append((typed_mapping(values, schema), where))
    return found
