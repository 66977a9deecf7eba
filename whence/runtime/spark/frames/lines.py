"""Find the lines of rejected records: Spark's readers report the file of a record, but not its line.

A file with rejected records is read once more, as text. A line is a record's if it is its text, or says the same: an
object of JSON with the same members, or a line of CSV with the same values by its header.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from whence.io.files import Reject

Key = str | tuple[tuple[str, str], ...]


def numbered(spark: Any, rejects: Sequence[Reject]) -> list[Reject]:
    """Return the rejects with their lines, where they are of text files; others keep None."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for at, reject in enumerate(rejects):
        if reject.file and reject.record and PurePosixPath(reject.file).suffix.lower() in (".json", ".jsonl", ".csv"):
            by_file[reject.file].append(at)
    out = list(rejects)
    for file, places in by_file.items():
        lines = spark.sparkContext.textFile(file).zipWithIndex()
        header = _fields(lines.keys().first()) if file.lower().endswith(".csv") else None
        wanted = {_key(rejects[at].record or "", None) for at in places}
        matching = lines.map(lambda line, header=header: (_key(line[0], header), line[1] + 1)).filter(
            lambda line, wanted=wanted: line[0] in wanted
        )
        found: dict[Key, list[int]] = defaultdict(list)
        for key, line in sorted(matching.collect(), key=lambda pair: -pair[1]):
            found[key].append(line)
        for at in places:
            left = found.get(_key(rejects[at].record or "", None))
            if left:
                out[at] = rejects[at]._replace(line=left.pop(), file=file)
    return out


def _key(text: str, header: Sequence[str] | None) -> Key:
    """Return what a record is known by, whether it is shown as its text or as JSON of its columns.

    >>> _key("a,1", ["src", "cost"]) == _key('{"cost": "1", "src": "a"}', None)
    True
    """
    text = text.strip()
    if header is not None:
        return _members(dict(zip(header, _fields(text), strict=False)))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _members(found) if isinstance(found, dict) else text


def _members(found: dict[str, Any]) -> Key:
    def shown(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    return tuple(sorted((name, shown(value)) for name, value in found.items() if value not in (None, "")))


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]), [])
