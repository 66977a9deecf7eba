"""Questions about rows: which row is meant, what is behind it, and the answers of `whence/explain`.

Everything is of one epoch: the derivations are taken from the running plan under the state lock, and worked on after
it. A database in partitions has no one store to look into: an embedded twin of the views that are asked about is filled
from its tables, and kept until something changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.engine.core.operator import Batch
from whence.engine.relational.scan import Scan as TableScan
from whence.explain.ask import critical as algorithms
from whence.explain.ask import trial as trying
from whence.explain.ask.remedies import find_remedies
from whence.explain.ask.trial import Trial
from whence.explain.derive.extractor import extract
from whence.explain.derive.graph_builder import LIMIT
from whence.explain.graph import Derivations, Ints
from whence.explain.missing import MissingRows
from whence.explain.show.answers import Contribution, Critical, Question, Reliability, Resilience
from whence.explain.why_not.search import explain_missing
from whence.io.rows import to_tuples
from whence.model.budget import held, reach, shielded
from whence.model.codes import Codes, Dictionary, decode_value, encode_value, format_value
from whence.model.errors import CatalogError, DataError
from whence.model.types import Schema
from whence.plan.algebra.logical import Ref, Scan, walk
from whence.plan.algebra.program import Program, is_template, subscription_of, with_source_names
from whence.runtime.catalog import Catalog
from whence.runtime.coordinator import Coordinator
from whence.runtime.deployment import InlineDeployment
from whence.runtime.durable.uniting import check_recomputable, stream_image
from whence.runtime.questions import tracing
from whence.sql import statements as st
from whence.sql.parameter_join import SUBSCRIPTION
from whence.sql.parse import parse_query, parse_stored
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from whence.explain.show.explanation import Explanation
    from whence.explain.show.trace import Trace

Floats = NDArray[np.float64]
SOME = 3  # rows that match, in an error
Row = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True)
class Found:
    """A row that was asked about: its codes if it is there, else why it is not. Of `several` rows, the columns that
    they have in common."""

    row: dict[str, Any]
    codes: Codes | None
    missing: MissingRows | None = None

    @property
    def several(self) -> bool:
        return self.codes is not None and len(self.codes) > 1


# -- questions ---------------------------------------------------------------------------------------------------------


def why(coordinator: Coordinator, name: str, row: Row, columns: Mapping[str, Any], limit: int = LIMIT) -> Explanation:
    """Explain what is behind a row, or why it is not there."""
    from whence.explain.show.explanation import Explanation

    apart = subscription_of(name)
    if apart is not None:
        name, row, columns = apart[0], _with_id(apart[1], row, columns), {}
    with looking_into(coordinator, name) as catalog:
        if tracing.is_stream(catalog, name):
            return _why_stream(coordinator, catalog, name, row, columns, limit)
        found = _find(catalog, name, row, columns, explain=True)
        if found.missing is not None:
            remedies = find_remedies(found.missing)
            return Explanation.of_missing(name, found.row, coordinator.epoch, (), found.missing, remedies)
        assert found.codes is not None
        graph = _extract(catalog, name, found.codes, limit)
        epoch = coordinator.epoch
        tables = {table: known.schema for table, known in coordinator.program.tables.items()}
    return Explanation(graph, name, found.row, epoch, tables=tables)


def _with_id(id: int, row: Row, columns: Mapping[str, Any]) -> Row:
    """Return a row of a subscription's answer, or some columns of it, as one of the view behind the template."""
    if row is None or isinstance(row, Mapping):
        return {SUBSCRIPTION: id, **(row or {}), **columns}
    return (id, *row)


def _why_stream(
    coordinator: Coordinator, catalog: Catalog, name: str, row: Row, columns: Mapping[str, Any], limit: int
) -> Explanation:
    """Explain what a row of a stream came from, or that it is not there."""
    from whence.explain.show.origins import Origins

    asked = _find_in_stream(catalog, name, row, columns)
    if asked.tid is None:
        reason = f"{name} keeps no row with {_text(asked.row)}"
        return Origins.of_missing(name, asked.row, coordinator.epoch, [reason])
    graph = tracing.lineage(catalog, name, asked.tid, limit)
    found = Origins(graph, name, asked.row, coordinator.epoch)
    found.tid = asked.tid
    return found


