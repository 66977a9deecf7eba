"""Values for the parameters of statements: `?` and `$1` from a sequence, `:name` and `$name` from a mapping.

The law: a parameter means what the literal of its value would mean in its place, and it is never text that is parsed.
Binding copies the parsed tree and puts a literal's nodes where the placeholders are, so a parsed statement can be kept
and bound again with other values. Lists stand after IN, ANY and ALL, and elsewhere for DuckDB's lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from sqlglot import exp

from whence.model.codes import Interval, format_value
from whence.model.errors import DataError, SqlError
from whence.sql import statements as st
from whence.sql.parameter_tokens import Parameter
from whence.sql.parameter_values import literal_of
from whence.sql.position import did_you_mean, write_sql
from whence.sql.reader import MAX_WORDS

Params = Sequence[Any] | Mapping[str, Any]
S = TypeVar("S", bound=st.Statement)

_KINDS = "None, bool, int, float, Decimal, str, date, datetime, timedelta or Interval, or a list of them"
_LISTS = (list, tuple, set, frozenset, range)
_ROWS = (exp.Limit, exp.Offset, exp.Fetch)
_NAMES: dict[tuple[type[exp.Expr], str], str] = {  # where a value cannot stand, and what can
    (exp.Table, "this"): "the name of a table",
    (exp.Column, "this"): "the name of a column",
    (exp.Column, "table"): "the name of a table",
    (exp.Dot, "expression"): "the name of a field",
    (exp.Alias, "alias"): "a name",
    (exp.TableAlias, "this"): "a name",
    (exp.TableAlias, "columns"): "a name",
    (exp.Cast, "to"): "a type",
    (exp.TryCast, "to"): "a type",
    (exp.Extract, "this"): "a part of a date",
    (exp.Interval, "unit"): "a unit of time",
    (exp.Group, "expressions"): "a column to group by",
    (exp.Ordered, "this"): "a column to order by",
}


def bind_parameters(statements: Sequence[S], params: Params | None) -> list[S]:
    """Return the statements of a script with values for their parameters. `?` is counted through the script.

    >>> from whence.sql.parse import parse
    >>> [bound] = bind_parameters(parse("SELECT * FROM t WHERE a = ? AND b IN ?"), ["it's", [1, 2]])
    >>> bound.query.sql()
    "SELECT * FROM t WHERE a = 'it''s' AND b IN (1, 2)"
    """
    _check_params(params)
    used = [p for s in statements if not isinstance(s, st.CreateTemplate) for p in s.parameters]
    _check_styles(used)
    if used or params:
        _check_given(used, params or None)
    open_ = [bool(s.parameters) and not isinstance(s, st.CreateTemplate) for s in statements]
    return [_bound(s, params) if has else s for s, has in zip(statements, open_, strict=True)]


def divide_parameters(texts: Sequence[Sequence[Parameter]], params: Params | None) -> list[Params | None]:
    """Return the values for each of several texts of SQL, given what parameters each has.

    Named ones are for all of them, and each must be used. Positions count in one text, so those are for the first.
    """
    _check_params(params)
    if not isinstance(params, Mapping):
        return [params, *([None] * (len(texts) - 1))]
    _check_names(params, {parameter.key for text in texts for parameter in text})
    return [{str(p.key): params[str(p.key)] for p in text if p.key in params} for text in texts]


def _check_params(params: Params | None) -> None:
    if isinstance(params, (str, bytes)) or not (params is None or isinstance(params, (Sequence, Mapping))):
        raise DataError(f"params is a list or tuple of values, or a dict by name, not {format_value(params)}")


def _check_styles(used: Sequence[Parameter]) -> None:
    for parameter in used:
        if parameter.style != used[0].style:
            raise _error(f"{used[0].text} and {parameter.text} are mixed; use one style of parameters", parameter)


def _check_given(used: Sequence[Parameter], params: Params | None) -> None:
    """Check that every parameter has a value, and every value a parameter."""
    if isinstance(params, Mapping):
        first = next((p for p in used if isinstance(p.key, int)), None)
        if first is not None:
            raise _error(f"{first.text} takes its value from a list or tuple, but params is a dict", first)
        for parameter in used:
            if parameter.key not in params:
                raise _error(f"no value for the parameter {parameter.text}{_hint(parameter, params)}", parameter)
        _check_names(params, {parameter.key for parameter in used})
        return
    given = len(params) if params is not None else 0
    for parameter in used:
        if isinstance(parameter.key, str):
            got = f" in a dict such as {{{parameter.key!r}: …}}, not in a list" if given else ""
            raise _error(f"no value for the parameter {parameter.text}; give it by name{got}", parameter)
        if not 1 <= parameter.key <= given:
            counted = f", number {parameter.key}" if parameter.text == "?" else ""
            raise _error(f"no value for the parameter {parameter.text}{counted}: {_count(given)} given", parameter)
    numbers = {parameter.key for parameter in used}
    unused = next((number for number in range(1, given + 1) if number not in numbers), None)
    if unused is not None:
        raise SqlError(f"value {unused} of params is not used: {_count(given)} given for {len(numbers)} parameters")


def _check_names(params: Mapping[str, Any], used: set[int | str]) -> None:
    unused = next((name for name in params if name not in used), None)
    if unused is not None:
        hint = did_you_mean(unused, [str(key) for key in used]) if isinstance(unused, str) else ""
        raise SqlError(f"the value of {format_value(unused)} in params is not used{hint}")


def _hint(parameter: Parameter, params: Mapping[str, Any]) -> str:
    return did_you_mean(str(parameter.key), [name for name in params if isinstance(name, str)])


def _count(given: int) -> str:
    return f"{given} value{'s' * (given != 1)} {'are' if given != 1 else 'is'}"


def _error(message: str, parameter: Parameter) -> SqlError:
    return SqlError(message, line=parameter.line, column=parameter.column, text=parameter.text)


# -- trees


def _bound(statement: S, params: Params | None) -> S:
    binder = _Binder(statement.parameters, params)
    changed: dict[str, Any] = {}
    match statement:
        case st.Query():
            changed["query"] = binder.bind(statement.query, named=True)
        case st.InsertRows():
            changed["source"] = binder.bind(statement.source)
        case st.DeleteRows():
            changed["where"] = binder.bind(statement.where)
        case st.UpdateRows():
            changed["where"] = binder.bind(statement.where)
            changed["assignments"] = tuple((name, binder.bind(value)) for name, value in statement.assignments)
        case st.Explain() if not isinstance(statement.what, str):
            return replace(statement, what=_bound(statement.what, params), parameters=())
    binder.check_all_bound()
    return replace(statement, parameters=(), **changed)


class _Binder:
    """The values of one statement's parameters, which it puts into copies of the statement's trees."""

    def __init__(self, parameters: Sequence[Parameter], params: Params | None) -> None:
        self._parameters = {parameter.start: parameter for parameter in parameters}
        self._params = params
        self._bound: set[int] = set()

    def bind(self, tree: exp.Expr | None, named: bool = False) -> Any:
        """Return a copy of a tree with values in it. If `named`, its columns are named by the text before that."""
        if tree is None:
            return None
        root = exp.Paren(this=None)  # so that every node of the tree has a parent to be replaced in
        copied, places = _copy(tree)
        root.set("this", copied)
        if named and places:
            _name_columns(copied, places)
        for place in places:
            parameter = self._parameters[place.meta["start"]]
            self._bound.add(parameter.start)
            _put(place, parameter, self._value(parameter))
        found = root.this
        found.parent = found.arg_key = None
        return found

    def _value(self, parameter: Parameter) -> Any:
        key = parameter.key
        return cast(Any, self._params)[key - 1 if isinstance(key, int) else key]

    def check_all_bound(self) -> None:
        for start, parameter in self._parameters.items():
            if start not in self._bound:
                raise _error(f"{parameter.text} is a value, and none can stand here", parameter)


def _copy(tree: exp.Expr) -> tuple[exp.Expr, list[exp.Placeholder]]:
    """Copy a tree, sharing positions; return it and its placeholders. It is some three times as fast as sqlglot's."""
    root = tree.__class__()
    places: list[exp.Placeholder] = []
    waiting = [(tree, root)]
    while waiting:
        node, copy = waiting.pop()
        copy._meta, copy._type, copy.comments = node._meta, node._type, node.comments
        if node.__class__ is exp.Placeholder:
            places.append(cast(exp.Placeholder, copy))
        args = copy.args
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                child = args[key] = value.__class__()
                child.parent, child.arg_key = copy, key
                waiting.append((value, child))
            elif value.__class__ is list:
                args[key] = items = []
                for index, item in enumerate(value):
                    child = item
                    if isinstance(item, exp.Expr):
                        child = item.__class__()
                        child.parent, child.arg_key, child.index = copy, key, index
                        waiting.append((item, child))
                    items.append(child)
            else:
                args[key] = value
    return root, places


