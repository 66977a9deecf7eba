"""Rights and bounds: what a value can still become says nothing of rows that the caller may not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import whence
from tests.server.served import ServedDatabase, TestClient, served
from whence.server.access.tokens import make_token
from whence.subscribe import messages as ms

PROGRAM = """
CREATE STREAM trade (at INT, issue TEXT, price INT CHECK (price < 987654321)) WITH (ordered = 'at');
CREATE VIEW hourly AS SELECT at // 60 AS hour, issue, MAX(price) AS high FROM trade GROUP BY 1, 2;
CREATE VIEW calm AS SELECT hour, issue FROM hourly WHERE high < 123456789;
CREATE TABLE allowed (who TEXT, name TEXT, what TEXT);
INSERT INTO allowed VALUES
  ('ann', 'trade', 'read where issue = ''A'''), ('ann', 'hourly', 'read where issue = ''A'''), ('ann', 'calm', 'read'),
  ('bob', 'trade', 'read'), ('bob', 'hourly', 'read'), ('bob', 'calm', 'read');
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[ServedDatabase, dict[str, str]]]:
    with whence.open() as db:
        db.execute(PROGRAM)
        db.insert("trade", (5, "A", 80))
        tokens = {who: make_token(tmp_path / "tokens", who) for who in ("ann", "bob")}
        with served(db, token_file=tmp_path / "tokens") as server:
            yield server, tokens


def text(message: Any) -> str:
    return json.dumps(msgspec.to_builtins(message))


@pytest.mark.parametrize("bounds", [True, "values"])
@pytest.mark.parametrize("query", ["hourly", "calm"])
def test_rows_of_others_move_no_horizon(place: Any, query: str, bounds: bool | str) -> None:
    server, tokens = place
    with TestClient(server, token=tokens["ann"]) as ann, TestClient(server, token=tokens["bob"]) as bob:
        told = [each.subscribe(query, bounds=bounds) for each in (ann, bob)]
        states = [each.follow() for each in (ann, bob)]
        for message in (told[0], states[0]):
            assert "trade" not in text(message)
            assert "123456789" not in text(message)
            assert "987654321" not in text(message)
        assert states[0].horizons is None
        assert states[1].horizons
        assert states[0].columns == states[1].columns or query == "calm", "a column that is not shown stays here"
        assert len(states[0].columns) == (3 if query == "hourly" else 2)
        server.db.insert("trade", (61, "B", 400000000))  # ends A's hour
        update = bob.follow()
        assert isinstance(update, ms.UpdateMessage)
        assert update.horizons
        server.db.insert("trade", (62, "A", 70))
        update = ann.follow()
        assert isinstance(update, ms.UpdateMessage)
        assert update.horizons is None
        came = update.parts[0]
        assert came is not None
        assert came.closed is None
        assert came.came is not None
        assert came.came[1] == ["A"], "the first that ann is told after B's trade is her own"
        if bounds == "values":
            assert came.states == (["stays"] if query == "hourly" else ["may go"])


def test_python_client_without_rights_beneath_has_directions_only(place: Any) -> None:
    server, tokens = place
    with whence.connect(server.address, token=tokens["ann"]) as client:
        subscription = client.subscribe("hourly")
        row = next(subscription).row((0, "A"))
        assert (row.bounds["high"], row.is_final) == ((80, None), False)
        server.db.insert("trade", [(61, "B", 9), (62, "A", 70)])
        update = next(subscription)
        assert not update.row((0, "A")).is_final
        assert update.final == []
        assert update.row((0, "C")).state == "may come"
        calm = next(client.subscribe("calm"))
        assert calm.row((0, "A")).may_go
        assert calm.columns == ["hour", "issue"]


def test_right_that_is_given_brings_horizons(place: Any) -> None:
    server, tokens = place
    with whence.connect(server.address, token=tokens["ann"]) as client:
        subscription = client.subscribe("calm")
        assert not next(subscription).row((0, "A")).is_final
        server.db.insert("trade", [(61, "A", 70)])
        assert not next(subscription).row((0, "A")).is_final
        server.db.insert("allowed", [("ann", "trade", "read"), ("ann", "hourly", "read")])
        update = next(subscription)
        assert update.restarted == "rights"
        assert update.row((0, "A")).is_final
        server.db.delete("allowed", [("ann", "trade", "read"), ("ann", "hourly", "read")])
        server.db.insert("trade", [(121, "B", 70)])
        update = next(subscription)
        assert update.restarted == "rights"
        assert not update.row((1, "A")).is_final
