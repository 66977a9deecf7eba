"""Bounds over real processes: what is told as final survives kill -9 of the server, and clients go on knowing it."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence
from tests.serving.processes import ProcessGroup, ServerProcess
from whence.server.access.tokens import make_token

PROGRAM = """
CREATE STREAM trade (at INT, issue TEXT, price INT) WITH (ordered = 'at');
CREATE VIEW hourly AS SELECT at // 60 AS hour, MAX(price) AS high, COUNT(*) AS n FROM trade GROUP BY 1;
CREATE VIEW calm AS SELECT hour FROM hourly WHERE high < 100;
CREATE STREAM play (game TEXT, kind TEXT, team TEXT) WITH (closes = 'game when kind = ''end''');
CREATE VIEW score AS SELECT game, team, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY game, team;
"""
PATIENCE = 60.0


def test_final_rows_stay_final_after_kill(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(PROGRAM)
    token = make_token(tmp_path / "tokens", "ann")
    with ProcessGroup() as group:
        server = group.add(ServerProcess(tmp_path / "db", tmp_path / "tokens", log=tmp_path / "log"))
        server.start()
        with whence.connect(server.url, token=token) as client:
            follow = client.subscribe({"hourly": "hourly", "calm": "calm", "score": "score"})
            follow.next(timeout=PATIENCE)
            client.insert("trade", [(5, "A", 80), (50, "A", 70)])
            client.insert("play", [("NYDET", "goal", "NY")] * 4)
            update = follow.wait_for(client.position, timeout=PATIENCE)
            assert update["hourly"].row(0).bounds["high"] == (80, None)
            assert update["calm"].row(0).may_go
            assert update["score"].row(("NYDET", "NY")).bounds["goals"] == (4, None)
            server.kill()
            server.start()
            client.advance("trade", 60, on="at")
            client.insert("play", ("NYDET", "end", None))
            update = follow.wait_for(client.position, timeout=PATIENCE)
            assert update["hourly"].row(0).bounds["high"] == (80, 80)
            assert update["calm"].row(0).is_final
            assert update["score"].row(("NYDET", "NY")).is_final
            assert update["score"].row(("NYDET", "DET")).state == "finally absent"
            server.kill()
            server.start()
            with pytest.raises(whence.WhenceError, match="at"):
                client.insert("trade", (30, "A", 99))
            client.insert("trade", (61, "A", 150))
            update = follow.wait_for(client.position, timeout=PATIENCE)
            assert update["hourly"].row(0).is_final
            assert update["calm"].row(1).state == "finally absent" or not update["calm"].row(1)
            fresh = client.subscribe("score").next(timeout=PATIENCE)
            assert fresh is not None
            assert fresh.final == [("NYDET", "NY", 4)]