def _name_columns(query: exp.Expr, places: Iterable[exp.Expr]) -> None:
    """Name the columns that are made of parameters by their text, as no value should be in a column's name."""
    while isinstance(query, (exp.SetOperation, exp.Subquery, exp.Paren)):
        query = query.this
    items = {id(item) for item in query.expressions} if isinstance(query, exp.Select) else set()
    for place in places:
        node: exp.Expr | None = place
        while node is not None and id(node) not in items:
            node = node.parent
        if node is not None and not isinstance(node, (exp.Alias, exp.Star, exp.Column, exp.Columns)):
            items.discard(id(node))
            alias = exp.Alias(this=None, alias=exp.to_identifier(write_sql(node), quoted=True))
            node.replace(alias)
            alias.set("this", node)


def _put(place: exp.Placeholder, parameter: Parameter, value: Any) -> None:
    """Put a value in the place of a parameter."""
    parent, arg = place.parent, place.arg_key
    assert parent is not None
    assert arg is not None
    refused = _NAMES.get((parent.__class__, arg))
    if refused is not None:
        raise _error(f"{parameter.text} is a value; {refused} cannot be a parameter, write it", parameter)
    if not _is_list(value):
        _put_one(place, parameter, value)
        return
    items = list(value)
    if len(items) > MAX_WORDS:
        raise _error(
            f"a list of {len(items):,} values; insert more than {MAX_WORDS:,} into a table, and join", parameter
        )
    _put_list(place, parameter, items)