def trace(coordinator: Coordinator, name: str, tid: int | None, row: Row, columns: Mapping[str, Any]) -> Trace:
    """Find the results that a row of a stream reached."""
    with looking_into(coordinator, name) as catalog:
        if not tracing.is_stream(catalog, name):
            raise CatalogError(f'"{name}" is no stream: trace follows rows of streams; why explains rows of any view')
        read = tracing.traced_stream(catalog, name)
        asked = _find_in_stream(catalog, read, row, columns, tid)
        if asked.tid is None:
            raise DataError(f"{name} keeps no row with {_text(asked.row)}")
        return replace(tracing.trace(catalog, read, asked, coordinator.epoch), stream=name)


def provenance(coordinator: Coordinator, view: str, source: str | None) -> pa.Table:
    """Return each result of a stream view beside each input behind it."""
    with looking_into(coordinator, view) as catalog:
        return tracing.provenance(catalog, view, source)


def critical(coordinator: Coordinator, name: str, row: Row, columns: Mapping[str, Any], limit: int = LIMIT) -> Critical:
    """Find the base rows whose loss alone removes a row, or, of several rows or all rows of a view, takes rows
    along."""
    asked, trial = _asked(coordinator, name, row, columns, limit, several=row is None)
    if trial is not None:
        return Critical(asked, *trying.try_losses(trial))
    if asked.row is None:
        return Critical(asked, *algorithms.rank_losses(asked.graph))
    nodes = algorithms.find_critical(asked.graph)
    return Critical(asked, nodes, np.ones(len(nodes), np.int64))


def resilience(coordinator: Coordinator, name: str, row: Row, columns: Mapping[str, Any]) -> Resilience:
    """Find a smallest set of base rows whose loss removes a row."""
    from whence.explain.ask.resilience import find_smallest_loss as compute

    asked, trial = _asked(coordinator, name, row, columns)
    return Resilience(asked, compute(asked.graph) if trial is None else trying.try_resilience(trial))


def contribution(
    coordinator: Coordinator, name: str, row: Row, columns: Mapping[str, Any], **options: Any
) -> Contribution:
    """Compute how much each base row matters to a row."""
    from whence.explain.ask.contribution import compute_contribution as compute

    _check_samples(**options)
    asked, trial = _asked(coordinator, name, row, columns, ordered=True)
    found = compute(asked.graph, **options) if trial is None else trying.try_contribution(trial, **options)
    return Contribution(asked, found)


def reliability(
    coordinator: Coordinator,
    name: str,
    row: Row,
    columns: Mapping[str, Any],
    given: Mapping[str, float | str],
    **options: Any,
) -> Reliability:
    """Compute the probability of a row, when base rows are there independently of each other."""
    from whence.explain.ask.reliability import compute_reliability as compute

    _check_samples(**options)
    asked, trial = _asked(coordinator, name, row, columns)
    chances = probabilities(coordinator, asked.graph, given)
    if trial is None:
        return Reliability(asked, compute(asked.graph, chances, **options))
    return Reliability(asked, trying.try_reliability(trial, chances, **options))


