"""The optimizer as a program: the rules of Figures 19 and 22, corrected.

R1-R5 fill `space`: `split` is called, from outside, for entries that the program refers to and that are within bounds.
R7 and R8 are over BestCost instead of PlanCost, and read base relations, too; LocalCost is a view of its own. `floor`
has entries that are used but not opened, with a lower bound of what they cost.
Bound of Figure 22 is best cost less `detour`, which is a shortest path of regrets; the detour of a root is 0.
"""

from __future__ import annotations

SPACE = """
CREATE TABLE goal (entry BIGINT NOT NULL);
CREATE TABLE space (alternative BIGINT NOT NULL, entry BIGINT NOT NULL, l BIGINT NOT NULL, r BIGINT NOT NULL);
CREATE TABLE cost (alternative BIGINT NOT NULL, cost BIGINT NOT NULL);
CREATE TABLE floor (entry BIGINT NOT NULL, cost BIGINT NOT NULL);

CREATE VIEW local_cost AS
  SELECT s.alternative, s.entry, s.l, s.r, c.cost FROM space s JOIN cost c ON c.alternative = s.alternative;
"""

# R6 to R9: scans, unary and binary operators, and the least of each entry.
BEST_COST = """
CREATE VIEW best_cost AS
  SELECT entry, MIN(cost) AS cost FROM (
    SELECT entry, cost FROM floor
    UNION ALL
    SELECT entry, cost FROM local_cost WHERE l < 0
    UNION ALL
    SELECT a.entry, a.cost + x.cost AS cost FROM local_cost a JOIN best_cost x ON x.entry = a.l WHERE a.r < 0
    UNION ALL
    SELECT a.entry, a.cost + x.cost + y.cost AS cost
    FROM local_cost a JOIN best_cost x ON x.entry = a.l JOIN best_cost y ON y.entry = a.r
  ) p GROUP BY entry;
"""

# PlanCost of every alternative, and R10: the first of the cheapest ones of each entry.
BEST_PLAN = """
CREATE VIEW plan_cost AS
  SELECT alternative, entry, l, r, cost FROM local_cost WHERE l < 0
  UNION ALL
  SELECT a.alternative, a.entry, a.l, a.r, a.cost + x.cost AS cost
  FROM local_cost a JOIN best_cost x ON x.entry = a.l WHERE a.r < 0
  UNION ALL
  SELECT a.alternative, a.entry, a.l, a.r, a.cost + x.cost + y.cost AS cost
  FROM local_cost a JOIN best_cost x ON x.entry = a.l JOIN best_cost y ON y.entry = a.r;

CREATE VIEW best_plan AS
  SELECT p.entry, MIN(p.alternative) AS alternative
  FROM plan_cost p JOIN best_cost b ON b.entry = p.entry AND b.cost = p.cost GROUP BY p.entry;
"""

# Reference counts of 4.2.2: how many alternatives of the space read an entry; a root is needed anyway.
REFERENCE_COUNT = """
CREATE VIEW reference_count AS
  SELECT entry, COUNT(*) AS users FROM (
    SELECT entry FROM goal
    UNION ALL
    SELECT l AS entry FROM space WHERE l >= 0
    UNION ALL
    SELECT r AS entry FROM space WHERE r >= 0
  ) reads GROUP BY entry;
"""

# r0 to r4 of Figure 22: Bound as the best cost less the shortest path of regrets from a root.
BOUND = """
CREATE VIEW regret AS
  SELECT p.alternative, p.entry, p.l, p.r, p.cost - b.cost AS regret
  FROM plan_cost p JOIN best_cost b ON b.entry = p.entry;

CREATE VIEW detour AS
  SELECT entry, MIN(cost) AS cost FROM (
    SELECT entry, 0 AS cost FROM goal
    UNION ALL
    SELECT g.l AS entry, d.cost + g.regret AS cost FROM regret g JOIN detour d ON d.entry = g.entry WHERE g.l >= 0
    UNION ALL
    SELECT g.r AS entry, d.cost + g.regret AS cost FROM regret g JOIN detour d ON d.entry = g.entry WHERE g.r >= 0
  ) p GROUP BY entry;

CREATE VIEW bound AS
  SELECT b.entry, b.cost - d.cost AS cost FROM best_cost b JOIN detour d ON d.entry = b.entry;
"""