def _is_list(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, _LISTS) and not isinstance(value, Interval)


def _put_one(place: exp.Placeholder, parameter: Parameter, value: Any) -> None:
    parent = cast(exp.Expr, place.parent)
    if isinstance(parent, exp.In) and place.arg_key == "field":
        raise _error(
            f"IN {parameter.text} takes a list of values, not {format_value(value)}; write = for one", parameter
        )
    if _quantifier(place) is not None:
        raise _error(f"ANY and ALL take a list of values, not {format_value(value)}", parameter)
    if isinstance(parent, _ROWS) and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0):
        clause = "OFFSET" if isinstance(parent, exp.Offset) else "LIMIT"
        raise _error(f"{clause} takes a whole number from 0 on, not {format_value(value)}", parameter)
    if isinstance(parent, exp.Interval) and not isinstance(value, str):  # INTERVAL ? DAY
        node: exp.Expr = exp.Literal.string(str(value))
    else:
        node = _literal(value, parameter)
    _locate(node, place)
    place.replace(node)


def _put_list(place: exp.Placeholder, parameter: Parameter, items: list[Any]) -> None:
    parent = cast(exp.Expr, place.parent)
    if isinstance(parent, exp.In):
        width = len(parent.this.expressions) if isinstance(parent.this, exp.Tuple) else None
        nodes = [_element(item, parameter, place, width) for item in items]
        if place.arg_key == "field":
            parent.set("field", None)
            parent.set("expressions", nodes)
        else:
            at = place.index or 0
            parent.set("expressions", [*parent.expressions[:at], *nodes, *parent.expressions[at + 1 :]])
        _settle(parent, place)
        return
    nodes = [_element(item, parameter, place) for item in items]
    quantifier = _quantifier(place)
    compared = quantifier.parent if quantifier is not None else None
    if quantifier is not None and compared is not None and compared.expression is quantifier:
        is_any = isinstance(quantifier, exp.Any)
        if isinstance(compared, exp.EQ if is_any else exp.NEQ):
            member = exp.In(this=compared.this, expressions=nodes)
            compared.replace(member if is_any else exp.Paren(this=exp.Not(this=member)))
            _settle(member, place)
            return
    array = exp.Array(expressions=nodes)
    _locate(array, place)
    place.replace(array)


def _settle(member: exp.In, place: exp.Placeholder) -> None:
    """Finish `x IN (values)`: none at all is FALSE, though x is looked at."""
    if member.expressions:
        return
    nothing = exp.Null()
    _locate(nothing, place)
    nowhere = exp.Paren(this=None)
    member.replace(nowhere)
    member.set("expressions", [nothing])
    nowhere.set("this", exp.And(this=member, expression=exp.false()))


def _quantifier(place: exp.Expr) -> exp.Expr | None:
    """Return the ANY or ALL whose list a parameter is."""
    parent = place.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    is_all = isinstance(parent, exp.Anonymous) and parent.name.lower() == "all"  # which sqlglot takes for a function
    return parent if is_all or isinstance(parent, exp.Any) else None


def _locate(node: exp.Expr, place: exp.Placeholder) -> None:
    """Give a value the position of its parameter, for messages."""
    node._meta = place._meta


def _element(item: Any, parameter: Parameter, place: exp.Placeholder, width: int | None = None) -> exp.Expr:
    """Return the nodes of an element of a list; of a list for `(a, b) IN ?` it is a tuple."""
    if width is None:
        node = _literal(item, parameter)
        _locate(node, place)
        return node
    if not isinstance(item, (list, tuple)) or len(item) != width:
        raise _error(f"IN compares tuples of {width} values, and the list has {format_value(item)}", parameter)
    return exp.Tuple(expressions=[_element(value, parameter, place) for value in item])


def _literal(value: Any, parameter: Parameter) -> exp.Expr:
    """Return the nodes of the literal of a value."""
    try:
        return literal_of(value)
    except OverflowError:
        reason = "is out of range"
    except Exception:  # a value may be of any class, and whatever its methods raise, there is no literal of it
        reason = f"({value.__class__.__name__:.80}) is not a value; it takes {_KINDS}"
    named = f"the parameter {parameter.text} (line {parameter.line}, column {parameter.column})"
    raise DataError(f"{named}: {format_value(value)} {reason}")