def _asked(
    coordinator: Coordinator,
    name: str,
    row: Row,
    columns: Mapping[str, Any],
    limit: int = LIMIT,
    several: bool = False,
    ordered: bool = False,
) -> tuple[Question, Trial | None]:
    """Find a row that must be there, or, if `several` rows are fine, all that match, with what is behind them; and a
    trial, where that does not say everything and the tables are small enough to be tried, in several orders if
    `ordered`."""
    with looking_into(coordinator, name) as catalog:
        if tracing.is_stream(catalog, name):
            if several and not columns:
                raise DataError(f"{name} is a stream: say which row of it is meant, by its columns or tid")
            traced = _find_in_stream(catalog, name, row, columns)
            if traced.tid is None:
                raise DataError(f"{name} keeps no row with {_text(traced.row)}")
            graph = tracing.lineage(catalog, name, traced.tid, limit)
            return Question(graph, name, traced.row, coordinator.epoch), None
        found = None if several and not columns else _present(catalog, name, row, columns, several)
        codes = None if found is None else found.codes
        asked = Question(_extract(catalog, name, codes, limit), name, None, coordinator.epoch)
        if found is not None:
            asked = replace(asked, where=found.row) if found.several else replace(asked, row=found.row)
        if asked.graph.exact or name in coordinator.program.tables:
            return asked, None
        views, tables = _around(catalog.program, name)
        if any(coordinator.program.tables[table].stream is not None for table in tables):
            return asked, None  # what is lost of a stream would have to be lost from the beginning
        most = min(trying.MOST, trying.MOST_ORDERED) if ordered else trying.MOST
        if sum(coordinator.catalog.backend.sizes()[table] for table in tables) > most:
            return asked, None
        copy = _copy(coordinator, views, tables)
        rows = copy.flow.views[name].contents().rows if codes is None else codes
        trial = Trial(copy.flow, copy.dictionary, name, coordinator.reader.schema(name), rows)
        return replace(asked, graph=trial.graph), trial


def probabilities(coordinator: Coordinator, graph: Derivations, given: Mapping[str, float | str]) -> Floats:
    """Return the probability of each base row of a graph: one per table, or a column of it; 1 where nothing is said."""
    chosen = _chosen(coordinator.program, given)
    found = np.ones(len(graph.base))
    relations = graph.relation[graph.base]
    for number, relation in enumerate(graph.relations):
        if relation.kind != "base" or relation.name not in chosen:
            continue
        mine = np.flatnonzero(relations == number)
        value = chosen[relation.name]
        found[mine] = _column(graph, number, graph.place[graph.base[mine]], value) if isinstance(value, str) else value
    return found


def _chosen(program: Program, given: Mapping[str, float | str]) -> dict[str, float | str]:
    """Return what is given, by the names of tables: probabilities, or columns that have them."""
    if not isinstance(given, Mapping):
        raise DataError(f"given is a dict of tables, each with a probability or a column, not {format_value(given)}")
    found: dict[str, float | str] = {}
    for name, value in given.items():
        key = str(name).lower()
        if key in program.views:
            raise CatalogError(f'"{key:.100}" is a view; probabilities are given for the tables behind it')
        if key not in program.tables:
            raise CatalogError(f'there is no table "{name!s:.100}"{did_you_mean(key, program.tables)}')
        if isinstance(value, str):
            _check_column(key, program.tables[key].schema, value)
        else:
            _check_probability(value, f"given for {key}")
        found[key] = value
    return found


def _check_column(table: str, schema: Schema, column: str) -> None:
    names = schema.names
    if column.lower() not in names:
        raise CatalogError(f'{table} has no column "{column:.100}"{did_you_mean(column, names)}')
    kind = schema.types[names.index(column.lower())]
    if not kind.is_numeric:
        raise DataError(f"{table}.{column} is {kind}, and a probability is a number")


def _column(graph: Derivations, number: int, places: Ints, column: str) -> Floats:
    relation = graph.relations[number]
    at = relation.schema.names.index(column.lower())
    kind = relation.schema.types[at]
    values = [decode_value(int(c), kind, graph.dictionary) for c in graph.cells[number][places, at].tolist()]
    for place, value in zip(places.tolist(), values, strict=True):
        _check_probability(value, f"{relation.name}.{column} of row {place + 1} behind it")
    return np.array(values, np.float64)


def _check_probability(value: Any, where: str) -> None:
    if value is None:
        raise DataError(f"a probability is NULL: {where}")
    number = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
    if not number or not 0 <= float(value) <= 1:
        raise DataError(f"a probability is a number from 0 to 1, not {format_value(value)}: {where}")


