"""A DataFrame's columns as a table's: found by name and cast to its types, in Spark SQL.

The law: what comes out encodes (`io.rows.encode`) to the codes that the same values would have had if they had
been inserted without Spark, or Spark stops with an error of ours that names table, column and value. That holds whether
or not the session is in ANSI mode, where a bad cast would otherwise be NULL.

As there, a value has to be of its column's type: 1.5 is no INTEGER and 5 no TEXT. Only text is read as any type, since
CSV files and messages are full of it; it stays text here and is read by `io.reading`, as in files without Spark. A
TIMESTAMP is in UTC: that of an instant (Spark's `timestamp`, or text with a zone) is the time in UTC, and its DATE the
day there, whatever the session's zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from whence.io.operations import COMES, EITHER, GOES, KEYLESS, OPS
from whence.io.rejects import LONGEST
from whence.io.rows import list_names, unknown_columns
from whence.model.errors import DataError
from whence.model.types import Column, Kind, Schema, Type
from whence.sql.position import did_you_mean

SIGN = "whence_sign"
"""The column beside those of the table: +1 a row that comes, -1 one that goes, 0 one that cannot be read."""

FAULT = "whence_fault"
"""Where bad records are not to fail: what is wrong with one, NULL if nothing is."""

RECORD = "whence_record"
"""Beside it: the text of a bad record."""

FILE = "whence_file"
"""And the file that a record is of, empty if it is of none."""

CORRUPT = "_corrupt_record"
"""The column in which Spark's readers of JSON and CSV give the text of a record that they cannot read."""

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBER = (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)
_SPARK: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.INTEGER: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.TEXT: T.StringType(),
    Kind.DATE: T.DateType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
    Kind.INTERVAL: T.CalendarIntervalType(),
    Kind.NULL: T.NullType(),
}
_FITTING: dict[Kind, tuple[type, ...]] = {  # types of Spark that `encode` takes as they are
    Kind.BOOLEAN: (T.BooleanType,),
    Kind.INTEGER: (T.ByteType, T.ShortType, T.IntegerType),
    Kind.BIGINT: _WHOLE,
    Kind.DOUBLE: (T.DoubleType, T.FloatType, *_WHOLE),
    Kind.DECIMAL: (),
    Kind.TEXT: (T.StringType, T.CharType, T.VarcharType),
    Kind.DATE: (T.DateType,),
    Kind.TIMESTAMP: (T.TimestampType, T.TimestampNTZType, T.DateType),
    Kind.INTERVAL: (T.DayTimeIntervalType, T.CalendarIntervalType),
}
_READ: dict[Kind, tuple[type, ...]] = {  # types that are cast, and may hold values that do not fit
    Kind.INTEGER: _NUMBER,
    Kind.BIGINT: _NUMBER,
    Kind.DOUBLE: (T.DecimalType,),
    Kind.DECIMAL: _NUMBER,
    Kind.DATE: (T.TimestampType, T.TimestampNTZType),
}


class Faults:
    """The faults of a row, collected while its columns are built: raised by Spark, or given as a column."""

    def __init__(self, raising: bool = True) -> None:
        self.raising = raising
        self._found: list[Any] = []

    def unless(self, failing: Any, said: Any, result: Any, type: str = "") -> Any:
        """Return the result, or where a row is failing raise what is `said`, or keep that and give NULL."""
        if self.raising:
            failure = F.raise_error(said)
            return F.when(failing, failure.cast(type) if type else failure).otherwise(result)
        self.add(F.when(failing, said))
        return F.when(~F.coalesce(failing, F.lit(False)), result)

    def add(self, fault: Any) -> None:
        """Keep a column that says what is wrong, or is NULL."""
        self._found.append(fault)

    def column(self) -> Any:
        """Return what is wrong first, as a column; collecting begins again."""
        found, self._found = self._found, []
        return F.coalesce(*found, F.lit(None).cast("string")).alias(FAULT)


def spark_type(type: Type) -> T.DataType:
    """Return the type of Spark that holds a SQL type's values.

    >>> from whence.model.types import decimal
    >>> spark_type(decimal(9, 2))
    DecimalType(9,2)
    """
    return T.DecimalType(type.precision, type.scale) if type.kind is Kind.DECIMAL else _SPARK[type.kind]


