"""Rights of the callers of a server: what the rows of `allowed` give, and to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import whence
from tests.server.restricted_worlds import DEFINED, Worlds, whole_database
from whence.server.access.grants import Grants
from whence.server.access.rights import Rights
from whence.sql.parse import parse_one, parse_query
from whence.sql.reader import WhenceDialect

EVERYTHING = "CREATE TABLE a (x INT, owner TEXT); CREATE TABLE b (y INT); CREATE VIEW c AS SELECT x FROM a"
ALLOWED = "CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)"


@pytest.fixture
def worlds() -> Iterator[Worlds]:
    found = Worlds()
    yield found
    found.close()


def database(*allowed: tuple[str, str, str]) -> tuple[whence.Database, Rights]:
    db = whence.open()
    db.execute(f"{EVERYTHING}; {ALLOWED}")
    db.insert("allowed", list(allowed))
    return db, Rights(db)


# -- who may -----------------------------------------------------------------------------------------------------------


def test_without_the_relation_everyone_may_do_everything() -> None:
    db = whence.open()
    db.execute(EVERYTHING)
    rights = Rights(db)
    assert rights.may("anyone", "a", "define")
    assert rights.may("anyone", "*", "define")
    assert rights.visible("anyone") == ["a", "b", "c"]
    rights.check("anyone", "*", "define")
    query = parse_query("SELECT * FROM a").query
    assert rights.check_subscription("anyone", query) is query


def test_owner_and_callers_in_the_process_may_do_everything() -> None:
    db, _ = database()
    rights = Rights(db, owner="owner")
    for who in (None, "owner"):
        assert rights.may(who, "*", "define")
        assert rights.visible(who) == ["a", "b", "allowed", "c"]
        assert rights.writes_freely(who, "allowed")
    for who in ("ann", "Owner", ""):
        assert rights.visible(who) == []
    assert Rights(db).visible("owner") == []  # a token file may name anyone so


@pytest.mark.parametrize(
    ("what", "has"), [("read", ["read"]), ("insert", ["read", "insert"]), ("define", ["read", "insert", "define"])]
)
def test_greater_rights_include_lesser(what: str, has: list[str]) -> None:
    _, rights = database(("ann", "a", what))
    assert [each for each in ("read", "insert", "define") if rights.may("ann", "a", each)] == has  # type: ignore[arg-type]
    assert not rights.may("bob", "a", "read")
    assert not rights.may("ann", "b", "read")
    assert not rights.may("ann", "*", "read")


def test_stars_are_everyone_and_everything() -> None:
    _, rights = database(("*", "a", "read"), ("ann", "*", "insert"), ("eve", "*", "define"))
    assert rights.visible("anyone") == ["a"]
    assert rights.may("ann", "b", "insert")
    assert rights.may("ann", "*", "insert")
    assert not rights.may("ann", "*", "define")
    assert rights.may("eve", "*", "define")
    assert rights.visible("*") == ["a"]  # a caller whose name is a star is nobody in particular


def test_names_of_relations_have_no_case_and_those_of_callers_do() -> None:
    _, rights = database(("Ann", "A", "READ"))
    assert rights.may("Ann", "a", "read")
    assert rights.may("Ann", "A", "read")
    assert not rights.may("ann", "a", "read")


def test_rows_that_cannot_be_read_grant_nothing(caplog: pytest.LogCaptureFixture) -> None:
    wrong = ["", "reads", "read x > 1", "readwhere x > 1", "define where x > 1", "write", "read; insert", "read where"]
    grants = Grants(
        [*(("ann", "a", what) for what in wrong), ("ann", "a", None), (None, "a", "read"), ("ann", None, "read")]
    )
    assert not grants.extent("ann", "a", "read")
    assert "grants nothing" in caplog.text
    _, rights = database(*(("ann", "a", what) for what in wrong))
    assert rights.visible("ann") == []


def test_rights_add_up() -> None:
    grants = [("ann", "a", "read where x = 1"), ("*", "a", "read where x = 2"), ("ann", "*", "insert where x = 3")]
    db, rights = database(*grants)
    db.insert("a", [(x, "") for x in range(6)])
    condition = rights.condition("ann", "a")
    assert condition is not None
    assert sorted(row[0] for row in db.query(f"SELECT x FROM a WHERE {condition.sql(dialect=WhenceDialect)}")) == [
        1,
        2,
        3,
    ]
    assert not rights.writes_freely("ann", "a")
    assert rights.held("ann") == {"a": {"read": "some", "insert": "some"}, "c": {"read": "some", "insert": "some"}}
    db.insert("allowed", ("ann", "a", "read"))
    assert rights.condition("ann", "a") is None
    assert rights.held("ann")["a"] == {"read": "all", "insert": "some"}


def test_who_in_a_condition_is_a_value_and_never_sql() -> None:
    who = "x' OR 'a' = 'a"
    db, rights = database(("*", "a", "read where owner = :who"))
    db.insert("a", [(1, "ann"), (2, who), (3, ":who")])
    tree = rights.restricted(who, parse_query("SELECT x FROM a").query)
    assert whence.Result(db._coordinator.reader.query(tree)).rows == [(2,)]
    assert rights.condition(who, "a").sql() == "owner = 'x'' OR ''a'' = ''a'"  # type: ignore[union-attr]


# -- '*' does not reach what rights come from --------------------------------------------------------------------------


def test_star_is_not_enough_to_write_to_what_rights_come_from() -> None:
    db = whence.open()
    db.execute(
        f"{EVERYTHING}; CREATE TABLE base (who TEXT, name TEXT, what TEXT); CREATE TABLE team (who TEXT, x INT); "
        "CREATE TABLE publishers (id TEXT, last BIGINT, failed TEXT); "
        "CREATE VIEW allowed AS SELECT DISTINCT who, name, what FROM base"
    )
    db.insert(
        "base", [("ann", "*", "insert"), ("bob", "a", "read where x IN (SELECT x FROM team WHERE team.who = :who)")]
    )
    rights = Rights(db)
    assert rights.may("ann", "base", "read")
    for name in ("base", "team", "publishers"):
        assert not rights.may("ann", name, "insert")
        with pytest.raises(whence.ForbiddenError, match=f'^you may not insert into "{name}"$'):
            rights.check("ann", name, "insert")
    assert rights.may("ann", "b", "insert")
    db.insert("base", [("ann", "team", "insert"), ("eve", "*", "define")])
    assert rights.may("ann", "team", "insert")  # by name
    assert rights.may("eve", "base", "insert")
    with pytest.raises(whence.ForbiddenError):
        rights.guarded("ann", lambda db: db.insert("base", ("ann", "*", "define")))(db)
    assert not rights.may("ann", "*", "define")


# -- hidden is missing -------------------------------------------------------------------------------------------------


STATEMENTS = [
    "SELECT * FROM {}",
    "INSERT INTO {} VALUES (1)",
    "INSERT INTO plain SELECT id, owner FROM {}",
    "DELETE FROM {}",
    "DELETE FROM plain WHERE id IN (SELECT id FROM {})",
    "UPDATE {} SET id = 1",
    "UPDATE plain SET id = (SELECT MAX(id) FROM {})",
    "UPDATE plain SET id = 1 WHERE EXISTS (SELECT 1 FROM {})",
    "DESCRIBE {}",
    "EXPLAIN {}",
    "EXPLAIN SELECT * FROM {}",
]


def said(run: Callable[..., object], *args: object) -> tuple[str, str]:
    with pytest.raises(whence.WhenceError) as error:
        run(*args)
    return type(error.value).__name__, str(error.value)


@pytest.mark.parametrize(
    "name", ["secret", "secrt", "member", "allowed", "secret_view", "noote", "nosuch", "Secret", "x" * 200]
)
def test_checks_say_of_a_hidden_relation_what_is_said_of_a_missing_one(worlds: Worlds, name: str) -> None:
    rights, seen = worlds.rights, worlds.seen["ann"]
    reading = said(lambda: seen[name].rows)
    assert said(rights.check, "ann", name, "read") == reading
    assert said(rights.check, "ann", name, "define") == reading
    assert said(rights.check_question, "ann", name) == reading
    assert said(rights.check_trace, "ann", name) == reading
    assert said(rights.condition, "ann", name) == reading
    assert said(rights.explain, "ann", name, None, {"id": 1}) == reading
    assert said(rights.check, "ann", name, "insert") == said(lambda: seen.insert(name, (1,)))
    assert said(rights.check_where, "ann", name, "id = 1") == said(lambda: seen.delete(name, where="id = 1"))
    quoted = f'"{name}"'
    worlds.whole.insert("allowed", ("ann", "plain", "insert"))
    for sql in STATEMENTS:
        sql = sql.format(quoted)
        assert said(rights.check_statement, "ann", parse_one(sql)) == said(seen.execute, sql), sql
    for text in (
        f"SELECT * FROM {quoted}",
        f"SELECT id FROM {quoted}",
        f"SELECT id FROM plain JOIN {quoted} USING (id)",
    ):
        wanted = said(lambda text=text: list(seen.subscribe(text)))
        assert said(rights.check_subscription, "ann", parse_query(text).query) == wanted


def test_forbidden_is_what_is_seen_and_may_not_be_done(worlds: Worlds) -> None:
    rights = worlds.rights
    for what, text in (("insert", "insert into"), ("define", "define views of")):
        assert said(rights.check, "ann", "plain", what) == ("ForbiddenError", f'you may not {text} "plain"')
    assert said(rights.check, "ann", "*", "define")[0] == "ForbiddenError"
    assert said(rights.check, "eve", "secret_view", "insert")[0] == "CatalogError"  # a view
    rights.check("eve", "*", "define")


# -- subscriptions -----------------------------------------------------------------------------------------------------

READ = [
    "SELECT * FROM note",
    "SELECT id FROM note",
    "SELECT id + 1 AS n, upper(body) AS b FROM note AS x WHERE x.id > 1 AND body LIKE 'a%'",
    "SELECT note.* FROM note WHERE owner IN ('ann', 'bob')",
    "SELECT CASE WHEN id > 1 THEN 'a' END AS c FROM note",
    "FROM note",
]
DEFINE = [
    "SELECT DISTINCT id FROM note",
    "SELECT COUNT(*) FROM note",
    "SELECT MAX(id) AS m FROM note",
    "SELECT SUM(DISTINCT id) AS m FROM note",
    "SELECT id FROM note GROUP BY id",
    "SELECT id FROM note ORDER BY id",
    "SELECT id FROM note LIMIT 1",
    "SELECT id FROM note OFFSET 1",
    "SELECT id FROM note HAVING TRUE",
    "SELECT a.id FROM note AS a JOIN note AS b ON a.id = b.id",
    "SELECT a.id FROM note AS a, note AS b",
    "SELECT id FROM note WHERE id IN (SELECT id FROM plain)",
    "SELECT id FROM note WHERE EXISTS (SELECT 1 FROM plain)",
    "SELECT (SELECT MAX(id) FROM plain) AS m FROM note",
    "SELECT id FROM (SELECT id FROM note) AS x",
    "WITH x AS (SELECT id FROM note) SELECT id FROM x",
    "SELECT id FROM note UNION SELECT id FROM plain",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM note",
    "SELECT * FROM latest(open_event, rows => 1)",
    "SELECT COUNT(*) AS n FROM slide(open_event, rows => 1, every => 1)",
    "SELECT id FROM note TABLESAMPLE 10%",
    "SELECT first(id) AS f FROM note",
    "SELECT 1 AS one",
    "VALUES (1)",
    "(SELECT id FROM note)",
]


def test_right_that_a_subscription_takes() -> None:
    assert {sql for sql in READ if Rights.kind_of_subscription(parse_query(sql).query) != "read"} == set()
    assert {sql for sql in DEFINE if Rights.kind_of_subscription(parse_query(sql).query) != "define"} == set()


@pytest.mark.parametrize("sql", READ)
def test_subscription_by_read_has_the_rows_that_may_be_read(worlds: Worlds, sql: str) -> None:
    tree = worlds.rights.check_subscription("ann", parse_query(sql).query)
    subscription = worlds.whole.subscribe(tree.sql(dialect=WhenceDialect))
    [first] = subscription
    assert sorted(first.rows, key=str) == sorted(worlds.seen["ann"].query(sql).rows, key=str)
    for db in (worlds.whole, worlds.seen["ann"]):
        db.insert("note", [(70, "ann", "apple")])
    worlds.whole.insert("note", [(71, "bob", "apple"), (72, None, "apple")])
    found = [first, *subscription][-1].rows
    assert sorted(found, key=str) == sorted(worlds.seen["ann"].query(sql).rows, key=str)
    subscription.close()


def test_subscription_with_a_condition_over_another_relation_follows_it(worlds: Worlds) -> None:
    tree = worlds.rights.check_subscription("ann", parse_query("SELECT points FROM task").query)
    subscription = worlds.whole.subscribe(tree.sql(dialect=WhenceDialect))
    assert sorted(list(subscription)[-1].rows) == [(1,), (2,)]
    worlds.whole.insert("member", ("ann", "blue"))
    worlds.whole.delete("member", ("ann", "red"))
    assert list(subscription)[-1].rows == [(30,)]
    worlds.whole.delete("member", ("ann", "blue"))
    assert list(subscription)[-1].rows == []
    subscription.close()


def test_other_subscriptions_take_define_on_each_relation(worlds: Worlds) -> None:
    rights = worlds.rights
    for sql in DEFINE:
        if "note" in sql or "plain" in sql:
            with pytest.raises((whence.ForbiddenError, whence.SqlError)):
                rights.check_subscription("ann", parse_query(sql).query)
    with pytest.raises(whence.ForbiddenError, match=r'^you may not define views of "note"$'):
        rights.check_subscription("ann", parse_query("SELECT COUNT(*) AS n FROM note").query)
    query = parse_query("SELECT COUNT(*) AS n FROM slide(open_event, rows => 1, every => 1)").query
    assert rights.check_subscription("ann", query) is query
    with pytest.raises(whence.ForbiddenError, match="plain"):
        rights.check_subscription("ann", parse_query("SELECT COUNT(*) AS n FROM open_event, plain").query)
    worlds.whole.insert("allowed", [("ann", "plain", "define"), ("ann", "note", "define")])
    for sql in DEFINE[:18]:
        try:
            rights.check_subscription("ann", parse_query(sql).query)
        except whence.SqlError:  # no view has this
            with pytest.raises(whence.SqlError):
                worlds.whole.execute(f"CREATE VIEW nothing AS {sql}")


# -- change ------------------------------------------------------------------------------------------------------------


def test_right_comes_and_goes_with_its_row() -> None:
    db, rights = database()
    version = rights.version
    db.insert("b", (1,))
    assert rights.version == version
    db.insert("allowed", ("ann", "a", "read"))
    assert rights.version == version + 1
    assert rights.visible("ann") == ["a"]
    db.update("allowed", {"what": "insert"}, {"who": "ann"})
    assert rights.may("ann", "a", "insert")
    db.delete("allowed", where={"who": "ann"})
    assert rights.version == version + 3
    assert rights.visible("ann") == []
    with db.transaction():
        db.insert("allowed", ("ann", "a", "read"))
        assert rights.visible("ann") == []  # not before it is committed
    assert rights.visible("ann") == ["a"]


def test_rights_of_a_view_follow_its_tables() -> None:
    db = whence.open()
    db.execute(
        f"{EVERYTHING}; CREATE TABLE member (who TEXT, team TEXT); CREATE TABLE may (team TEXT, name TEXT, what TEXT); "
        "CREATE VIEW allowed AS SELECT DISTINCT member.who, may.name, may.what, team FROM member JOIN may USING (team)"
    )
    rights, version = Rights(db), Rights(db).version
    db.insert("may", [("red", "a", "read"), ("blue", "b", "read")])
    assert rights.visible("ann") == []
    db.insert("member", ("ann", "red"))
    assert (rights.visible("ann"), rights.version) == (["a"], version + 1)
    db.insert("member", ("ann", "red"))  # twice, which the view does not show
    assert rights.version == version + 1
    db.execute("CREATE OR REPLACE VIEW allowed AS SELECT who, 'b' AS name, 'read' AS what FROM member")
    assert rights.visible("ann") == ["b"]


def test_rights_with_a_time_to_live_end_by_themselves() -> None:
    now = 1_000.0
    db = whence.open(clock=lambda: now)
    db.execute(f"{EVERYTHING}; {ALLOWED} WITH (ttl = '60 seconds')")
    db.insert("allowed", ("ann", "a", "read"))
    rights = Rights(db)
    assert rights.visible("ann") == ["a"]
    now += 61
    db.expire()
    assert rights.visible("ann") == []


def test_definitions_change_what_there_is() -> None:
    db, rights = database(("ann", "*", "read"), ("bob", "d", "read where z = 1"))
    version = rights.version
    assert rights.visible("bob") == []
    db.execute("CREATE TABLE d (z INT)")
    assert rights.version > version
    assert (rights.visible("ann")[-2:], rights.visible("bob")) == (["allowed", "d", "c"][-2:], ["d"])
    db.execute("DROP TABLE d; CREATE TABLE d (other INT)")
    assert rights.visible("bob") == []  # the condition binds no more
    db.execute("DROP TABLE d")
    assert "d" not in rights.visible("ann")


def test_lost_relation_denies_everything_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    db, _ = database(("ann", "a", "define"), ("eve", "*", "define"))
    rights = Rights(db, owner="owner")
    version = rights.version
    db.execute("DROP TABLE allowed")
    assert (rights.visible("ann"), rights.visible("eve"), rights.may("eve", "*", "define")) == ([], [], False)
    assert rights.may("owner", "*", "define")
    assert "any more" in caplog.text
    assert rights.version > version
    db.execute(ALLOWED)
    db.insert("allowed", ("ann", "a", "read"))
    assert rights.visible("ann") == ["a"]


WRONG = [
    "CREATE TABLE allowed (who TEXT, name TEXT)",
    "CREATE TABLE allowed (name TEXT, who TEXT, what TEXT)",
    "CREATE TABLE allowed (who INT, name TEXT, what TEXT)",
    "CREATE STREAM allowed (who TEXT, name TEXT, what TEXT)",
    "CREATE VIEW allowed AS SELECT 'ann' AS who, 'a' AS name, 1 AS what",
]


@pytest.mark.parametrize("sql", WRONG)
def test_relation_of_another_shape_is_an_error_at_start_and_denies_later(sql: str) -> None:
    db = whence.open()
    db.execute(f"{EVERYTHING}; {sql}")
    with pytest.raises(whence.CatalogError, match=r'"allowed" has the rights .* who TEXT, name TEXT, what TEXT; it is'):
        Rights(db)
    later, rights = database(("ann", "a", "read"))
    later.execute(f"DROP TABLE allowed; {sql}")
    assert rights.visible("ann") == []
    assert rights.may(None, "*", "define")


def test_other_columns_may_follow() -> None:
    db = whence.open()
    db.execute(f"{EVERYTHING}; CREATE TABLE allowed (who TEXT, name TEXT, what TEXT, since DATE, by TEXT)")
    db.insert("allowed", ("ann", "a", "read", None, "eve"))
    assert Rights(db).visible("ann") == ["a"]


def test_rights_of_a_follower_are_those_that_are_written(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(f"{EVERYTHING}; {ALLOWED}")
        db.insert("allowed", ("ann", "a", "read"))
        with whence.open(tmp_path / "db", read_only=True) as follower:
            rights = Rights(follower)
            assert rights.visible("ann") == ["a"]
            db.delete("allowed", where={"who": "ann"})
            assert follower["allowed"].rows == []
            assert rights.visible("ann") == []


def test_rights_on_partitions() -> None:
    db = whole_database(partitions=2)
    rights = Rights(db)
    tree = rights.restricted("ann", parse_query("SELECT id FROM note JOIN task ON points = id").query)
    assert whence.Result(db._coordinator.reader.query(tree)).rows == [(1,)]
    version = rights.version
    db.delete("allowed", where={"name": "note"})
    assert "note" not in rights.visible("ann")
    assert rights.version == version + 1
    db.insert("allowed", ("*", "task", "insert where team IN (SELECT team FROM member WHERE member.who = :who)"))
    write = rights.guarded("ann", lambda db: db.insert("task", ("red", 5)))
    assert write(db) == 1
    with pytest.raises(whence.ForbiddenError):
        rights.guarded("ann", lambda db: db.insert("task", ("blue", 5)))(db)
    db.close()


def test_past_is_read_by_the_rights_of_now(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", retain="all") as db:
        db.execute(f"{EVERYTHING}; {ALLOWED}")
        db.insert("allowed", ("ann", "a", "read"))
        db.insert("a", [(1, "ann"), (2, "bob")])
        epoch = db.epoch
        db.update("allowed", {"what": "read where owner = :who"}, {"who": "ann"})
        rights = Rights(db)
        with db.at(epoch) as past:
            tree = rights.restricted("ann", parse_query("SELECT x FROM a").query, past._coordinator)
            assert whence.Result(past._coordinator.reader.query(tree)).rows == [(1,)]
            with pytest.raises(whence.SqlError, match="there is no table"):
                rights.restricted("ann", parse_query("SELECT y FROM b").query, past._coordinator)


# -- statements --------------------------------------------------------------------------------------------------------


DEFINITIONS = [
    "CREATE TABLE z (x INT)",
    "CREATE VIEW z AS SELECT id FROM plain",
    "DROP TABLE plain",
    "DROP TABLE secret",
    "DROP TABLE nosuch",
    "CREATE INDEX i ON plain (id)",
    "SHOW TABLES",
    "EXPLAIN CREATE VIEW z AS SELECT id FROM plain",
]


def test_statements_take_their_rights(worlds: Worlds) -> None:
    rights = worlds.rights
    for sql in DEFINITIONS:
        with pytest.raises(whence.ForbiddenError):
            rights.check_statement("ann", parse_one(sql))
        statement = parse_one(sql)
        assert rights.check_statement("eve", statement) is statement
    for sql in ("INSERT INTO plain VALUES (1, 'x')", "DELETE FROM plain", "UPDATE plain SET id = 1"):
        with pytest.raises(whence.ForbiddenError, match=r'^you may not insert into "plain"$'):
            rights.check_statement("ann", parse_one(sql))
    for sql in ("DESCRIBE plain", "EXPLAIN SELECT id FROM plain"):
        assert rights.check_statement("ann", parse_one(sql)) == parse_one(sql)
    for sql in ("EXPLAIN SELECT id FROM note", "EXPLAIN notes_by_owner"):
        with pytest.raises((whence.ForbiddenError, whence.CatalogError)):
            rights.check_statement("ann", parse_one(sql))


def test_insert_of_a_query_reads_what_may_be_read(worlds: Worlds) -> None:
    worlds.whole.insert("allowed", ("ann", "plain", "insert"))
    statement = worlds.rights.check_statement("ann", parse_one("INSERT INTO plain SELECT id, body FROM note"))
    text = statement.source.sql(dialect=WhenceDialect)  # type: ignore[attr-defined]
    worlds.whole.execute(f"INSERT INTO plain {text}")
    assert sorted(worlds.whole.query("SELECT word FROM plain").rows)[:2] == [("11",), ("44",)]
    assert len(worlds.whole["plain"].rows) == len(worlds.seen["ann"]["plain"].rows) + 2
    values = parse_one("INSERT INTO plain VALUES (1, 'a'), (2, NULL)")
    assert worlds.rights.check_statement("ann", values) == values


# -- questions ---------------------------------------------------------------------------------------------------------


def test_questions_are_for_those_who_may_read_everything_beneath(worlds: Worlds) -> None:
    rights, db = worlds.rights, worlds.whole
    assert rights.beneath("notes_by_owner") == ["note"]
    assert said(rights.check_question, "ann", "notes_by_owner")[0] == "CatalogError"
    db.insert("allowed", ("ann", "notes_by_owner", "read"))
    for check in (rights.check_question, rights.check_trace):
        kind, text = said(check, "ann", "notes_by_owner")
        assert (kind, "note" in text.replace("notes_by_owner", "")) == ("ForbiddenError", False)
    db.insert("allowed", ("ann", "note", "read"))
    rights.check_question("ann", "notes_by_owner")
    assert rights.sees_all("ann", "notes_by_owner")


def test_trace_is_for_those_who_may_read_what_a_stream_leads_to(worlds: Worlds) -> None:
    worlds.rights.check_trace("ann", "open_event")
    worlds.whole.execute("CREATE VIEW later AS SELECT at FROM open_event WHERE at > 1")
    assert said(worlds.rights.check_trace, "ann", "open_event")[0] == "ForbiddenError"
    assert "later" not in said(worlds.rights.check_trace, "ann", "open_event")[1]
    worlds.whole.insert("allowed", ("ann", "later", "read"))
    worlds.rights.check_trace("ann", "open_event")


def test_rights_are_explained_as_rows_are() -> None:
    db = whence.open()
    db.execute(
        f"{EVERYTHING}; CREATE TABLE member (who TEXT, team TEXT); CREATE TABLE may (team TEXT, name TEXT, what TEXT); "
        "CREATE VIEW allowed AS SELECT DISTINCT member.who, may.name, may.what FROM member JOIN may USING (team)"
    )
    db.insert("may", [("red", "a", "insert"), ("root", "*", "define")])
    db.insert("member", [("ann", "red"), ("eve", "root")])
    rights = Rights(db)
    [why] = rights.why("ann", "a", "read", asked_by="eve")
    assert ("member", {"who": "ann", "team": "red"}) in why.witnesses[0]
    assert rights.why("ann", "a", "define") == []
    with pytest.raises(whence.ForbiddenError):
        rights.why("eve", "a", "read", asked_by="ann")
    with pytest.raises(whence.DataError):
        rights.why("ann", "a", "all")  # type: ignore[arg-type]  # that is the point


def test_relations_of_the_tests_are_hidden_or_seen(worlds: Worlds) -> None:
    assert worlds.rights.visible("ann") == [name.lower() for name in DEFINED]