def _check_samples(samples: Any = None, confidence: Any = 0.5, **_: Any) -> None:
    if samples is not None and (not isinstance(samples, Integral) or samples < 1):
        raise DataError(f"samples is a whole number from 1 on, not {format_value(samples)}")
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise DataError(f"a confidence lies between 0 and 1, not {format_value(confidence)}")


def _extract(catalog: Catalog, name: str, rows: Codes | None, limit: int) -> Derivations:
    found = extract(catalog.flow, catalog.program, catalog.planned, catalog.dictionary, name, rows, limit)
    return found.renamed(with_source_names)


# -- which row ---------------------------------------------------------------------------------------------------------


def present(catalog: Catalog, name: str, row: Row, columns: Mapping[str, Any]) -> tuple[dict[str, Any], Codes]:
    """Find the whole row that is meant and must be there; return it and its codes."""
    found = _present(catalog, name, row, columns)
    assert found.codes is not None
    return found.row, found.codes


def _present(catalog: Catalog, name: str, row: Row, columns: Mapping[str, Any], several: bool = False) -> Found:
    """Find the row that is meant, or `several`, which must be there."""
    found = _find(catalog, name, row, columns, several=several)
    if found.codes is None:
        raise DataError(f"{name} has no row with {_text(found.row)}; why says what it lacks")
    return found


