"""CREATE TEMPLATE: a query with parameters, the table of its parameters, and the view that joins both.

The table has a column `id`, its primary key, and one for each parameter, with the type of what the parameter is
compared with. Types are found by binding: a parameter without one raises `UntypedParameterError` where something asks
for its type, and the query is bound again with that type. A table of the template's name that is there already is
taken, if it has these columns; it may have more.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.model import types as t
from whence.model.errors import CatalogError, SqlError
from whence.model.types import Column, Kind, Schema, Type
from whence.plan.algebra.program import Program, Table
from whence.sql import statements as st
from whence.sql.parameter_tokens import Parameter
from whence.sql.placeholders import UntypedParameterError
from whence.sql.views import bind_views

ID = "id"
_ROUNDS = 4  # of binding, for each parameter: its type may be widened


def bind_template(create: st.CreateTemplate, program: Program) -> Program:
    """Return a copy of the program with the template: its view, and its parameter table unless that is there.

    >>> from whence.sql.parse import parse_one
    >>> table = Table("a", Schema((Column("x", t.INTEGER),)))
    >>> create = parse_one("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    >>> bound = bind_template(create, Program(tables={"a": table}))
    >>> str(bound.tables["above"].schema), str(bound.views["$template_above"].schema)
    ('(id BIGINT, low INTEGER)', '($id BIGINT, x INTEGER)')
    """
    name, parameters = create.template, parameters_of(create)
    if create.name in program.views:
        if create.if_not_exists:
            return program
        raise CatalogError(f'template "{name}" exists already; drop it first')
    if name in program.views:
        raise CatalogError(f'"{name}" is a view; a template needs another name')
    if name in program.tables:
        _check_table(program.tables[name], parameters)
        return bind_views([create], program)
    types: dict[str, Type] = dict.fromkeys(parameters, t.NULLTYPE)
    for _ in range(1 + _ROUNDS * len(types)):
        candidate = program.copy()
        candidate.tables[name] = _table(name, types)
        try:
            found = bind_views([create], candidate, declared=False)
        except UntypedParameterError as untyped:
            types[untyped.name] = untyped.type
            continue
        unknown = next((each for each, type in types.items() if type.kind is Kind.NULL), None)
        if unknown is not None:
            raise _error(
                f"the type of :{unknown} is not known; compare it with a column, or say CAST(:{unknown} AS …)",
                parameters[unknown],
            )
        return found
    raise SqlError(f'template "{name}": the types of its parameters keep growing; cast them')


def parameters_of(create: st.CreateTemplate) -> dict[str, Parameter]:
    """Return the first place of each parameter by its name, in lower case; SqlError if one cannot be a column."""
    found: dict[str, Parameter] = {}
    for parameter in create.parameters:
        if isinstance(parameter.key, int):
            raise _error("the parameters of a template have names, such as :low", parameter)
        if parameter.key.lower() == ID:
            raise _error("id is the number of a subscription: choose another name for the parameter", parameter)
        found.setdefault(parameter.key.lower(), parameter)
    if not found:
        message = "a template has at least one parameter, such as :low; without any, create a view"
        raise SqlError(message, line=create.line, column=create.column)
    return found


def _table(name: str, types: Mapping[str, Type]) -> Table:
    columns = (Column(ID, t.BIGINT, nullable=False), *(Column(each, type) for each, type in types.items()))
    quoted = ", ".join(f"{_quoted(each)} {type}" for each, type in types.items())
    sql = f"CREATE TABLE {_quoted(name)} ({ID} BIGINT PRIMARY KEY, {quoted})"
    return Table(name, Schema(columns), key=(0,), sql=sql)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return name if name.isidentifier() and name.isascii() else f'"{doubled}"'


def _check_table(table: Table, parameters: Mapping[str, Parameter]) -> None:
    """Refuse a table of the template's name that cannot hold its parameters."""
    names = table.schema.names
    if table.stream is not None or table.source is not None:
        raise CatalogError(f'"{table.name}" is not a table; a template needs another name')
    if table.key != (0,) or names[0] != ID or table.schema.types[0] != t.BIGINT:
        raise CatalogError(
            f'the table "{table.name}" is there, and cannot hold the parameters of a template: its first column is to '
            f"be {ID} BIGINT PRIMARY KEY; choose another name, or drop it"
        )
    for name, parameter in parameters.items():
        if name not in names:
            raise _error(f'the table "{table.name}", which is there, has no column for :{name}', parameter)


def _error(message: str, parameter: Parameter) -> SqlError:
    return SqlError(message, line=parameter.line, column=parameter.column, text=parameter.text)
