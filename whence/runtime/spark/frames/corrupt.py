"""Find what Spark's readers of JSON and CSV could not read.

By default these readers are permissive: a value that is not of its column's type, or a whole line, becomes NULL without
a word. They tell only if the schema has a column `_corrupt_record` for the text of such a record. So a DataFrame that
is such a reader's, and has none, is read again with that column; one in which the reader lies beneath other operations
cannot be, and a warning says what to write.
"""

from __future__ import annotations

import logging
from typing import Any

from whence.runtime.spark.frames.columns import CORRUPT

log = logging.getLogger("whence")
_READERS = ("json", "csv", "xml")


def with_corrupt_records(df: Any, what: str) -> Any:
    """Return the DataFrame with a column for what its reader cannot read, if it is a permissive one."""
    if CORRUPT in df.columns or type(df).__module__.startswith("pyspark.sql.connect"):
        return df
    plan = df._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    readers = [reader for i in range(leaves.size()) if (reader := _reader(leaves.apply(i))) is not None]
    if not readers:
        return df
    if plan.children().size():
        log.warning(
            "%s: Spark makes NULL of what its %s reader cannot read, and says so only if the schema has a column %s: "
            "add it, or .option('mode', 'FAILFAST')",
            what,
            readers[0][0],
            CORRUPT,
        )
        return df
    format, options, paths = readers[0]
    spark = df.sparkSession
    reader = (spark.readStream if df.isStreaming else spark.read).format(format).options(**options)
    schema = type(df.schema)([*df.schema.fields]).add(CORRUPT, "string")
    return reader.schema(schema).load(paths) if paths else reader.schema(schema).load()


def _reader(leaf: Any) -> tuple[str, dict[str, str], Any] | None:
    """Return format, options and paths of a permissive reader that a plan begins with, or None for anything else."""
    kind = str(leaf.getClass().getSimpleName())
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        format, options, paths = str(source.className()).lower(), _options(source.options()), None
    elif kind == "LogicalRelation" and str(leaf.relation().getClass().getSimpleName()) == "HadoopFsRelation":
        relation = leaf.relation()
        format = str(relation.fileFormat().toString()).lower()
        options, roots = _options(relation.options()), relation.location().rootPaths()
        paths = [str(roots.apply(i).toString()) for i in range(roots.size())]
        options.pop("path", None)
    else:
        return None
    if format not in _READERS or any(name.lower() in ("mode", "columnnameofcorruptrecord") for name in options):
        return None
    return format, options, paths


def _options(given: Any) -> dict[str, str]:
    """Return a map of Scala as a dict."""
    found, entries = {}, given.iterator()
    while entries.hasNext():
        entry = entries.next()
        found[str(entry._1())] = str(entry._2())
    return found