def both(where: Mapping[str, Any] | None, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all columns that are given, as a mapping or by their names."""
    if where is not None and not isinstance(where, Mapping):
        raise DataError(f"where is a mapping of columns to values, not {format_value(where)}")
    return {**(where or {}), **columns}


def _find_in_stream(
    catalog: Catalog, name: str, row: Row, columns: Mapping[str, Any], tid: Any = None
) -> tracing.TracedRow:
    """Find the row of a stream that is meant, by some of its columns, or by its tid; `tid` among the columns is the tid
    if no column is called so."""
    schema = tracing.site_of(catalog).schema(name)
    given = dict(row if isinstance(row, Mapping) else columns)
    if tid is None and tracing.TID not in schema.names and tracing.TID in given:
        tid = given.pop(tracing.TID)
        row, columns = None, given
    if tid is not None and (not isinstance(tid, (int, np.integer)) or isinstance(tid, bool)):
        raise DataError(f"a tid is a whole number, not {format_value(tid)}")
    meant = _given(name, schema, row, columns) if tid is None or columns or row is not None else {}
    codes: dict[int, int] | None = {}
    for column, value in meant.items():
        at = schema.names.index(column)
        code = _encoded(value, schema, at, catalog.dictionary)
        if code is None or codes is None:
            codes = None
        else:
            codes[at] = code
    said = meant if tid is None else {tracing.TID: int(tid), **meant}
    return tracing.find(catalog, name, codes, None if tid is None else int(tid), said)


def _find(
    catalog: Catalog,
    name: str,
    row: Row,
    columns: Mapping[str, Any],
    explain: bool = False,
    several: bool = False,
) -> Found:
    """Find the row of a table or view that is meant by all or some of its columns, or `several` rows."""
    schema = (catalog.program.tables.get(name) or catalog.program.views[name]).schema
    given = _given(name, schema, row, columns)
    codes: dict[int, int] = {}
    unknown = []
    for column, value in given.items():
        at = schema.names.index(column)
        code = _encoded(value, schema, at, catalog.dictionary)
        if code is None:
            unknown.append(column)
        else:
            codes[at] = code
    if not unknown:
        matching = _matching(catalog, name, codes)
        if len(matching) > 1 and not several:
            raise DataError(_several(catalog, name, matching, codes))
        if len(matching) > 1:
            return Found(given, matching)
        if len(matching) == 1:
            types = zip(schema.names, schema.types, matching[0].tolist(), strict=True)
            whole = {n: decode_value(c, t, catalog.dictionary) for n, t, c in types}
            return Found(whole, matching)
    if not explain:
        return Found(given, None)
    reach("what is missing")
    planned, dictionary = catalog.planned, catalog.dictionary
    return Found(given, None, explain_missing(catalog.flow, catalog.program, planned, dictionary, name, given))


def _given(name: str, schema: Schema, row: Row, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were given, by column."""
    if row is not None and columns:
        raise DataError("give the row as `row=…` or by its columns, not both")
    if row is not None and not isinstance(row, Mapping):
        if isinstance(row, (str, bytes)) or not isinstance(row, Sequence):
            raise DataError(f"a row is a tuple or a mapping of columns to values, not {format_value(row)}")
        if len(row) != len(schema):
            raise DataError(f"a row of {name} has {len(schema)} values ({', '.join(schema.names)}), not {len(row)}")
        return dict(zip(schema.names, row, strict=True))
    given = row if row is not None else columns
    found: dict[str, Any] = {}
    for column, value in given.items():
        key = str(column).lower()
        if key not in schema.names:
            raise CatalogError(
                f'{name} has no column "{column!s:.100}"{did_you_mean(key, schema.names)}; it has '
                f"{', '.join(schema.names)} (`row={{…}}` takes columns whose names mean something else here)"
            )
        found[key] = value
    if not found and len(schema):
        raise DataError(f"say which row of {name} is meant, by some of its columns: {', '.join(schema.names)}")
    return found


def _encoded(value: Any, schema: Schema, at: int, dictionary: Dictionary) -> int | None:
    """Return the code of a value, None if it was never met; a reader adds nothing to the dictionary."""
    column = schema.columns[at]
    scratch = Dictionary()
    try:
        code = encode_value(value, column.type, scratch)
    except DataError as error:
        raise DataError(f"column {column.name}: {error}") from None
    return scratch.translated(code, column.type, dictionary)


def _matching(catalog: Catalog, name: str, codes: Mapping[int, int]) -> Codes:
    """Return the distinct rows that have these values."""
    operator = catalog.backend.operator(name)
    if len(codes) == len(operator.schema):
        row = np.array([[codes[c] for c in range(len(codes))]], np.int64)
        return row[operator.count_of(row) > 0]
    if isinstance(operator, TableScan):
        return operator.relation.find(tuple(codes), np.array([list(codes.values())], np.int64)).rows
    rows = operator.contents().rows
    for column, code in codes.items():
        rows = rows[rows[:, column] == code]
    return rows


def _several(catalog: Catalog, name: str, matching: Codes, codes: Mapping[int, int]) -> str:
    """Say that several rows match, which they are, and which columns tell them apart."""
    schema = (catalog.program.tables.get(name) or catalog.program.views[name]).schema
    differ = [
        schema.names[c] for c in range(len(schema)) if c not in codes and (matching[:, c] != matching[0, c]).any()
    ]
    some = to_tuples(np.ascontiguousarray(matching[:SOME]), schema, catalog.dictionary)
    shown = ", ".join(f"({', '.join(map(format_value, values))})" for values in some)
    more = ", …" if len(matching) > SOME else ""
    return (
        f"{len(matching):,} rows of {name} match: {shown}{more}; tell which one is meant by {', '.join(differ)} "
        f"(critical takes several rows)"
    )


def _text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {format_value(value)}" for name, value in row.items())


# -- where to look -----------------------------------------------------------------------------------------------------


class _Twin(NamedTuple):
    epoch: int
    program: Program
    catalogs: dict[frozenset[str], Catalog]


_TWINS: weakref.WeakKeyDictionary[Coordinator, _Twin] = weakref.WeakKeyDictionary()


@contextmanager
def looking_into(coordinator: Coordinator, name: str) -> Iterator[Catalog]:
    """Open the catalog to look into, at the last committed epoch, which stands still meanwhile."""
    with shielded():
        coordinator.check_open()
        coordinator.before_reading()
    with held(coordinator.state, "waiting for the end of an epoch"):
        pass  # so that waiting for it can be cancelled
    with coordinator.reading():
        coordinator.reader.schema(name)  # or it is an error
        coordinator.held.refresh(name)
        catalog = coordinator.catalog
        here = catalog.backend.at_hand or coordinator.reader.is_stream(name)  # streams are asked where they are
        found = catalog if here else _twin(coordinator, name)
        if name in found.transient:
            yield found.with_transient(name)
        else:
            yield found.as_joined(name) if is_template(name) and not tracing.is_stream(found, name) else found


def _twin(coordinator: Coordinator, name: str) -> Catalog:
    """Build an embedded catalog with the same rows: of the tables and views that have to do with the one asked
    about."""
    kept, program = _TWINS.get(coordinator), coordinator.program
    if kept is None or kept.epoch != coordinator.epoch or kept.program is not program:
        kept = _TWINS[coordinator] = _Twin(coordinator.epoch, program, {})
    views, tables = _around(_program_around(coordinator, name), name)
    key = frozenset((*views, *tables))
    found = kept.catalogs.get(key)
    if found is None:
        found = kept.catalogs[key] = _copy(coordinator, views, tables)
    return found


def _copy(coordinator: Coordinator, views: list[str], tables: list[str]) -> Catalog:
    """Build an embedded catalog of its own with these tables and views."""
    program, dictionary = coordinator.program, Dictionary()
    dictionary.extend(0, coordinator.dictionary.since(0))
    found = InlineDeployment(holds=False).open(coordinator.recursion_limit, dictionary=dictionary)
    found.program = Program(scalars=program.scalars, table_functions=program.table_functions)
    for table in tables:
        create = parse_stored(program.tables[table].sql)
        assert isinstance(create, st.CreateTable)
        found.create_table(create)
        found.stay()
        if create.table.stream is not None:
            kept = coordinator.catalog.backend.site(coordinator.catalog.planned).kept(table)
            found.flow.streams[table].restore(stream_image(kept.rows, kept.next, kept.last_at, kept.promised))
            continue
        relation = found.flow.tables[table].relation
        relation.apply(Batch(*coordinator.reader.contents(table), True))
        relation.commit()
    kept_views = [program.views[view] for view in views if view in program.views]
    creates = [parse_stored(view.sql) for view in kept_views if view.owner is None]
    if creates:
        found.create_views([c for c in creates if isinstance(c, st.CreateView)])
        found.stay()
    for name in views:
        if name in coordinator.catalog.transient:
            sql = coordinator.catalog.transient[name].view.sql
            found.create_transient(name, parse_query(sql).query.copy(), sql)
            found.stay()
    advice = "so it cannot be asked about on partitions: open the database without them"
    check_recomputable(found.planned, {name: stream.kept for name, stream in found.flow.streams.items()}, advice)
    return found


def _program_around(coordinator: Coordinator, name: str) -> Program:
    """Return the program that a table or view is part of, also of a transient view."""
    catalog = coordinator.catalog
    return catalog.with_transient(name).program if name in catalog.transient else catalog.program


def _around(program: Program, name: str) -> tuple[list[str], list[str]]:
    """Return the views that a table or view has to do with, and their tables. How a view is planned depends on its
    readers, so they are among them."""
    if name in program.tables:
        return [], [name]
    reads = {n: {x.view for x in walk(v.query) if isinstance(x, Ref)} for n, v in program.views.items()}
    for hidden, view in program.views.items():
        if view.owner is not None:
            reads[hidden].add(view.owner)
    near, open_ = {name}, [name]
    while open_:
        at = open_.pop()
        for other in reads:
            if other not in near and (other in reads[at] or at in reads[other]):
                near.add(other)
                open_.append(other)
    views = [n for n in program.views if n in near]
    read = {x.table for n in views for x in walk(program.views[n].query) if isinstance(x, Scan)}
    return views, [t for t in program.tables if t in read]
