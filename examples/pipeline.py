"""Maintain routes from a stream of files, on Spark. Run `python examples/pipeline.py incoming`, stop with Ctrl-C.

A file of links has one JSON object per line: {"op": "+", "src": "A", "dst": "B", "cost": 5}. Each file is read once,
also when the program is started again.
"""

import signal
import sys
import threading
from pathlib import Path

import whence

incoming = Path(sys.argv[1] if len(sys.argv) > 1 else "incoming").absolute()
incoming.mkdir(exist_ok=True)
spark = whence.spark_session()  # this machine, unless spark-submit says otherwise

with whence.open("routes.db", spark=spark, retain=1) as db:
    if not db.tables:
        db.execute((Path(__file__).parent / "network.sql").read_text())

    links = spark.readStream.schema("op string, src string, dst string, cost int").json(str(incoming))
    db.attach("link", links, op="op")

    # Write every change of the view to a Spark sink: here a folder of Parquet files.
    db.changes_to("best", {"format": "parquet", "path": str(incoming.with_name("best-changes"))})

    query = db.start(trigger="1 second")
    seen, end = db.epoch, threading.Event()
    signal.signal(signal.SIGINT, lambda *_: end.set())
    while query.isActive and not end.wait(timeout=1):
        for epoch in query.recentProgress:
            if epoch["epoch"] > seen:
                seen = epoch["epoch"]
                print(f"epoch {seen}: {epoch['rows']} rows in, {epoch['rows_out']} out, {epoch['seconds']:.2f} s")
                print(db["farthest"])
    query.stop()
    if error := query.exception():
        raise error
