-- Routes in a network: a program to start from.
--
--     whence run examples/network.sql --source link=examples/links.jsonl
--     whence sql examples/network.sql
--
-- Views may refer to themselves and to each other, in any order.

CREATE TABLE link (src TEXT NOT NULL, dst TEXT NOT NULL, cost INT NOT NULL);

-- Pairs of nodes with a path from one to the other.
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;

-- Cheapest cost and fewest hops per pair. MIN inside the recursion keeps only the best values, so cycles end.
CREATE VIEW path AS
  SELECT src, dst, cost, 1 AS hops FROM link
  UNION
  SELECT link.src, best.dst, link.cost + best.cost, 1 + best.hops FROM link JOIN best ON link.dst = best.src;

CREATE VIEW best AS
  SELECT src, dst, MIN(cost) AS cost, MIN(hops) AS hops FROM path GROUP BY src, dst;

-- Plain SQL on top of recursion.
CREATE VIEW reach_of AS
  SELECT src, COUNT(*) AS nodes FROM reachable WHERE src <> dst GROUP BY src;

CREATE VIEW one_way AS
  SELECT src, dst FROM reachable AS r
  WHERE NOT EXISTS (SELECT 1 FROM reachable AS back WHERE back.src = r.dst AND back.dst = r.src);

CREATE VIEW farthest AS
  SELECT src, dst, cost FROM best WHERE src <> dst ORDER BY cost DESC LIMIT 3;
