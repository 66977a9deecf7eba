"""Paths of files and folders, distinguished from URLs.

Whence reads and writes files of file systems that this machine has mounted. `Path("s3a://bucket/db")` is a relative
path to Python, so without a check a URL becomes a local folder `./s3a:/bucket/db`. A `file:` URL is a path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from whence.model.errors import StorageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # with one slash, too: Path() leaves one. One letter is a drive: C:/
_FILE = re.compile(r"file:(//(localhost)?)?(/[^/].*|/)", re.IGNORECASE | re.DOTALL)
_NO_TEXT = "{:.300} was a URL before it became a Path: give it as text"


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return the path that is given, as it is or as a `file:` URL; any other URL is a StorageError.

    >>> local_path("net.db").name, local_path("file:///data/my%20db").as_posix()
    ('net.db', '/data/my db')
    >>> local_path("s3a://bucket/db")
    Traceback (most recent call last):
    whence.model.errors.StorageError: s3a://bucket/db is a URL, and Whence takes paths of local or mounted file systems
    """
    text = os.fspath(given)
    if not _URL.match(text):
        return Path(given)
    if not text.lower().startswith("file:"):
        raise StorageError(f"{text:.300} is a URL, and Whence takes paths of local or mounted file systems")
    if not isinstance(given, str):
        raise StorageError(_NO_TEXT.format(text))  # of file://host/db and file:///host/db Path() makes the same
    found, parts = _FILE.fullmatch(text), urlsplit(text)
    if found is None or parts.query or parts.fragment:
        raise StorageError(f"{text:.300} is not the URL of a local file, such as file:///data/net.db")
    return Path(unquote(found[3]))


def spark_path(given: str | os.PathLike[str]) -> str:
    """Return a place that Spark reads or writes, which may be any URL that Spark understands; not one that `Path()` has
    taken a slash from.

    >>> spark_path("s3a://bucket/out")
    's3a://bucket/out'
    """
    text = os.fspath(given)
    if not isinstance(given, str) and _URL.match(text):
        raise StorageError(_NO_TEXT.format(text))
    return text
