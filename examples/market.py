"""Two exchanges, a broker that merges them, and a page whose numbers say what they can still become.

`python examples/market.py`, then open the address it prints. Every ten seconds the rows of the last ten become final:
both exchanges have said that nothing more comes before. Half-way London falls silent: values go on, but none is final
any more, and the page says whom it waits for.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import whence

HERE = Path(__file__).parent
ISSUES = ("ACME", "IRON", "TEA")


def trade(db: whence.Database, dice: random.Random, until: float) -> None:
    """Trade on one exchange until a time."""
    while time.monotonic() < until:
        db.insert("trade", [{"issue": dice.choice(ISSUES), "price": dice.randrange(90, 110), "shares": 100}])
        time.sleep(dice.uniform(0.05, 0.3))


def exchange(stack: ExitStack, folder: Path, name: str) -> tuple[whence.Database, whence.Server, str]:
    """Open and serve an exchange; return the statement by which a broker follows it, too."""
    db = stack.enter_context(whence.open())
    db.execute((HERE / "exchange.sql").read_text())
    server = stack.enter_context(whence.serve(db, port=0))
    token = folder / f"{name}.token"
    token.write_text(str(server.token))
    url = server.url.replace("http", "ws", 1)
    return db, server, f"CREATE SOURCE {name} FROM '{url}/trade' WITH (token_file = '{token}')"


def main(seconds: float, show: Callable[[whence.Update], None]) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        new_york, _, follow_new_york = exchange(stack, folder, "new_york")
        london, london_server, follow_london = exchange(stack, folder, "london")
        market = stack.enter_context(whence.open())
        market.execute(f"{follow_new_york};{follow_london};{(HERE / 'market.sql').read_text()}")
        server = stack.enter_context(whence.serve(market, port=0, pages=HERE / "market"))
        print(f"open {server.url}/#{server.token}", flush=True)

        start = time.monotonic()
        traders = [
            threading.Thread(target=trade, args=(new_york, random.Random(1), start + seconds)),
            threading.Thread(target=trade, args=(london, random.Random(2), start + seconds / 2)),
        ]
        for one in traders:
            one.start()
        subscription = stack.enter_context(market.subscribe("board", key=("issue", "since"), every="1 s"))
        for update in subscription.follow(timeout=5):
            show(update)
            if time.monotonic() > start + seconds:
                break
            if time.monotonic() > start + seconds / 2:
                london_server.close()
        for one in traders:
            one.join()


def printing() -> Callable[[whence.Update], None]:
    """Return what prints the news of each update, in words for people."""
    waited: set[str] = set()

    def show(update: whence.Update) -> None:
        for waiting in update.waiting_for:
            if waiting.source not in waited:
                print(
                    f"  waiting for {waiting.source} since {waiting.since:%H:%M:%S}; nothing is final before it speaks"
                )
        waited.clear()
        waited.update(waiting.source for waiting in update.waiting_for)
        for row in update.final:
            print(f"  final: {update.row(row[:2])}")
        for row in update.came:
            print(f"  {update.row(row[:2])}")

    return show


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0, printing())
