"""A market with alerts: everybody has their own ranges, and is told only what concerns them.

    python examples/alerts.py                 # 1,000 users, in memory
    python examples/alerts.py 100000          # an offer finds whom it concerns, however many there are
    python examples/alerts.py 1000 ./market   # in a folder: run it again, and the subscriptions are there

Users ask the same few questions with bounds of their own. A subscription is a row of parameters: it is stored, loaded
and changed like any row. Ada is in this process. Bob is somewhere else, and is told the reason, too. Brokers that know
their users themselves follow messages.
"""

import random
import sys
from collections import Counter
from pathlib import Path

import whence

PROGRAM = """
CREATE TABLE IF NOT EXISTS offer (id INT PRIMARY KEY, product TEXT, price INT, quantity INT);
CREATE STREAM IF NOT EXISTS trade (product TEXT, price INT, quantity INT);

-- One question, asked by many. NULL is no bound.
CREATE TEMPLATE IF NOT EXISTS alert AS
  SELECT id, price, quantity FROM offer
  WHERE product = :product AND price <= :most AND quantity >= :least;

-- What is the best price for the quantities that somebody can use?
CREATE TEMPLATE IF NOT EXISTS cheapest AS
  SELECT MIN(price) AS price FROM offer WHERE quantity BETWEEN :low AND :high;

-- Of a stream, a subscription is told what comes while it is there.
CREATE TEMPLATE IF NOT EXISTS traded AS
  SELECT product, price, quantity FROM trade WHERE price * quantity >= :worth;
"""
PRODUCTS = ("tea", "iron", "zinc")
SAID = {
    "alert": "{2} tea at {1} (offer {0})",
    "cheapest": "the best price for 10 to 50 is {0}",
    "traded": "{2} {0} were traded at {1}",
}


def main(users: int, epochs: int, path: Path | None = None) -> None:
    """Make the market, let everybody subscribe, and trade."""
    with whence.open(path) as db:
        db.execute(PROGRAM)
        if not db["alert"].rows:
            dice = random.Random(1)
            db.insert("alert", [(id, dice.choice(PRODUCTS), dice.randrange(60), None) for id in range(1, users + 1)])
        with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
            ada = {
                "alert": db.subscribe("alert", product="tea", most=20, least=5),
                "cheapest": db.subscribe("cheapest", low=10, high=50),
                "traded": db.subscribe("traded", worth=5_000),
            }
            bob = client.subscribe("alert", product="zinc", most=0, least=90, why=True)
            follow(db, ada, epochs)
            tell_bob(db, bob)
            for subscription in (*ada.values(), bob):
                subscription.cancel()
        for name in db.templates:
            how = db.explain(name).partition("in groups: ")[2].partition("\n")[0]
            print(f"{name}: {len(db[name].rows):,} subscriptions, {how}")


def follow(db: whence.Database, ada: dict[str, whence.TemplateSubscription], epochs: int) -> None:
    """Trade, and print who is told what."""
    everybody, brokers = db.notifications("alert"), db.messages("cheapest")
    dice, told = random.Random(2), Counter[int]()
    for epoch in range(1, epochs + 1):
        with db.transaction():  # several offers in one epoch: everybody is told the net change once
            for _ in range(10):
                row = (dice.randrange(200), dice.choice(PRODUCTS), dice.randrange(10, 100), dice.randrange(1, 60))
                db.insert("offer", row)  # an offer with a known id replaces the one that has it
            db.insert("trade", row[1:])
        told.update(n.sign for n in everybody)
        for name, subscription in ada.items():
            for row in (row for update in subscription for row in update.came):
                print(f"epoch {epoch}: ada, {SAID[name].format(*row)}")
        for message in brokers:
            if message.reaches(10, 50):  # as a broker asks for each range of its users
                print(f"epoch {epoch}: a broker that knows ada's range tells her {message.value}")
    brokers.close()
    print(f"{len(db['alert'].rows):,} subscriptions were told {told[1]:,} offers, and that {told[-1]:,} are gone")


def tell_bob(db: whence.Database, bob: whence.Subscription) -> None:
    """Make an offer that bob waits for; he is told it with the rows that it follows from."""
    db.insert("offer", (1_000, "zinc", 0, 99))
    while not (update := bob.next()).came:
        pass
    [row] = update.came
    reason = " and ".join(f"{table} {base['id']}" for table, base in update.why[row][0])
    print(f"bob, over the network: {row}, since there is {reason}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 1_000, 20, Path(given[1]) if len(given) > 1 else None)
