"""The errors that users see. Each says what was wrong, where, and what to do; nothing has changed when one is
raised."""

from __future__ import annotations

from typing import Any


class WhenceError(Exception):
    """Any error that Whence raises on purpose: catch it to catch all of them. Nothing has changed when one is raised.

    >>> db = whence.open()
    >>> try: db.insert("ghost", [(1,)])
    ... except whence.WhenceError as error: print(error)
    there is no table "ghost"
    """

    transient: str = ""  # the fingerprint of the operator that failed, if only views of subscriptions need it

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.args, dict(self.__dict__))


def _again(kind: type[WhenceError], args: tuple[object, ...], state: dict[str, object]) -> WhenceError:
    """Rebuild an error that comes from another process, whatever its constructor takes."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class SqlError(WhenceError):
    """SQL that cannot be read, bound or planned. Correct the statement at the place that the message names.

    message       what is wrong, without the place
    line, column  where it is, from 1; None if it is about the whole
    text          the SQL there

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> try: db.query("SELECT y FROM a")
    ... except whence.SqlError as error: print(error, [error.line, error.column, error.text])
    line 1, column 8: unknown column "y" (near 'y') [1, 8, 'y']
    """

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, text: str | None = None):
        self.message, self.line, self.column, self.text = message, line, column, text
        place = f"line {line}, column {column}: " if line is not None else ""
        near = f" (near {text!r})" if text else ""
        super().__init__(f"{place}{message}{near}")


class NotStratifiable(SqlError):  # noqa: N818  # the field's own word
    """A view depends on itself through negation or an aggregate other than MIN and MAX; the message names the cycle.
    Compute what is negated or aggregated in a view that does not depend on this one.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> try: db.execute("CREATE VIEW odd AS SELECT x FROM a WHERE x NOT IN (SELECT x + 1 FROM odd)")
    ... except whence.NotStratifiable as error: print(str(error)[:54])
    the recursion odd -> odd goes through NOT EXISTS or NO
    """


class CatalogError(WhenceError):
    """A table or view that is missing, exists already, or still has dependents; the message names them. Check the name
    against `db.tables` and `db.views`, or drop the dependents first.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> try: db.execute("DROP TABLE a")
    ... except whence.CatalogError as error: print(error)
    b depends on "a"; drop them first, or use CASCADE
    """


class MovedError(CatalogError):
    """A view that is at another server now (`whence move`). A client that was told of that server, by `also`, goes on
    there; else connect to it.

    url  the address of the server

    >>> MovedError('"high" has moved to http://127.0.0.1:8081', "http://127.0.0.1:8081").url
    'http://127.0.0.1:8081'
    """

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


class DataError(WhenceError):
    """A row that does not fit its table: a wrong number of values, a wrong type, out of range; the message names table,
    row and column. Correct the row, or insert with `on_error="skip"` or `"reject"` to leave such rows out.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> try: db.insert("a", [(1,), ("one",)])
    ... except whence.DataError as error: print(error)
    table a, row 2, column x: 'one' (str) is not a value of type INTEGER
    """


class MissingRowError(DataError):
    """Under `early="error"` or `strict=True`, a row to delete that is not there. Nothing is deleted.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> try: db.delete("a", (7,), strict=True)
    ... except whence.MissingRowError as error: print(error)
    table a: no row (7,) to delete
    """


class EvaluationError(WhenceError):
    """An expression failed on a row: an overflow, a cast, a Python function that raised. The whole batch is undone.
    Correct the row, or make the view's expression accept it, as TRY_CAST does.

    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE a (x TEXT); CREATE VIEW b AS SELECT CAST(x AS INT) AS n FROM a")
    >>> try: db.insert("a", [("7",), ("seven",)])
    ... except whence.EvaluationError as error: print(error, len(db["a"]))
    cannot be read as INTEGER in CAST(#0 AS INTEGER) with 'seven' 0
    """


class FetchError(WhenceError):
    """A row of a lookup that could not be fetched: the outside failed, took longer than its `timeout`, or gave what is
    no row. The epoch that asked for it is undone. Try again when the outside is back.

    lookup  the lookup
    key     the key whose row was asked for, or a list of them if they were asked for together

    >>> db = whence.open()
    >>> db.create_lookup("rate", {"EUR": 1.0}.__getitem__, key="TEXT", returns="DOUBLE", memory="300 rows")
    >>> _ = db.execute("CREATE STREAM t (paid TEXT); CREATE VIEW v AS SELECT value FROM t JOIN rate ON paid = key")
    >>> try: db.insert("t", [("EUR",), ("XYZ",)])
    ... except whence.FetchError as error: print(error, len(db["t"]))
    the row of 'XYZ' was not fetched, which rate was asked for: KeyError: 'XYZ' 0
    """

    def __init__(self, lookup: str, key: Any, why: str) -> None:
        self.lookup, self.key = lookup, key
        shown = f"{len(key)} keys" if isinstance(key, list) else repr(key)
        what = "rows of" if isinstance(key, list) else "row of"
        super().__init__(
            f"the {what} {shown:.100} {'were' if isinstance(key, list) else 'was'} not fetched, "
            f"which {lookup} was asked for: {why}"
        )


class RecursionLimitError(WhenceError):
    """A recursive view did not end within its limit; the message names the view and an input row that brings it about.
    Bound the recursion, or raise `recursion_limit` of `whence.open` if it is meant to go deeper.

    >>> db = whence.open(recursion_limit=1000)
    >>> _ = db.execute("CREATE TABLE a (n INT); CREATE VIEW b AS SELECT n FROM a UNION SELECT n + 1 FROM b")
    >>> try: db.insert("a", (1,))
    ... except whence.RecursionLimitError as error: print(str(error)[:47])
    the recursive view b does not end: more than 1,
    """


class StorageError(WhenceError):
    """A file operation failed: the disk is full or read-only, a file vanished, there is no database. The message names
    the file and the cause. What was acknowledged before stays committed; once the cause is gone, open the database
    again.

    >>> try: whence.open("nowhere.db", read_only=True)
    ... except whence.StorageError as error: print(str(error).split(": ")[-1])
    there is no database here
    """


class CorruptionError(StorageError):
    """A damaged file of a database. `whence.check` lists all that is damaged; restore the folder from a backup.

    path    the file
    offset  where in it, in bytes

    >>> from pathlib import Path
    >>> with whence.open("damaged.db") as db: _ = db.execute("CREATE TABLE a (x INT)")
    >>> _ = Path("damaged.db/MANIFEST").write_bytes(b"?" * 40)
    >>> try: whence.open("damaged.db")
    ... except whence.CorruptionError as error: print(error.path.name, error.offset)
    MANIFEST 0
    """

    def __init__(self, path: object, offset: int, what: str):
        super().__init__(f"{path}, offset {offset}: {what}")
        self.path, self.offset = path, offset


class LockedError(StorageError):
    """Another process, or another `whence.open` of this one, has the database open for writing; the message names it.
    Wait until it is closed, or open the database with `read_only=True`.

    >>> with whence.open("locked.db") as db:
    ...     try: whence.open("locked.db")
    ...     except whence.LockedError as error: print("written to by this process" in str(error))
    True
    """


class OutOfMemoryError(MemoryError, WhenceError):
    """An epoch that needs more memory than there is; it is undone. The message names the partition, what it holds and
    what to do: insert fewer rows at a time, use more partitions, or give the workers more memory. Also a MemoryError.

    >>> def load(db, rows):
    ...     try: return db.insert("a", rows)
    ...     except whence.OutOfMemoryError: return load(db, rows[::2]) + load(db, rows[1::2])
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); load(db, [(1,), (2,)])
    2
    """


class LimitError(WhenceError):
    """More than a limit of a server or of a query allows: writes that wait, rows, bytes, memory. The message names the
    limit. Nothing has happened: send less at a time, ask for less, or try again later.

    >>> from whence.server.writing.write_queue import WriteQueue
    >>> with whence.open() as db:
    ...     queue = WriteQueue(db, most_writes=0)
    ...     try: queue.submit(lambda db: db.insert("a", (1,)), print)
    ...     except whence.LimitError as error: print(error)
    ...     queue.close()
    0 writes wait already, and no more than 0 may: try again later
    """


class AuthenticationError(WhenceError):
    """A server knows no valid token of the caller: there is none, or it is wrong, expired or revoked; the message does
    not say which. Ask who runs the server for a token.

    >>> from whence.server.access.tokens import Tokens
    >>> try: Tokens(None).check("guessed")
    ... except whence.AuthenticationError as error: print(error)
    the token is missing, wrong or expired
    """


class ForbiddenError(WhenceError):
    """Something that the caller has no right to (docs/serving.md). A table or view that one may not read at all is not
    forbidden: it looks as if it did not exist.

    >>> from whence.server.access.rights import Rights
    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE sale (item TEXT); CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
    >>> _ = db.insert("allowed", ("ann", "sale", "read"))
    >>> try: Rights(db).check("ann", "sale", "insert")
    ... except whence.ForbiddenError as error: print(error)
    you may not insert into "sale"
    """


class DisconnectedError(WhenceError):
    """A served database that cannot be reached, or was lost before it answered. A read may be asked again. The message
    says so if the outcome of a write is not known; those that a client numbers are sent again by itself, once the
    server is back.

    >>> try: whence.connect("http://127.0.0.1:9", timeout=0)
    ... except whence.DisconnectedError as error: print(str(error).partition(": ")[0])
    no connection to ws://127.0.0.1:9/v1/ws within 0 s
    """


class SparkError(WhenceError):
    """Spark or its Java failed, or is not there; the message has the cause in one line, and `__cause__` is the error
    itself.

    >>> db = whence.open(spark=whence.spark_session("local[2]"))  # doctest: +SKIP
    >>> _ = db.execute("CREATE TABLE a (x INT)"); sink = db.changes_to("a", lambda df, epoch: 1 / 0)  # doctest: +SKIP
    >>> try: db.insert("a", (1,))  # doctest: +SKIP
    ... except whence.SparkError as error: print(str(error)[:64], repr(error.__cause__))
    epoch 1 is committed, but the sink a did not take its changes of ZeroDivisionError('division by zero')
    >>> sink.stop(); db.close()  # doctest: +SKIP
    """


class ReplayError(WhenceError):
    """A replay did not give what a view has published, since a Python function it calls is not deterministic. The
    message names the view, the result and the way out: declare the function with `deterministic=False`, and trace the
    view with `provenance = 'lineage'`.

    >>> db, calls = whence.open(), []
    >>> db.create_function("seen", lambda x: calls.append(x) or len(calls), args=["INT"], returns="INT")
    >>> _ = db.execute("CREATE STREAM s (x INT); CREATE VIEW v WITH (provenance = 'covering') AS "
    ...                "SELECT SUM(x) AS n FROM slide((SELECT x FROM s WHERE seen(x) < 4), rows => 2, every => 1)")
    >>> _ = db.insert("s", [(1,), (2,), (3,)])
    >>> try: db.why("v", tid=1)
    ... except whence.ReplayError as error: print(str(error)[:49])
    a replay of v did not give result 1 as it was pub
    """


class ExpiredError(WhenceError):
    """A question about rows of a stream that it no longer retains. Retain more: `CREATE STREAM … WITH (retain = …)`.

    >>> db = whence.open()
    >>> _ = db.execute("CREATE STREAM s (x INT) WITH (retain = '2 rows'); CREATE VIEW v AS SELECT x FROM s WHERE x > 0")
    >>> _ = db.insert("s", [(1,), (2,), (3,)])
    >>> try: db.trace("s", 1)
    ... except whence.ExpiredError as error: print(error)
    stream s no longer has tid 1: tid 2 is the first it still keeps (retain = '2 rows')
    """


class QuestionTimeout(WhenceError, TimeoutError):  # noqa: N818  # as TimeoutError
    """A question that was not answered within its `timeout`. Ask about fewer rows, or allow more time.

    seconds  the timeout
    reached  what was being done when the time was up
    done     how much of that was done
    total    of how much, or 0 if that is not known

    >>> db = whence.open()
    >>> _ = db.execute("CREATE TABLE t (x INT); CREATE VIEW v AS SELECT x FROM t WHERE x > 0")
    >>> _ = db.insert("t", [(1,)])
    >>> try: db.why("v", x=1, timeout=0)
    ... except whence.QuestionTimeout as error: print(error.seconds)
    0.0
    """

    def __init__(self, seconds: float, reached: str, done: int, total: int):
        self.seconds, self.reached, self.done, self.total = seconds, reached, done, total
        part = f" ({done:,} of {total:,})" if total else ""
        came = f"it came to: {reached}{part}" if reached else "it had not begun"
        super().__init__(
            f"not answered within {seconds:g} s; {came}. Ask about fewer rows, or allow more time with timeout="
        )
