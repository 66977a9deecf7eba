"""A database on Spark, served over HTTP."""

from __future__ import annotations

from typing import Any

import whence
from tests.server.requesting import Requester


def test_a_database_on_spark_is_served(spark: Any) -> None:
    with whence.open(spark=spark, partitions=2) as db:
        db.execute(
            """
            CREATE TABLE link (src TEXT, dst TEXT);
            CREATE VIEW reachable AS SELECT src, dst FROM link
              UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
            """
        )
        with whence.serve(db, port=0) as server:
            ask = Requester(server)
            written = ask.post("/v1/table/link", [["A", "B"], ["B", "C"]]).json
            assert written["count"] == 2
            rows = ask.get(f"/v1/view/reachable?at_least={written['position']}").rows
            assert sorted(rows) == [["A", "B"], ["A", "C"], ["B", "C"]]
            assert ask.post("/v1/query", {"sql": "SELECT COUNT(*) AS n FROM reachable"}).rows == [[3]]
            why = ask.post("/v1/why/reachable", {"row": ["A", "C"]}).json
            assert (why["holds"], why["formula"]) == (True, "link(A, B) ∧ link(B, C)")
            tag = ask.get("/v1/view/reachable").headers["etag"]
            assert ask.get("/v1/view/reachable", headers={"If-None-Match": tag}).status == 304
            assert ask("DELETE", "/v1/table/link?src=A").json["count"] == 1
            assert ask.get("/v1/view/reachable", headers={"If-None-Match": tag}).rows == [["B", "C"]]
            what_if = ask.post("/v1/what_if", {"insert": {"link": [["C", "D"]]}, "views": ["reachable"]}).json
            assert {"src": "B", "dst": "D"} in what_if["views"]["reachable"]["inserted"]
            assert ask.get("/metrics").status == 200
