"""The JavaScript client against a real server, in Node.js where that is installed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.depth import DEEP
from whence.server.access.tokens import make_token

CLIENT = Path(whence.__file__).parent / "server/static/whence.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node.js here")

PROGRAM = """
CREATE TABLE trade (issue TEXT, price INT, big BIGINT, ratio DOUBLE, cost DECIMAL(10, 2), day DATE);
CREATE VIEW high AS SELECT issue, MAX(price) AS high FROM trade GROUP BY issue;
CREATE TABLE other (x INT);
"""


class Script:
    """A script in Node.js that prints lines of JSON, and reads a line where it waits for us."""

    def __init__(self, server: whence.Server, body: str, token: str | None = None) -> None:
        text = f"""
            import {{ connect, WhenceError }} from {json.dumps(CLIENT.as_uri())};
            import {{ createInterface }} from "node:readline";
            const lines = createInterface({{ input: process.stdin }})[Symbol.asyncIterator]();
            const pause = () => lines.next();
            const say = (what) => console.log(
              JSON.stringify(what, (_, v) => typeof v === "bigint" ? `${{v}}n` : Number.isNaN(v) ? "NaN!" : v));
            const client = connect({json.dumps(server.url)}, {{ token: {json.dumps(token or server.token)} }});
            {body}
            client.close();
            process.exit(0);
        """
        assert NODE is not None
        self._process = subprocess.Popen(
            [NODE, "--no-warnings", "--experimental-websocket", "--input-type=module", "-e", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._limit = threading.Timer(120, self._process.kill)
        self._limit.daemon = True
        self._limit.start()

    def hear(self) -> Any:
        """Return the next line that the script says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read() if self._process.stderr else ""
        return json.loads(line)

    def go_on(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        _, errors = self._process.communicate()
        self._limit.cancel()
        assert self._process.returncode == 0, errors

    def kill(self) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def db() -> Iterator[whence.Database]:
    with whence.open() as found:
        found.execute(PROGRAM)
        yield found


@pytest.fixture
def server(db: whence.Database) -> Iterator[whence.Server]:
    for table in db.tables:
        db.execute(f"DELETE FROM {table}")
    with whence.serve(db, port=0) as found:
        yield found


def test_values_of_every_type_arrive(db: whence.Database, server: whence.Server) -> None:
    script = Script(
        server,
        """
        const done = await client.insert("trade", [
          { issue: "A", price: 1, big: 2n ** 60n, ratio: Infinity, cost: "2.50", day: "2026-11-17" },
          { issue: "B", price: null, big: 7, ratio: NaN, cost: 1.5, day: null },
        ]);
        say([done.count, done.repeated]);
        say(await client.query("SELECT * FROM trade WHERE issue = ?", ["A"], { atLeast: done.position }));
        say(await client.read("trade", { issue: "B" }));
        """,
    )
    assert script.hear() == [2, False]
    expected = {"issue": "A", "price": 1, "big": f"{2**60}n", "ratio": None, "cost": "2.50", "day": "2026-11-17"}
    assert script.hear() == [expected]
    other = {"issue": "B", "price": None, "big": 7, "ratio": "NaN!", "cost": "1.50", "day": None}
    assert script.hear() == [other]
    script.end()


def test_a_subscription_follows_changes(db: whence.Database, server: whence.Server) -> None:
    script = Script(
        server,
        """
        const updates = client.subscribe({ high: "high", n: "SELECT COUNT(*) AS n FROM trade" }, { key: "issue" });
        let last;
        for await (const update of updates) {
          last = update;
          const { came, went, rows, restarted } = update;
          say({ came, went, rows, restarted, n: update.parts.n.rows, changed: update.changed });
          if (rows.length === 2) break;
        }
        """,
    )
    first = script.hear()
    assert (first["rows"], first["restarted"], first["n"]) == ([], "begin", [{"n": 0}])
    db.insert("trade", {"issue": "A", "price": 1}, missing="null")
    second = script.hear()
    assert second["came"] == [{"issue": "A", "high": 1}]
    assert second["n"] == [{"n": 1}]
    db.insert("trade", [("A", 5, None, None, None, None), ("B", 2, None, None, None, None)])
    third = script.hear()
    assert third["changed"] == [
        {"key": "A", "old": {"issue": "A", "high": 1}, "new": {"issue": "A", "high": 5}},
        {"key": "B", "old": None, "new": {"issue": "B", "high": 2}},
    ]
    script.end()


def test_what_is_not_fetched_becomes_one_net_update(db: whence.Database, server: whence.Server) -> None:
    script = Script(
        server,
        """
        const updates = client.subscribe("SELECT x FROM other");
        const iterator = updates[Symbol.asyncIterator]();
        say((await iterator.next()).value.rows);
        await pause();
        const { position } = await client.insert("other", [[3]]);
        await updates.waitFor(position);
        const { value } = await iterator.next();
        say([value.came.map((r) => r.x).sort(), value.went, value.rows.map((r) => r.x).sort()]);
        """,
    )
    assert script.hear() == []
    db.insert("other", (1,))
    db.insert("other", (2,))
    db.delete("other", (1,))
    script.go_on()
    assert script.hear() == [[2, 3], [], [2, 3]]
    script.end()


def test_errors_have_the_names_that_python_has(server: whence.Server) -> None:
    script = Script(
        server,
        """
        for (const work of [
          () => client.query("SELECT ghost FROM trade"),
          () => client.insert("ghost", [[1]]),
          () => client.insert("other", [["one"]]),
          async () => { for await (const update of client.subscribe("ghost")) say(update); },
        ]) {
          try { await work(); } catch (error) { say([error instanceof WhenceError, error.code, error.message]); }
        }
        """,
    )
    found = [script.hear() for _ in range(4)]
    assert [code for _, code, _ in found] == ["SqlError", "CatalogError", "DataError", "CatalogError"]
    assert all(ours and message for ours, _, message in found)
    script.end()


def test_the_connection_comes_back(db: whence.Database, tmp_path: Path) -> None:
    """Nothing is lost or doubled, and the user does nothing for it."""
    for table in db.tables:
        db.execute(f"DELETE FROM {table}")
    token = make_token(tmp_path / "tokens", "ada")
    server = whence.serve(db, port=0, token_file=tmp_path / "tokens")
    port = int(server.url.rpartition(":")[2])
    script = Script(
        server,
        """
        const updates = client.subscribe("SELECT x FROM other");
        const iterator = updates[Symbol.asyncIterator]();
        say((await iterator.next()).value.rows);
        await pause();
        const done = client.insert("other", [[2]]);
        say("waiting");
        say((await done).count);
        await updates.waitFor(client.position);
        say(updates.rows.map((r) => r.x).sort());
        """,
        token,
    )
    try:
        assert script.hear() == []
        server.close()
        db.insert("other", (1,))
        script.go_on()
        assert script.hear() == "waiting"
        with whence.serve(db, port=port, token_file=tmp_path / "tokens"):
            assert script.hear() == 1
            assert script.hear() == [1, 2]
            script.end()
    finally:
        script.kill()


def test_a_position_of_another_history_is_never_reached(server: whence.Server) -> None:
    """The subscription goes on all the same."""
    script = Script(
        server,
        """
        const updates = client.subscribe("SELECT x FROM other");
        const iterator = updates[Symbol.asyncIterator]();
        await iterator.next();
        await updates.waitFor("0123456789ab.00c0ffee.0").catch((error) => say(error.code));
        await client.insert("other", [[7]]);
        await updates.waitFor(client.position);
        say(updates.rows.map((r) => r.x));
        """,
    )
    assert script.hear() == "DataError"
    assert script.hear() == [7]
    script.end()


def test_rows_have_bounds_in_javascript(db: whence.Database, server: whence.Server) -> None:
    db.execute("""
        CREATE STREAM sale (at TIMESTAMP, price INT) WITH (ordered = 'at');
        CREATE VIEW hourly AS SELECT date_trunc('hour', at) AS hour, MAX(price) AS high FROM sale GROUP BY 1;
    """)
    script = Script(
        server,
        """
        const of = (row) => row && [row.state, row.values, row.bounds, row.isFinal, row.mayGo, row.mayCome, `${row}`];
        for await (const update of client.subscribe("hourly", { bounds: true })) {
          const rows = ["2026-11-18T10:00:00", "2026-11-18T09:00:00"].map((hour) => of(update.row(hour)));
          say([update.came, update.final, ...rows]);
          if (update.final.length) break;
          await pause();
        }
        """,
    )
    ten, nine = "2026-11-18T10:00:00", "2026-11-18T09:00:00"
    absent = ["may come", None, {"hour": [None, None], "high": [None, None]}, False, False, True]
    came, final, row, _ = script.hear()
    assert (came, final, row) == ([], [], [*absent, f"hour = {ten}: not there, may come"])
    db.insert("sale", (ten, 80))
    script.go_on()
    came, final, row, gone = script.hear()
    shown = {"hour": ten, "high": 80}
    bounds = {"hour": [ten, ten], "high": [80, None]}
    assert (came, final) == ([shown], [])
    assert row == ["present", shown, bounds, False, False, False, f"hour = {ten}, high ≥ 80"]
    assert gone[0] == "finally absent"
    db.advance("sale", "2026-11-18T11:00:00", on="at")
    script.go_on()
    came, final, row, _ = script.hear()
    assert (came, final) == ([], [shown])
    bounds["high"] = [80, 80]
    assert row == ["present", shown, bounds, True, False, False, f"hour = {ten}, high = 80; final"]
    assert nine < ten
    script.end()


@pytest.mark.parametrize("seed", range(6 if DEEP else 2))
def test_absent_keys_are_as_final_in_javascript_as_in_python(seed: int) -> None:
    """Over random histories: what is absent for good by a horizon, a closed key, a domain or a constant."""
    dice = random.Random(seed)
    keys = {
        "score": [{"game": game, "team": team} for game in ("NY", "DET", "BOS") for team in "xy"],
        "hourly": [{"hour": hour, "issue": issue} for hour in range(-1, 5) for issue in "AB"],
        "both": [{"hour": hour, "side": side} for hour in range(4) for side in ("east", "west", "north")],
        "slots": [{"v": v} for v in range(-1, 6)],
    }
    with whence.open() as db:
        db.execute("""
            CREATE STREAM play (game TEXT, kind TEXT, team TEXT) WITH (closes = 'game when kind = ''end''');
            CREATE STREAM east (at INT, issue TEXT) WITH (ordered = 'at');
            CREATE STREAM west (at INT, issue TEXT) WITH (ordered = 'at');
            CREATE STREAM slot (v INT CHECK (v BETWEEN 0 AND 3));
            CREATE VIEW score AS SELECT game, team, COUNT(*) AS n FROM play WHERE kind = 'goal' GROUP BY game, team;
            CREATE VIEW hourly AS SELECT at // 10 AS hour, issue, COUNT(*) AS n FROM east GROUP BY 1, 2;
            CREATE VIEW both AS SELECT hour, side, COUNT(*) AS n FROM (SELECT at // 10 AS hour, 'east' AS side FROM east
                UNION ALL SELECT at // 10, 'west' FROM west) GROUP BY hour, side;
            CREATE VIEW slots AS SELECT v, COUNT(*) AS n FROM slot GROUP BY v;
        """)
        with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
            names = json.dumps(list(keys))
            script = Script(
                server,
                f"""
                const keys = {json.dumps(keys)};
                const queries = Object.fromEntries({names}.map((name) => [name, name]));
                let update;
                const first = new Promise((resolve) => (globalThis.begun = resolve));
                const onUpdate = (given) => {{ update = given; globalThis.begun(); }};
                const subscription = client.subscribe(queries, {{ bounds: true, onUpdate }});
                await first;
                for (;;) {{
                  const part = (name) => keys[name].map((key) => update.parts[name].row(key).state);
                  say([update.position, {names}.map(part)]);
                  const line = (await pause()).value;
                  if (line === "end") break;
                  await subscription.waitFor(line);
                }}
                """,
            )
            ours = client.subscribe({name: name for name in keys})
            over, at = set[str](), {"east": 0, "west": 0}
            try:
                found, seen = script.hear(), set[str]()
                for _ in range(12):
                    match dice.randrange(4):
                        case 0:
                            game = dice.choice(["NY", "DET", "BOS"])
                            if game not in over:
                                kind = dice.choice(["goal", "end"])
                                over |= {game} if kind == "end" else set()
                                db.insert("play", (game, kind, dice.choice("xy")))
                        case 1 | 2:
                            side = dice.choice(["east", "west"])
                            at[side] += dice.choice([1, 10, 15])
                            db.insert(side, (at[side], dice.choice("AB")))
                        case 3:
                            db.insert("slot", (dice.randrange(4),))
                    script.go_on(str(db.position))
                    found = script.hear()
                    update = ours.wait_for(db.position)
                    expected = [[update[name].row(key).state for key in each] for name, each in keys.items()]
                    assert found[1] == expected
                    seen |= {state for each in expected for state in each}
                script.go_on("end")
                script.end()
                assert seen == {"present", "may come", "finally absent"}
            finally:
                script.kill()