def quote(name: str) -> str:
    """Quote a column's name for Spark.

    >>> quote("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


def find_field(fields: Sequence[T.StructField], name: str, table: str) -> T.StructField:
    """Find the one field of that name, in any case; raise an error that lists the fields."""
    same = [field for field in fields if field.name == name] or [f for f in fields if f.name.lower() == name.lower()]
    if len(same) == 1:
        return same[0]
    names = [field.name for field in fields]
    if same:
        raise DataError(f"table {table}: column {name:.80} is given twice")
    raise DataError(
        f"table {table}: the DataFrame, which has {list_names(names)}, has no column {name:.80}"
        f"{did_you_mean(name, names)}"
    )


def table_columns(
    fields: Sequence[T.StructField], schema: Schema, table: str, faults: Faults, beside: Sequence[str] = ()
) -> list[Any]:
    """Build a column of Spark for each of the table's.

    With `beside`, a list of the other columns that may be there, any further one is an error.
    """
    out = [
        typed(F.col(quote(field.name)), field.dataType, column, table, faults).alias(column.name)
        for column in schema.columns
        for field in [find_field(fields, column.name, table)]
    ]
    if beside:
        known = {*schema.names, *(name.lower() for name in beside), CORRUPT}
        unknown = [field.name for field in fields if field.name.lower() not in known]
        if unknown:
            raise unknown_columns(f"table {table}", unknown, schema)
    return out


def corrupt_record(names: Sequence[str], schema: Schema) -> Any | None:
    """Return the column with what Spark's reader could not read, if there is one beside the table's."""
    return F.col(CORRUPT) if CORRUPT in names and CORRUPT not in schema.names else None


def unreadable(corrupt: Any, table: str) -> Any:
    """Add the fault of a record that cannot be read, where `corrupt` has its text."""
    shown = F.substring(F.regexp_replace(corrupt, r"\s+", " "), 1, 200)
    said = F.concat(
        F.lit(f"table {table}: Spark's reader cannot read '"), shown, F.lit("' as a row of the schema given")
    )
    return F.when(corrupt.isNotNull(), said)


def shown_record(fields: Sequence[T.StructField], corrupt: Any | None) -> Any:
    """Show a row as it came: the text that could not be read, or its columns as JSON."""
    given = [F.col(quote(f.name)).cast("string").alias(f.name) for f in fields if f.name != CORRUPT]
    text = F.to_json(F.struct(*given))
    return F.substring(text if corrupt is None else F.coalesce(corrupt, text), 1, LONGEST)


def typed(value: Any, given: T.DataType, column: Column, table: str, faults: Faults) -> Any:
    """Convert a column's values to those of a table's column; one that does not fit is a fault."""
    type = column.type
    if isinstance(given, (T.NullType, *_FITTING[type.kind])) or given == spark_type(type):
        return value
    place = f"table {table}, column {column.name}"
    if isinstance(given, T.StringType):
        return value
    if type.kind is Kind.DATE and isinstance(given, T.TimestampType):
        value = from_micros(F.unix_micros(value))
    if isinstance(given, _READ.get(type.kind, ())):
        cast = value.try_cast(spark_type(type))
        if type.is_integer and not isinstance(given, _WHOLE):
            cast = F.when(cast == value, cast)
        return or_fail(value, cast, place, type, faults)
    if type.kind is Kind.INTERVAL and isinstance(given, T.YearMonthIntervalType):
        months = 12 * F.extract(F.lit("YEAR"), value) + F.extract(F.lit("MONTH"), value)
        return F.when(value.isNotNull(), F.make_interval(F.lit(0), months.cast("int")))
    raise DataError(f"{place}: {given.simpleString()} is not {type}; cast it in the DataFrame")


def or_fail(value: Any, result: Any, place: str, type: Type, faults: Faults, hint: str = "") -> Any:
    """Return the result, with a fault where there is a value and no result."""
    said = F.concat(F.lit(f"{place}: '"), F.substring(value.cast("string"), 1, 80))
    return faults.unless(
        value.isNotNull() & result.isNull(), F.concat(said, F.lit(f"' is not a value of type {type}{hint}")), result
    )


def from_micros(micros: Any) -> Any:
    """Return the time without a zone that many microseconds after 1970 began."""
    return F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01").cast("timestamp_ntz"))


def sign(op: str, fields: Sequence[T.StructField], table: str, keyed: bool, faults: Faults) -> Any:
    """Return the sign that a column of operations says, a tinyint."""
    field = find_field(fields, op, table)
    value, given = F.col(quote(field.name)), field.dataType
    if op == SIGN and isinstance(given, T.ByteType):
        return value.alias(SIGN)  # by `debezium.read`
    if isinstance(given, (*_WHOLE, T.DecimalType, T.FloatType, T.DoubleType)):
        return _sign_of(value, value.isin(1), value.isin(-1), F.lit(False), table, op, faults)
    if not isinstance(given, T.StringType):
        raise DataError(
            f"table {table}: the column {op} is {given.simpleString()}; operations are text or numbers: {OPS}, 1 or -1"
        )
    word = F.lower(F.trim(value))
    comes = word.isin(*COMES, *(EITHER if keyed else ()))
    plain = F.when(value == "+", F.lit(1)).when(value == "-", F.lit(-1))  # nearly all are, and need no other text
    return _sign_of(value, comes, word.isin(*GOES), word.isin(*EITHER), table, op, faults, plain.cast("tinyint"))


def _sign_of(
    value: Any, comes: Any, goes: Any, either: Any, table: str, op: str, faults: Faults, plain: Any | None = None
) -> Any:
    """Return the sign by what says that a row comes, or goes; `plain` is the sign where it is known without."""
    shown = F.coalesce(F.concat(F.lit("'"), F.substring(value.cast("string"), 1, 80), F.lit("'")), F.lit("NULL"))
    unknown = F.concat(F.lit(f"table {table}, column {op}: "), shown, F.lit(f" is no operation; there are {OPS}"))
    keyless = F.concat(
        F.lit(f"table {table}, column {op}: "),
        shown,
        F.lit(f" {KEYLESS}"),
    )
    plus, minus = F.lit(1).cast("tinyint"), F.lit(-1).cast("tinyint")
    known = F.coalesce(comes, F.lit(False)) | F.coalesce(goes, F.lit(False))
    said = F.when(F.coalesce(either, F.lit(False)), keyless).otherwise(unknown)
    sign = F.when(comes, plus).otherwise(minus)
    if plain is None:
        return faults.unless(~known, said, sign, "tinyint").alias(SIGN)
    return F.coalesce(plain, faults.unless(plain.isNull() & ~known, said, sign, "tinyint")).alias(SIGN)


def raised_in_sql(error: PySparkException) -> DataError | None:
    """Return the error that `raise_error` caused."""
    if error.getCondition() != "USER_RAISED_EXCEPTION":
        return None
    return DataError((error.getMessageParameters() or {}).get("errorMessage", str(error)))
