-- Two exchanges, seen by a broker (examples/market.py): the sources are created first, as their addresses are known.
CREATE VIEW board AS
  SELECT issue, time_bucket(INTERVAL '10 seconds', at) AS since,
         COUNT(*) AS trades, SUM(shares) AS shares, MIN(price) AS low, MAX(price) AS high
  FROM (SELECT * FROM new_york UNION ALL SELECT * FROM london) AS trade
  GROUP BY issue, time_bucket(INTERVAL '10 seconds', at);
CREATE VIEW quiet AS SELECT issue, since, trades FROM board WHERE high < 105;
