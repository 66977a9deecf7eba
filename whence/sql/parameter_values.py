"""The literals of values: the nodes that stand in SQL for a Python value, with exactly its type and meaning."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from sqlglot import exp

from whence.model.codes import Interval
from whence.model.text import to_text
from whence.model.types import MAX_PRECISION, TIMESTAMP


def literal_of(value: Any) -> exp.Expr:
    """Return the nodes of the literal of a value; raise OverflowError if it is out of range, or another error if there
    is none.

    >>> literal_of(-2.5).sql(), literal_of(Decimal("2.50")).sql(), literal_of(dt.date(2024, 5, 1)).sql()
    ('(-2.5e0)', '2.50', "CAST('2024-05-01' AS DATE)")
    """
    make = _LITERALS.get(value.__class__)
    if make is None:
        value, make = _known(value)
    return make(value)


def _known(value: Any) -> tuple[Any, Callable[[Any], exp.Expr]]:
    """Return a value of a subclass, or of NumPy, as one of the classes that have literals."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        days = np.datetime_data(value.dtype)[0] == "D" and isinstance(value, np.datetime64)
        value = value.item() if days else value.astype(value.dtype.str[:3] + "[us]").item()
    elif isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    for kind, make in _LITERALS.items():  # bool before int, datetime before date
        if isinstance(value, kind):
            return value, make
    raise TypeError


def _null(_: None) -> exp.Expr:
    return exp.Null()


def _boolean(value: bool) -> exp.Expr:
    return exp.Boolean(this=value)


def _number(text: str) -> exp.Expr:
    if text.startswith("-"):
        return exp.Paren(this=exp.Neg(this=exp.Literal(this=text[1:], is_string=False)))
    return exp.Literal(this=text, is_string=False)


def _integer(value: int) -> exp.Expr:
    if not -(2**63) < value < 2**63:
        raise OverflowError
    return _number(int.__repr__(value))


def _double(value: float) -> exp.Expr:
    value = float(value) + 0.0  # there is no -0.0 among values
    if not math.isfinite(value):
        return _cast(str(value), exp.DType.DOUBLE)
    text = repr(value)
    return _number(text if "e" in text else text + "e0")


def _decimal(value: Decimal) -> exp.Expr:
    if not value.is_finite():
        return _double(float(value))
    sign, digits, exponent = value.as_tuple()
    places = max(0, -int(exponent))
    if max(len(digits) + int(exponent), 1) + places > MAX_PRECISION:  # a DOUBLE, as such a literal is
        number = float(value)
        if math.isinf(number):
            raise OverflowError
        return _double(number)
    text = f"{value.copy_abs():f}"  # abs() would round it
    return _number("-" * sign + (text if "." in text else text + "."))


def _text(value: str) -> exp.Expr:
    text = str.__str__(value)
    text.encode()  # half of a surrogate pair is not text
    return exp.Literal(this=text, is_string=True)


def _date(value: dt.date) -> exp.Expr:
    return _cast(dt.date.isoformat(value), exp.DType.DATE)


def _timestamp(value: dt.datetime) -> exp.Expr:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    dt.datetime.toordinal(value)  # which pandas' NaT does not have
    return _cast(to_text(value, TIMESTAMP), exp.DType.TIMESTAMP)


def _duration(value: dt.timedelta) -> exp.Expr:
    return _interval(Interval(0, value.days, value.seconds * 1_000_000 + value.microseconds))


def _interval(value: Interval) -> exp.Expr:
    if not value.fits or any(part.__class__ is not int for part in value):
        raise OverflowError
    text = f"{value.months} months {value.days} days {value.micros} microseconds"
    return exp.Interval(this=exp.Literal(this=text, is_string=True))


def _cast(text: str, kind: exp.DType) -> exp.Expr:
    return exp.Cast(this=exp.Literal(this=text, is_string=True), to=exp.DataType(this=kind, nested=False))


_LITERALS: dict[type[Any], Callable[[Any], exp.Expr]] = {
    type(None): _null,
    bool: _boolean,
    int: _integer,
    float: _double,
    str: _text,
    Decimal: _decimal,
    dt.datetime: _timestamp,
    dt.date: _date,
    dt.timedelta: _duration,
    Interval: _interval,
}
