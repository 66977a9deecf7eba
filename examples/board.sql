-- A trading board: what each issue traded at, its high and low, and the busiest issues now.
CREATE STREAM trade (issue TEXT, price DECIMAL(10, 2), shares INT, at TIMESTAMP) WITH (retain = '1000 rows');
CREATE VIEW board AS
  SELECT issue, COUNT(*) AS trades, SUM(shares) AS shares, MIN(price) AS low, MAX(price) AS high
  FROM trade GROUP BY issue;
CREATE VIEW busiest AS SELECT issue, shares FROM board ORDER BY shares DESC, issue LIMIT 3;
