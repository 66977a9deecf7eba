-- A network of transit domains and their stubs. Its links come as a stream.

CREATE TABLE node (name TEXT PRIMARY KEY, domain TEXT NOT NULL);
CREATE TABLE link (src TEXT NOT NULL, dst TEXT NOT NULL, cost INT NOT NULL);

-- Who reaches whom.
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst
  FROM link JOIN reachable ON link.dst = reachable.src;

-- At what cost: only the best of each pair goes around, so cycles end.
CREATE VIEW cheapest AS
  SELECT src, dst, MIN(cost) AS cost FROM (
    SELECT src, dst, cost FROM link
    UNION ALL
    SELECT link.src, cheapest.dst, link.cost + cheapest.cost
    FROM link JOIN cheapest ON link.dst = cheapest.src
  ) AS step
  GROUP BY src, dst;

-- Which nodes hang together: each goes by the first name it is connected with.
CREATE VIEW member AS
  SELECT node.name, COALESCE(MIN(r.dst), node.name) AS head
  FROM node LEFT JOIN reachable AS r ON r.src = node.name
  GROUP BY node.name;

CREATE VIEW region AS
  SELECT head, COUNT(*) AS nodes FROM member GROUP BY head;

-- Plain SQL on top: how many pairs of nodes of two domains reach each other.
CREATE VIEW domain_pairs AS
  SELECT a.domain AS src, b.domain AS dst, COUNT(*) AS pairs
  FROM reachable AS r
  JOIN node AS a ON a.name = r.src
  JOIN node AS b ON b.name = r.dst
  GROUP BY a.domain, b.domain;
