-- A network of two transit domains and their stubs, joined by one bridge (T2 - U1).
-- Which nodes reach which, and at what cost? Both views are recursive, and stay exact while cables come and go.

CREATE TABLE node  (name TEXT PRIMARY KEY, domain TEXT);
CREATE TABLE cable (a TEXT, b TEXT, cost INT);

CREATE VIEW link AS
  SELECT a AS src, b AS dst, cost FROM cable
  UNION
  SELECT b, a, cost FROM cable;

CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;

-- The recursion goes through MIN: only the best cost so far of each pair is extended, so cycles end by themselves.
CREATE VIEW path AS
  SELECT src, dst, cost FROM link
  UNION
  SELECT link.src, cheapest.dst, link.cost + cheapest.cost FROM link JOIN cheapest ON link.dst = cheapest.src;

CREATE VIEW cheapest AS
  SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;

-- Negation stands on top of the recursion, in the next stratum.
CREATE VIEW cut_off AS
  SELECT x.name AS src, y.name AS dst
  FROM node AS x CROSS JOIN node AS y
  WHERE x.name < y.name
    AND NOT EXISTS (SELECT 1 FROM reachable AS r WHERE r.src = x.name AND r.dst = y.name);

INSERT INTO node VALUES
  ('T1', 'transit west'), ('T2', 'transit west'), ('T3', 'transit west'),
  ('U1', 'transit east'), ('U2', 'transit east'),
  ('a1', 'stub a'), ('a2', 'stub a'), ('b1', 'stub b'), ('b2', 'stub b'), ('c1', 'stub c'), ('c2', 'stub c');

INSERT INTO cable VALUES
  ('T1', 'T2', 50), ('T2', 'T3', 50), ('T3', 'T1', 50), ('U1', 'U2', 50),
  ('T2', 'U1', 50),
  ('T1', 'a1', 10), ('a1', 'a2', 2), ('T3', 'b1', 10), ('b1', 'b2', 2), ('b2', 'T2', 10),
  ('U2', 'c1', 10), ('c1', 'c2', 2), ('c2', 'U1', 10);
