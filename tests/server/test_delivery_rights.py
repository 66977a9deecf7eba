"""Rights of subscribers: what is withdrawn is withdrawn in that epoch, and nobody sees another's rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.depth import seeds
from tests.server.served import ServedDatabase, TestClient, served, wait_until
from whence.server.access.tokens import make_token
from whence.server.delivery import explained
from whence.subscribe import messages as ms


class Served:
    """A server with the tokens of some users."""

    def __init__(self, server: ServedDatabase, tokens: dict[str, str]) -> None:
        self.server, self.tokens, self.db = server, tokens, server.db

    def client(self, who: str) -> TestClient:
        return TestClient(self.server, token=self.tokens[who])


@pytest.fixture
def place(tmp_path: Path) -> Any:
    with whence.open() as db:
        db.execute(
            """
            CREATE TABLE sale (item TEXT, seller TEXT);
            CREATE VIEW counted AS SELECT seller, COUNT(*) AS n FROM sale GROUP BY seller;
            CREATE TABLE secret (x INT);
            CREATE TABLE allowed (who TEXT, name TEXT, what TEXT);
            """
        )
        db.insert("sale", [("tea", "ann"), ("rum", "bob")])
        db.insert("allowed", [("*", "sale", "read where seller = :who"), ("boss", "*", "define")])
        tokens = {who: make_token(tmp_path / "tokens", who) for who in ("ann", "bob", "eve", "boss")}
        with served(db, token_file=tmp_path / "tokens") as server:
            yield Served(server, tokens)


def test_everyone_sees_their_own_rows(place: Served) -> None:
    with place.client("ann") as ann, place.client("bob") as bob, place.client("boss") as boss:
        for client, rows in ((ann, [("tea", "ann")]), (bob, [("rum", "bob")])):
            client.subscribe("sale")
            client.follow()
            assert client.rows[1][0] == rows
        boss.subscribe("sale")
        boss.follow()
        place.db.insert("sale", [("gin", "bob"), ("milk", "ann")])
        assert ann.follow().parts[0].came == [["milk"], ["ann"]]
        assert bob.follow().parts[0].came == [["gin"], ["bob"]]
        assert len(boss.follow().parts[0].came[0]) == 2
        place.db.delete("sale", ("gin", "bob"))
        assert bob.follow().parts[0].went == [["gin"], ["bob"]]
        place.db.insert("sale", ("oil", "ann"))
        assert ann.follow().parts[0].came == [["oil"], ["ann"]], "nothing was told of bob's row"


@pytest.mark.parametrize("query", ["secret", "ghost", "SELECT x FROM secret", "SELECT seller FROM counted"])
def test_what_one_may_not_read_does_not_exist(place: Served, query: str) -> None:
    with place.client("ann") as client:
        error = client.subscribe(query)
        assert error.final
        assert error.code in ("CatalogError", "SqlError")
        name = "counted" if "counted" in query else "secret"
        missing = client.subscribe(query.replace(name, "nothing" if name == "counted" else "ghosts"), id=2)
        assert missing.code == error.code
        assert (
            missing.message.replace("nothing", name).replace("ghosts", name).split(";")[0]
            == (error.message.split(";")[0])
            or query == "ghost"
        )


def test_a_join_needs_the_right_to_define(place: Served) -> None:
    place.db.insert("allowed", ("ann", "counted", "read"))
    query = "SELECT sale.item, counted.n FROM sale JOIN counted ON sale.seller = counted.seller"
    with place.client("ann") as ann, place.client("boss") as boss:
        assert ann.subscribe(query).code == "ForbiddenError"
        boss.subscribe(query)
        boss.follow()
        assert sorted(boss.rows[1][0]) == [("rum", 1), ("tea", 1)]


def test_revoking_withdraws_in_that_epoch(place: Served) -> None:
    with place.client("ann") as ann, place.client("boss") as boss:
        ann.subscribe("sale")
        ann.follow()
        ann.subscribe("SELECT item FROM sale", id=2)
        ann.follow(2)
        boss.subscribe("sale")
        boss.follow()
        with place.db.transaction():
            place.db.delete("allowed", ("*", "sale", "read where seller = :who"))
            place.db.insert("sale", ("gold", "ann"))
        errors = [ann.receive(ms.ErrorMessage), ann.receive(ms.ErrorMessage)]
        assert {error.id for error in errors} == {1, 2}
        assert all((error.code, error.final) == ("ForbiddenError", True) for error in errors)
        assert boss.follow().parts[0].came == [["gold"], ["ann"]], "others go on"
        assert ann.subscribe("sale", id=3).final, "nor may it be subscribed to again"


def test_changed_conditions_are_told_anew(place: Served) -> None:
    with place.client("ann") as ann, place.client("bob") as bob:
        for client in (ann, bob):
            client.subscribe("sale")
            client.follow()
        with place.db.transaction():
            place.db.insert("allowed", ("ann", "sale", "read where seller = 'bob'"))
            place.db.insert("sale", ("gin", "bob"))
        messages = [ann.follow(), ann.follow()]
        assert [type(m) for m in messages] == [ms.Subscribed, ms.State]
        assert messages[1].reason == "rights"
        assert sorted(ann.rows[1][0]) == [("gin", "bob"), ("rum", "bob"), ("tea", "ann")]
        assert bob.follow().parts[0].came == [["gin"], ["bob"]], "whose rights are as before is told the change"
        place.db.delete("allowed", ("ann", "sale", "read where seller = 'bob'"))
        ann.follow_until(lambda: ann.rows[1][0] == [("tea", "ann")])


def test_who_was_away_while_rights_changed_begins_anew(place: Served) -> None:
    with place.client("ann") as ann, place.client("boss") as boss:
        boss.subscribe("SELECT item, seller FROM sale WHERE seller = 'bob'")
        ann.subscribe("sale")
        ann.follow()
        have = ann.at[1]
        ann.send(ms.Unsubscribe(1))
        place.db.delete("allowed", ("*", "sale", "read where seller = :who"))
        place.db.insert("allowed", ("ann", "sale", "read where seller = 'bob'"))
        ann.subscribe("sale", id=2, have=have)
        assert ann.follow(2).reason in ("rights", "behind")
        assert ann.rows[2][0] == [("rum", "bob")]


def test_rights_come_back(place: Served) -> None:
    with place.client("ann") as ann:
        ann.subscribe("sale")
        ann.follow()
        place.db.delete("allowed", ("*", "sale", "read where seller = :who"))
        assert ann.receive(ms.ErrorMessage).final
        place.db.insert("allowed", ("ann", "sale", "read"))
        ann.subscribe("sale", id=2)
        ann.follow(2)
        assert len(ann.rows[2][0]) == 2


def test_state_is_not_of_an_epoch_before_the_right_was_given(place: Served) -> None:
    """Others were just sent the state of the epoch before, and nothing has changed in it."""
    with place.client("ann") as ann, place.client("boss") as boss:
        boss.subscribe("secret")
        boss.follow()
        place.db.insert("allowed", ("ann", "secret", "read"))
        given = place.db.position
        ann.subscribe("secret")
        assert ann.follow().at == str(given)


def test_without_the_relation_nobody_may(place: Served) -> None:
    with place.client("ann") as ann:
        ann.subscribe("sale")
        ann.follow()
        place.db.execute("DROP TABLE allowed")
        assert ann.receive(ms.ErrorMessage).final


def test_witnesses_are_those_that_one_may_read(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explained, "SECONDS", 60.0)
    place.db.execute("CREATE VIEW names AS SELECT DISTINCT seller FROM sale WHERE item <> 'x'")
    place.db.insert("allowed", ("*", "names", "read"))
    with place.client("ann") as ann, place.client("boss") as boss:
        for client in (ann, boss):
            client.subscribe("names", why=True)
        told = {"ann": ann.follow(), "boss": boss.follow()}
        for who, message in told.items():
            why = dict(zip(message.columns[0], message.why, strict=True))
            assert why["ann"] == [[["sale", {"item": "tea", "seller": "ann"}]]]
            assert why["bob"] == ([] if who == "ann" else [[["sale", {"item": "rum", "seller": "bob"}]]])


def test_inserts_need_the_right(place: Served) -> None:
    place.db.insert("allowed", ("bob", "sale", "insert where seller = :who"))
    with place.client("ann") as ann, place.client("bob") as bob:
        ann.send(ms.InsertMessage(1, "sale", rows=[["gin", "ann"]]))
        assert ann.receive(ms.ErrorMessage).code == "ForbiddenError"
        ann.send(ms.InsertMessage(2, "secret", rows=[[1]]))
        assert ann.receive(ms.ErrorMessage).code == "CatalogError"
        bob.send(ms.InsertMessage(1, "sale", rows=[["gin", "bob"]]))
        bob.send(ms.InsertMessage(2, "sale", rows=[["gin", "ann"]]))
        assert bob.receive(ms.Done).count == 1
        assert bob.receive(ms.ErrorMessage).code == "ForbiddenError"
    assert sorted(place.db["sale"]) == [("gin", "bob"), ("rum", "bob"), ("tea", "ann")]


@pytest.mark.parametrize("seed", seeds(4))
def test_nothing_is_told_that_was_not_allowed_at_its_epoch(place: Served, seed: int) -> None:
    """Rights and rows change at random; each update's rows must be allowed at the update's own epoch."""
    random_ = random.Random(seed)
    allowed: dict[int, bool] = {}  # by epoch, whether ann may read
    db = place.db
    db.delete("allowed", ("*", "sale", "read where seller = :who"))
    db.insert("allowed", ("ann", "sale", "read"))
    may = True
    allowed[db.position.epoch] = may
    with place.client("ann") as ann:
        ann.subscribe("sale")
        number, ended, rows = 1, False, 0
        for step in range(60):
            with db.transaction():
                if random_.random() < 0.2:
                    may = not may
                    (db.insert if may else db.delete)("allowed", ("ann", "sale", "read"))
                db.insert("sale", (f"item {step}", "ann"))
            allowed[db.position.epoch] = may
            if random_.random() < 0.3 or ended:
                number += 1
                ended = False
                ann.send(ms.Subscribe(number, ["sale"]))
            if random_.random() < 0.5:
                continue
            ann.send(ms.CallMessage(step, "position", {}))
            while True:
                message = ann.receive()
                if isinstance(message, ms.ResultMessage):
                    break
                if isinstance(message, (ms.State, ms.UpdateMessage)):
                    epoch = int(message.at.rpartition(".")[2])
                    known = max(e for e in allowed if e <= epoch)
                    assert allowed[known], (message, allowed)
                    rows += 1
                ended = ended or isinstance(message, ms.ErrorMessage)
        assert rows
    wait_until(lambda: not place.server.gateway.connections)
