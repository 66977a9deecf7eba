"""Every way to name a relation in a query: a caller gets the rows that they may read, and hidden names do not exist."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import whence
from tests.server.restricted_worlds import Row, Worlds
from whence.server.access.restrict import restrict_query
from whence.server.access.rights import Rights
from whence.sql.parse import parse_query
from whence.sql.reader import WhenceDialect


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    found = Worlds()
    yield found
    found.close()


FORMS = [
    "SELECT * FROM note",
    "SELECT * FROM NOTE",
    'SELECT * FROM "note"',
    'SELECT * FROM "NoTe" AS "X"',
    "SELECT * FROM 'note'",
    "FROM note",
    "FROM note SELECT id",
    "SELECT * FROM (note)",
    "SELECT * FROM ((note))",
    "SELECT * FROM (TABLE note)",
    "SELECT note.id, note.owner FROM note",
    "SELECT NOTE.ID FROM note WHERE Note.Id > 0",
    "SELECT note.* FROM note",
    "SELECT n.* EXCLUDE (body) FROM note AS n",
    "SELECT x.a FROM note AS x(a, b)",
    "SELECT a FROM note x(a)",
    "SELECT * FROM n: note",
    "SELECT note FROM note",
    "SELECT COUNT(*) FROM note",
    "SELECT COUNT(*) AS n FROM note WHERE owner = 'bob'",
    "SELECT id FROM note WHERE id = 2",
    "SELECT id FROM note WHERE owner = 'bob' OR TRUE",
    "SELECT owner, COUNT(*), MIN(body) FROM note GROUP BY owner",
    "SELECT owner FROM note GROUP BY ALL HAVING COUNT(*) > 0",
    "SELECT DISTINCT owner FROM note",
    "SELECT * FROM note ORDER BY id DESC LIMIT 2",
    "SELECT * FROM note OFFSET 1",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY id) FROM note",
    "SELECT id, SUM(id) OVER w FROM note WINDOW w AS (PARTITION BY owner)",
    "SELECT * FROM note QUALIFY ROW_NUMBER() OVER (ORDER BY id) = 1",
    "SELECT a.id, b.id FROM note AS a, note AS b",
    "SELECT a.id, b.id FROM note AS a JOIN note AS b ON a.owner = b.owner",
    "SELECT note.id, other.id FROM note LEFT JOIN note AS other ON note.id + 1 = other.id",
    "SELECT * FROM plain LEFT JOIN note ON plain.id = note.id",
    "SELECT * FROM plain RIGHT JOIN note USING (id)",
    "SELECT * FROM plain FULL JOIN note USING (id)",
    "SELECT * FROM plain NATURAL JOIN note",
    "SELECT * FROM plain SEMI JOIN note USING (id)",
    "SELECT * FROM plain ANTI JOIN note USING (id)",
    "SELECT * FROM plain POSITIONAL JOIN (SELECT * FROM note ORDER BY id)",
    "SELECT * FROM plain ASOF JOIN note ON plain.id >= note.id",
    "SELECT * FROM (plain JOIN note ON plain.id = note.id)",
    "SELECT * FROM (plain JOIN note ON plain.id = note.id) AS z",
    "SELECT * FROM (note JOIN plain ON plain.id = note.id) AS z",
    "SELECT * FROM plain, LATERAL (SELECT * FROM note WHERE note.id = plain.id) AS l",
    "SELECT * FROM plain CROSS JOIN LATERAL (SELECT plain.id + note.id FROM note) AS l",
    "SELECT * FROM note, LATERAL (SELECT note.id + 1) AS l",
    "SELECT * FROM plain, (SELECT id + 1 AS n FROM note) AS l",
    "SELECT * FROM note, generate_series(1, 2) AS g",
    "SELECT * FROM generate_series(1, (SELECT MAX(id) FROM note)) AS g",
    "SELECT * FROM unnest((SELECT list(id ORDER BY id) FROM note)) AS g",
    "SELECT * FROM note JOIN task ON TRUE",
    "SELECT * FROM task",
    "SELECT SUM(points) FROM task",
    "SELECT * FROM task WHERE team = 'blue' OR team IS NULL",
    "SELECT * FROM plain WHERE id IN (SELECT id FROM note)",
    "SELECT * FROM plain WHERE id IN (FROM note SELECT id)",
    "SELECT * FROM plain WHERE id NOT IN (SELECT id FROM note)",
    "SELECT * FROM plain WHERE EXISTS (SELECT 1 FROM note WHERE note.id = plain.id)",
    "SELECT * FROM plain WHERE NOT EXISTS (FROM note WHERE note.id = plain.id)",
    "SELECT * FROM plain WHERE id = ANY (SELECT id FROM note)",
    "SELECT * FROM plain WHERE id > ALL (SELECT points FROM task)",
    "SELECT (SELECT MAX(id) FROM note) AS m",
    "SELECT (SELECT max(id) FROM note)",
    "SELECT id, (SELECT max(body) FROM note WHERE note.id = plain.id) FROM plain",
    "SELECT ARRAY(SELECT id FROM note ORDER BY id)",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM note WHERE owner = 'bob') THEN 1 ELSE 0 END AS there",
    "SELECT [x + 1 FOR x IN (SELECT list(id ORDER BY id) FROM note)] AS l",
    "SELECT list_transform((SELECT list(id ORDER BY id) FROM note), x -> x + 1) AS l",
    "SELECT id FROM plain ORDER BY (SELECT COUNT(*) FROM note), id",
    "SELECT id FROM plain ORDER BY id LIMIT (SELECT COUNT(*) FROM note)",
    "SELECT SUM(id) FILTER (WHERE id IN (SELECT id FROM note)) AS s FROM plain",
    "SELECT id FROM plain GROUP BY id HAVING id IN (SELECT id FROM note)",
    "VALUES ((SELECT COUNT(*) FROM note))",
    "SELECT * FROM (VALUES ((SELECT COUNT(*) FROM note))) AS v(n)",
    "SELECT id FROM note UNION SELECT points FROM task",
    "SELECT id FROM note UNION ALL SELECT id FROM note",
    "SELECT id FROM plain EXCEPT SELECT id FROM note",
    "SELECT id FROM plain INTERSECT SELECT id FROM note",
    "(SELECT id FROM note) UNION (FROM task SELECT points) ORDER BY 1",
    "SELECT id FROM plain UNION BY NAME SELECT id, owner FROM note",
    "WITH x AS (SELECT * FROM note) SELECT * FROM x",
    "WITH x AS MATERIALIZED (SELECT * FROM note) SELECT * FROM x AS y, x WHERE x.id = y.id",
    "WITH x(a) AS (SELECT id FROM note), y AS (SELECT a + 1 AS b FROM x) SELECT x.a, y.b FROM x, y",
    "WITH note AS (SELECT * FROM note WHERE id > 1) SELECT * FROM note",
    "WITH note AS (SELECT 7 AS id) SELECT note.id FROM note",
    "WITH task AS (SELECT 'blue' AS team) SELECT note.id FROM note, task",
    "WITH member AS (SELECT 'ann' AS who, 'blue' AS team UNION ALL SELECT 'stranger', 'red') FROM task, member",
    "SELECT * FROM (WITH member(who, team) AS (VALUES ('ann', 'blue')) SELECT points FROM task) AS x",
    "WITH RECURSIVE member AS (SELECT 'ann' AS who, 'blue' AS team UNION SELECT who, 'x' FROM member) FROM task",
    "SELECT points, (WITH member(who, team) AS (VALUES ('ann', 'blue')) SELECT MAX(points) FROM task) AS m FROM task",
    "WITH a AS (SELECT 1 AS one) SELECT * FROM a UNION ALL SELECT id FROM note UNION ALL SELECT * FROM a",
    "SELECT * FROM (WITH note AS (SELECT 8 AS id) SELECT * FROM note) AS inside, note",
    "SELECT id, (WITH note AS (SELECT 9 AS id) SELECT MAX(id) FROM note) AS nine FROM note",
    "WITH RECURSIVE r AS (SELECT id FROM note UNION SELECT id + 1 FROM r WHERE id < 6) SELECT * FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT note.id FROM r, note WHERE note.id > n) SELECT * FROM r",
    "WITH RECURSIVE note AS (SELECT 1 AS id UNION SELECT id + 1 FROM note WHERE id < 3) SELECT id FROM note",
    "WITH RECURSIVE r(a, b) USING KEY (a) AS (SELECT id, 1 FROM note UNION SELECT a, b + 1 FROM r WHERE b < 3) FROM r",
    "WITH w AS (WITH w AS (SELECT id FROM note) SELECT id + 1 AS id FROM w) SELECT * FROM w",
    "SELECT * FROM (PIVOT note ON owner USING COUNT(*) GROUP BY id)",
    "SELECT * FROM note PIVOT (COUNT(*) FOR owner IN ('ann', 'bob'))",
    "SELECT * FROM (UNPIVOT (SELECT owner, body FROM note) ON owner, body)",
    "SELECT * FROM note UNPIVOT (v FOR n IN (owner, body))",
    "SELECT * FROM note TABLESAMPLE 100%",
    'SELECT * FROM "Quoted Name"',
    'SELECT "quoted name"."ODD COLUMN" FROM "quoted NAME"',
    'SELECT q."Odd Column" FROM "Quoted Name" AS q',
    "SELECT * FROM event",
    "SELECT at FROM event ORDER BY at",
    "SELECT COUNT(*) AS n FROM slide((SELECT * FROM event), rows => 2, every => 1)",
    "SELECT * FROM latest((SELECT at FROM event), rows => 1)",
    "WITH e AS (SELECT at FROM event) SELECT COUNT(*) AS n FROM slide(e, rows => 1, every => 1)",
    "WITH e AS (SELECT at FROM event) SELECT e.at FROM latest(e, rows => 9)",
    "WITH event AS (SELECT at FROM event) SELECT COUNT(event.at) AS n FROM slide(event, rows => 1, every => 1)",
    "SELECT COUNT(*) AS n FROM slide(open_event, rows => 1, every => 1)",
    "SELECT open_event.at FROM latest(open_event, rows => 1)",
    "SELECT * FROM numbered(open_event)",
    "SELECT * FROM owed(plain)",
    "SELECT COLUMNS('o.*') FROM note",
    "SELECT COLUMNS(*) FROM note",
]  # fmt: skip


def outcome(run: Callable[[], list[Row]]) -> object:
    """Return the rows, or the error in full; all CTEs of callers who do not see everything are called so."""
    try:
        return Counter(map(repr, run()))
    except whence.WhenceError as error:
        return type(error).__name__, str(error).replace(" (cte)", "")


def hidden_form(sql: str) -> str:
    """Return a form over relations that callers may not read."""
    return re.sub(r"(?i)\bevent\b", "secret_event", re.sub(r"(?i)\bnote\b", "secret", sql))


@pytest.mark.parametrize("who", ["ann", "bob", "stranger"])
@pytest.mark.parametrize("sql", FORMS)
def test_query_has_the_rows_of_the_seen_database(worlds: Worlds, sql: str, who: str) -> None:
    wanted = outcome(lambda: worlds.seen[who].query(sql).rows)
    assert isinstance(wanted, Counter) or who == "stranger"
    assert outcome(lambda: worlds.restricted(who, sql)) == wanted


@pytest.mark.parametrize("sql", FORMS)
def test_columns_are_named_as_in_the_seen_database(worlds: Worlds, sql: str) -> None:
    wanted = [name.lower() for name in worlds.seen["ann"].query(sql).columns]
    found = [name.lower() for name in worlds.columns("ann", sql)]
    assert len(found) == len(wanted)
    for name, like in zip(found, wanted, strict=True):
        assert name == like or like.startswith("(select")  # DuckDB's own text of a subquery, which has more parentheses
        assert "'ann'" not in name
        assert "member" not in name


@pytest.mark.parametrize("sql", sorted({hidden_form(sql) for sql in FORMS} - set(FORMS)))
def test_hidden_relation_is_one_that_does_not_exist(worlds: Worlds, sql: str) -> None:
    for who in ("ann", "stranger"):
        assert outcome(lambda who=who: worlds.restricted(who, sql)) == outcome(
            lambda: worlds.seen["ann"].query(sql).rows
        )


WRONG = [
    "SELECT * FROM secrets",
    "SELECT * FROM secre",
    "SELECT * FROM membr",
    "SELECT * FROM allowd",
    "SELECT * FROM notes_by_ownr",
    "SELECT * FROM noote",
    "SELECT * FROM memory.main.note",
    "SELECT * FROM main.secret",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM query_table('note')",
    "SELECT * FROM query_table('secret')",
    "SELECT * FROM query('SELECT * FROM note')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM identifier('secret')",
    "SELECT * FROM (CALL query_table('note'))",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT * FROM (DESCRIBE secret)",
    "SELECT * FROM (SUMMARIZE secret)",
    "SELECT * FROM ROWS FROM (query_table('note'), unnest([1]))",
    "SELECT * FROM LATERAL owed(secret)",
    "SELECT * FROM note, LATERAL owed(secret)",
    "SELECT * FROM plain, owed(secret) AS o",
    "SELECT 1 IN note",
    "SELECT 1 IN secret",
    "SELECT secret FROM plain",
    "SELECT secret.pin FROM plain",
    "SELECT secret.* FROM plain",
    "SELECT pin FROM note",
    "SELECT pin FROM plain, note",
    "SELECT teams FROM task",
    "SELECT who FROM task",
    "SELECT member.who FROM task",
    "SELECT task.zzz FROM task JOIN note ON TRUE",
    "SELECT note.pin FROM note JOIN plain ON note.id = plain.id",
    "SELECT owner FROM note GROUP BY id",
    "SELECT * FROM note JOIN task USING (pin)",
    "SELECT * FROM note WHERE",
    "SELECT * FROM note ORDER BY pin",
    "SELECT nosuch(id) FROM note",
    "SELECT current_query() FROM note",
    "SELECT stats(id) FROM note",
    "SELECT json_serialize_plan('SELECT * FROM note')",
    "SELECT getenv('HOME')",
    "SELECT * FROM note UNION SELECT id FROM plain",
    "SELECT CAST(word AS INT) FROM plain",
    "WITH secret AS (SELECT * FROM secret) SELECT * FROM secret",
    "WITH RECURSIVE secret AS (SELECT * FROM secret) SELECT * FROM secret",
    "WITH secret(a, b, c) AS (SELECT 1 AS one) SELECT b FROM secret",
    "WITH nosuch(a, b, c) AS (SELECT 1 AS one) SELECT b FROM nosuch",
    "WITH RECURSIVE nosuch AS (SELECT * FROM nosuch) SELECT * FROM nosuch",
    "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
    "WITH a AS (SELECT * FROM secret), secret AS (SELECT 1) SELECT * FROM a",
    "WITH a AS (SELECT 1 AS x) SELECT a.pin FROM a",
    "SELECT * FROM (WITH z AS (SELECT 1) SELECT * FROM z) AS y, z",
    "SELECT * FROM slide(secret_event, rows => 1, every => 1)",
    "SELECT * FROM slide(secret, rows => 1, every => 1)",
    "SELECT * FROM latest(bsort(secret_event, on => at, slack => 0), rows => 1)",
    "SELECT * FROM provenance(secret_view)",
    "SELECT * FROM provenance(secret_vie)",
    "SELECT * FROM provenance(plain, secret_event)",
    "SELECT * FROM numbered(secret_event)",
    "SELECT * FROM numbered(secret_even)",
    "SELECT * FROM late(secret_view)",
    "SELECT * FROM late(secret_vie)",
    "SELECT * FROM owed(secret)",
    "SELECT * FROM owed(secre)",
    "INSERT INTO note SELECT * FROM note",
    "SELECT * FROM note FOR UPDATE",
    "SELECT * INTO x FROM note",
    "SELECT * FROM plain AT (VERSION => 1)",
]


@pytest.mark.parametrize("sql", WRONG)
def test_errors_are_those_of_the_seen_database(worlds: Worlds, sql: str) -> None:
    wanted = outcome(lambda: worlds.seen["ann"].query(sql).rows)
    assert isinstance(wanted, tuple)
    assert outcome(lambda: worlds.restricted("ann", sql)) == wanted


FORBIDDEN = [
    "SELECT * FROM (SUMMARIZE note)",
    "SELECT * FROM (DESCRIBE note)",
    "SELECT * FROM ONLY note",
    "SELECT * FROM note AT (VERSION => 1)",
    "SELECT * FROM owed(note)",
    "SELECT * FROM OWED(NOTE) AS o",
    'SELECT * FROM owed("Quoted Name")',
    "SELECT * FROM plain, owed(note) AS o",
    "SELECT * FROM numbered(event)",
    "SELECT COUNT(*) FROM slide(event, rows => 1, every => 1)",
    "SELECT * FROM latest(event, rows => 1)",
    "SELECT * FROM bsort(event, on => at, slack => 1)",
    "SELECT COUNT(*) FROM slide(bsort(event, on => at, slack => 1), rows => 1, every => 1)",
    "SELECT * FROM plain WHERE id IN (SELECT at FROM latest(event, rows => 1))",
    "WITH x AS (SELECT * FROM latest(event, rows => 1)) SELECT * FROM x",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_functions_of_relations_are_for_those_who_read_all_rows(worlds: Worlds, sql: str) -> None:
    with pytest.raises(whence.ForbiddenError) as refused:
        worlds.restricted("ann", sql)
    assert "bob" not in str(refused.value)


def test_query_of_what_is_seen_whole_is_left_as_it_is(worlds: Worlds) -> None:
    for who, sql in (("ann", "SELECT * FROM plain WHERE id = 1"), ("eve", "SELECT * FROM note"), (None, "FROM secret")):
        query = parse_query(sql).query
        assert worlds.rights.restricted(who, query) is query


def test_restricting_leaves_the_query_as_it_was(worlds: Worlds) -> None:
    for sql in FORMS:
        query = parse_query(sql).query
        before = repr(query)
        worlds.rights.restricted("ann", query)
        assert repr(query) == before


# -- rows that errors would show ---------------------------------------------------------------------------------------

CONDITIONS = {
    "equal": "owner = :who",
    "one of": "owner IN (:who)",
    "a subquery": "owner IN (SELECT m.who FROM member AS m WHERE m.who = :who)",
    "exists": "EXISTS (SELECT 1 FROM member WHERE member.who = note.owner AND member.who = :who)",
    "not exists": "owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM note AS n WHERE n.id = note.id AND n.owner <> :who)",
    "an or with a subquery": "owner = :who OR body IN (SELECT pin FROM secret WHERE secret.owner = :who)",
    "a value of a subquery inside": "EXISTS (SELECT 1 FROM member WHERE owner = (SELECT MIN(who) FROM member AS m "
    "WHERE m.who = :who) AND member.who = owner)",
    "may be unknown": "NOT (owner <> :who)",
    "a case": "CASE WHEN owner = :who THEN TRUE END",
}
PROBES = [
    "SELECT id FROM note WHERE CAST(body AS INT) > 0",
    "SELECT id FROM note WHERE body::INT > 0 AND id > 0",
    "SELECT id FROM note WHERE id > 0 AND CAST(body AS INT) IN (SELECT 11)",
    "SELECT CAST(body AS INT) AS b FROM note",
    "SELECT SUM(CAST(body AS INT)) AS b FROM note",
    "SELECT CAST(body AS INT) % 2 AS b, COUNT(*) AS n FROM note GROUP BY 1",
    "SELECT owner FROM note GROUP BY owner HAVING MIN(CAST(body AS INT)) > 0",
    "SELECT note.id FROM note JOIN plain ON CAST(note.body AS INT) = plain.id",
    "SELECT note.id FROM note JOIN plain ON note.id = plain.id AND CAST(note.body AS INT) > 0",
    "SELECT plain.id FROM plain LEFT JOIN note ON note.id = plain.id AND CAST(note.body AS INT) > 0",
    "SELECT id FROM plain WHERE id IN (SELECT CAST(body AS INT) FROM note)",
    "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM note WHERE CAST(body AS INT) > plain.id)",
    "SELECT a.id FROM note AS a JOIN note AS b ON CAST(a.body AS INT) = CAST(b.body AS INT)",
    "SELECT id FROM note UNION SELECT CAST(body AS INT) FROM note",
    "SELECT id FROM (SELECT id, CAST(body AS INT) AS b FROM note) AS x WHERE b > 0",
    "WITH x AS (SELECT id, CAST(body AS INT) AS b FROM note) SELECT id FROM x WHERE b > 0",
]
ONLY_ONCE = [
    "SELECT id FROM note WHERE CASE WHEN body LIKE 'b%' THEN error('it is ' || body) END IS NULL",
    "SELECT id FROM note ORDER BY CAST(body AS INT)",
    "SELECT id, SUM(CAST(body AS INT)) OVER () FROM note",
    "SELECT list_transform([body], x -> CAST(x AS INT)) FROM note",
    "SELECT note.id FROM note ASOF JOIN plain ON CAST(note.body AS INT) >= plain.id",
]


@pytest.fixture(scope="module", params=CONDITIONS.values(), ids=CONDITIONS.keys())
def probed(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    found = Worlds()
    found.whole.delete("allowed", where={"name": "note"})
    found.whole.insert("allowed", ("*", "note", f"read where {request.param}"))
    found.whole.insert("note", [(i, "bob", f"bob's {i}") for i in range(100, 400)])
    yield found
    found.close()


@pytest.mark.parametrize("sql", [*PROBES, *ONLY_ONCE])
def test_no_expression_is_computed_for_a_hidden_row(probed: Worlds, sql: str) -> None:
    wanted = outcome(lambda: probed.seen["ann"].query(sql).rows)
    assert isinstance(wanted, Counter)
    assert outcome(lambda: probed.restricted("ann", sql)) == wanted


@pytest.mark.parametrize("sql", PROBES)
def test_no_expression_of_a_view_is_computed_for_a_hidden_row(probed: Worlds, sql: str) -> None:
    tree = restrict_query(parse_query(sql).query, probed.rights.sight("ann"), kept=True)
    name = probed.whole._coordinator.definitions.create_transient(tree.sql(dialect=WhenceDialect))
    try:
        probed.whole.insert("note", (9, "bob", "bob's new body"))
        probed.whole.delete("note", key=9)
        _, counts = probed.whole._coordinator.reader.contents(name)
        assert sum(counts) == len(probed.seen["ann"].query(sql).rows)
    finally:
        probed.whole._coordinator.definitions.drop_transient(name)


@pytest.mark.parametrize(
    "condition",
    [
        "CAST(body AS INT) > 0",
        "body::INT % id > 0",
        "id // id > 1",
        "nosuch = 1",
        "owner",
        "owner = (SELECT MIN(who) FROM member WHERE member.who = :who)",
        "(owner, 1) IN (SELECT who, 1 FROM member) AND id > (SELECT 0)",
        "EXISTS (SELECT CAST(pin AS INT) FROM secret WHERE CAST(pin AS INT) > 0)",
        "owner = :nobody",
        "owner = ?",
        "owner = :who; DROP TABLE note",
        "owner = :who UNION SELECT * FROM note",
        "TRUE LIMIT 5",
        "TRUE) OR (TRUE",
        "COUNT(*) > 0",
    ],
)
def test_condition_that_may_fail_denies_access(caplog: pytest.LogCaptureFixture, condition: str) -> None:
    with_failing = Worlds()
    with_failing.whole.delete("allowed", where={"name": "note"})
    with_failing.whole.insert("allowed", ("*", "note", f"read where {condition}"))
    assert "note" not in with_failing.rights.visible("ann")
    assert "denies access to note" in caplog.text
    assert outcome(lambda: with_failing.restricted("ann", "SELECT * FROM note"))[1].startswith(
        "line 1, column 15: there is"
    )
    with_failing.whole.insert("allowed", ("ann", "note", "read where owner = :who"))
    assert len(with_failing.restricted("ann", "SELECT * FROM note")) == 2  # other rights count
    with_failing.close()


def test_names_are_compared_as_relations_are_named() -> None:
    """In lower case, as Python has it: the Kelvin sign is a k, and DuckDB would not know that."""
    db, seen = whence.open(), whence.open()
    for each in (db, seen):
        each.execute('CREATE TABLE "\u212a" (x INT, owner TEXT); CREATE TABLE "\u00dc" (x INT, owner TEXT)')
    db.execute('CREATE TABLE "\u00e9k" (x INT); CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)')
    db.insert("allowed", [("*", name, "read where owner = :who") for name in ("K", "\u00dc")])
    rows = [(1, "ann"), (2, "bob")]
    for name in ("k", "\u00fc"):
        db.insert(name, rows)
        seen.insert(name, rows[:1])
    rights = Rights(db)
    for sql in (
        "SELECT * FROM k",
        'SELECT * FROM "\u212a"',
        'SELECT "\u212a".x FROM "\u212a" WHERE k.x > 0',
        "SELECT * FROM \u00dc, \u00fc AS b",
        'WITH "\u00c9K" AS (SELECT 1 AS x) SELECT * FROM "\u00e9k"',
        'SELECT * FROM "\u00c9\u212a"',
        "SELECT * FROM \u00c9k",
    ):
        wanted = outcome(lambda sql=sql: seen.query(sql).rows)

        def ask(sql: str = sql) -> list[Row]:
            tree = rights.restricted("ann", parse_query(sql).query)
            return whence.Result(db._coordinator.reader.query(tree)).rows

        assert outcome(ask) == wanted, sql
