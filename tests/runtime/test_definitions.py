"""IF NOT EXISTS over another definition, and paths that are URLs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whence
from whence.cli import app
from whence.model.errors import StorageError
from whence.model.paths import local_path

SCRIPT = """
    CREATE TABLE t (a INT PRIMARY KEY, b TEXT NOT NULL) WITH (ttl = '60 s');
    CREATE STREAM s (a INT) WITH (retain = '10 rows');
    CREATE VIEW v (x) WITH (recursion_limit = '7') AS SELECT a FROM t WHERE b = 'x';
"""


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE IF NOT EXISTS T (A integer PRIMARY KEY, b VARCHAR NOT NULL) WITH (ttl = '60 s')",
        "CREATE STREAM IF NOT EXISTS s (a INT) WITH (retain = '10 rows')",
        "CREATE VIEW IF NOT EXISTS v (x) WITH (recursion_limit = '7') AS\n  select a -- so\n  from T where B = 'x'",
    ],
)
def test_equal_definition_exists_quietly(sql: str, caplog: pytest.LogCaptureFixture) -> None:
    with whence.open() as db, caplog.at_level(logging.WARNING, "whence"):
        db.execute(SCRIPT)
        result = db.execute(sql)
    assert result.message.endswith("exists already")
    assert (result.warnings, caplog.messages) == ((), [])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "TABLE IF NOT EXISTS t (a INT PRIMARY KEY, b TEXT) WITH (ttl = '60 s')",
            "table t exists already",
        ),
        ("TABLE IF NOT EXISTS t (a INT, b TEXT NOT NULL) WITH (ttl = '60 s')", "table t exists already"),
        ("TABLE IF NOT EXISTS t (a INT PRIMARY KEY, b TEXT NOT NULL)", "table t exists already"),
        ("STREAM IF NOT EXISTS s (a INT) WITH (retain = '11 rows')", "stream s exists already with another definition"),
        ("STREAM IF NOT EXISTS s (a BIGINT) WITH (retain = '10 rows')", "stream s exists already with another"),
        ("VIEW IF NOT EXISTS v AS SELECT a FROM t WHERE b = 'x'", "view v exists already with another definition"),
        ("VIEW IF NOT EXISTS v (x) AS SELECT a FROM t WHERE b = 'x'", "(CREATE OR REPLACE VIEW replaces it)"),
        ("VIEW IF NOT EXISTS v (x) WITH (recursion_limit = '7') AS SELECT a FROM t WHERE b = 'y'", "which stays"),
    ],
)
def test_other_definition_is_told(sql: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with whence.open() as db, caplog.at_level(logging.WARNING, "whence"):
        db.execute(SCRIPT)
        before = db.statements
        result = db.execute(f"CREATE {sql}")
        assert db.statements == before
    assert said in result.message
    assert list(result.warnings) == caplog.messages == [result.message]


def test_other_definition_in_one_script_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sql = "CREATE VIEW IF NOT EXISTS a AS SELECT 1 AS x; CREATE VIEW IF NOT EXISTS a AS SELECT 2 AS x"
    with whence.open(tmp_path / "db") as db:
        result = db.execute(sql)
        assert result.message.startswith("view a created; view a exists already with another definition")
        assert db["a"].rows == [(1,)]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "whence"), whence.open(tmp_path / "db") as db:
        assert db["a"].rows == [(1,)]
    assert caplog.messages == []  # reopening declares nothing


@pytest.mark.parametrize("url", ["s3a://bucket/db", "hdfs://host:9000/db", "dbfs:/db", "HTTPS://x/y", "gs://b/db"])
def test_urls_are_refused_everywhere(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (a INT)")
        db.insert("t", [(1,)])
        tries = [
            lambda given: whence.open(given),
            lambda given: whence.open(given, partitions=2),
            lambda given: whence.open(given, read_only=True),
            db.backup,
            db.export,
            lambda given: whence.backup(tmp_path / "db", given),
            lambda given: whence.backup(given, tmp_path / "copy"),
            whence.check,
            lambda given: whence.import_database(given, tmp_path / "new"),
            lambda given: db["t"].write(f"{given}.csv"),
            lambda given: db.insert("t", Path(f"{given}.csv")),
            lambda given: db.why("t", a=1).to_html(given),
        ]
        for number, one in enumerate(tries):
            for given in (url, Path(url)):
                with pytest.raises(StorageError, match="URL"):
                    one(given)  # type: ignore[arg-type]
                assert sorted(p.name for p in tmp_path.iterdir()) == ["db"], number
    commands = (["info", url], ["check", url], ["backup", "db", url], ["export", "db", url], ["sql", "--db", url])
    for command in (*commands, ["why", url, "t", "a=1"], ["run", "--db", "db", "-s", f"t={url}/x.csv"]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, "URL" in result.output) == (1, True), (command, result.output)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db"]


def test_file_url_is_a_path(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/my%20db", f"file:{tmp_path}/my%20db", f"FILE://localhost{tmp_path}/my%20db"):
        with whence.open(url) as db:
            assert db.path == tmp_path / "my db"
    assert [p.name for p in tmp_path.iterdir()] == ["my db"]


def test_drive_letters_and_colons_are_paths() -> None:
    for text in ("C:/data/db", r"C:\data\db", "a:b", "./x:/y", "/s3a:/x", "db"):
        assert local_path(text) == Path(text)
    for text in ("file://", "file://host", "file://host/db", "file:///a?b", "file:///a#b"):
        with pytest.raises(StorageError, match="is not the URL of a local file"):
            local_path(text)
