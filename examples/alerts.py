"""A market with alerts: everybody has their own ranges, and is told only what concerns them.

`python examples/alerts.py` trades for a few seconds. Each user subscribes to the same question with other bounds; an
offer finds the users that it concerns, however many there are.
"""

import random
import sys
from collections import Counter

import whence

PROGRAM = """
CREATE TABLE offer (id INT PRIMARY KEY, product TEXT, price INT, quantity INT);

-- One question, asked by many. NULL is no bound.
CREATE TEMPLATE alert AS
  SELECT id, price, quantity FROM offer
  WHERE product = :product AND price <= :most AND quantity >= :least;

-- What is the best price for the quantities that somebody can use?
CREATE TEMPLATE cheapest AS
  SELECT MIN(price) AS price FROM offer WHERE quantity BETWEEN :low AND :high;
"""
PRODUCTS = ("tea", "iron", "zinc")


def main(users: int, epochs: int) -> None:
    dice = random.Random(1)
    with whence.open() as db:
        db.execute(PROGRAM)
        db.insert("alert", [(id, dice.choice(PRODUCTS), dice.randrange(60), None) for id in range(1, users + 1)])
        news = db.notifications("alert")
        ada = db.subscribe("alert", product="tea", most=20, least=5)  # one user in this process
        best = db.subscribe("cheapest", low=10, high=50)
        told = Counter[int]()
        for epoch in range(epochs):
            with db.transaction():  # several offers in one epoch: everybody is told the net change once
                for _ in range(10):
                    row = (dice.randrange(200), dice.choice(PRODUCTS), dice.randrange(10, 100), dice.randrange(1, 60))
                    db.insert("offer", row)  # an offer with a known id replaces the one that has it
            told.update(n.sign for n in news)
            for update in ada:
                for row in update.came:
                    print(f"epoch {epoch + 1}: ada, offer {row[0]} is {row[2]} for {row[1]}")
            for update in best:
                print(f"epoch {epoch + 1}: the best price for 10 to 50 is {update.rows[0][0]}")
        print(f"{users} users were told {told[1]} offers, and that {told[-1]} are gone")
        for row in ada.rows[:1]:
            print(db.subscription("alert", ada.id or 0).why(row))
        ada.cancel()
        print(db.explain("alert").splitlines()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, 20)
