"""Serve a trading board to browsers, and trade: `python examples/board.py`, then open the address it prints."""

import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import whence

HERE = Path(__file__).parent
ISSUES = {"ACME": 120.0, "IRON": 18.0, "TEA": 3.0, "WOOL": 45.0, "ZINC": 9.5}


def trade(client: whence.Client, dice: random.Random) -> None:
    """Trade some shares of some issues, in one epoch."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = []
    for issue in dice.sample(list(ISSUES), dice.randrange(1, 4)):
        ISSUES[issue] *= dice.uniform(0.99, 1.01)
        rows.append((issue, round(ISSUES[issue], 2), dice.randrange(1, 500), now))
    client.insert("trade", rows)


def main(seconds: float) -> None:
    with whence.open() as db:
        db.execute((HERE / "board.sql").read_text())
        with whence.serve(db, port=0, pages=HERE / "board") as server:
            print(f"open {server.url}/#{server.token}")
            with whence.connect(server.url, token=server.token) as client:
                dice, end = random.Random(1), time.monotonic() + seconds
                while time.monotonic() < end:
                    trade(client, dice)
                    time.sleep(dice.uniform(0.05, 0.4))
        print(db["board"])


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
