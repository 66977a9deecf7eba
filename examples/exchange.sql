-- One exchange, which knows nothing of others: its trades, with the time at which it came to know each of them.
CREATE STREAM trade (
  issue TEXT NOT NULL,
  price INT NOT NULL CHECK (price > 0),
  shares INT NOT NULL CHECK (shares >= 0),
  at TIMESTAMP DEFAULT tick_time()
) WITH (retain = '10000 rows');
