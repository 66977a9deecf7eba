-- Alarms of a machine with two sensors, and the readings behind each alarm. The network of paper 001 (Figure 1).
--
--     python examples/overheating.py
--
-- Every stage is a view, so that it can be read and traced to.

CREATE STREAM sensor1 (time INT NOT NULL, location INT NOT NULL, temp DOUBLE NOT NULL);
CREATE STREAM sensor2 (time INT NOT NULL, location INT NOT NULL, temp DOUBLE NOT NULL);

-- Drop outliers: no machine is that hot.
CREATE VIEW clean1 AS SELECT time, location, temp FROM sensor1 WHERE temp <= 350;
CREATE VIEW clean2 AS SELECT time, location, temp FROM sensor2 WHERE temp <= 350;

-- Averages of the last three readings, one per reading.
CREATE VIEW mean1 AS
  SELECT MIN(time) AS time, MIN(location) AS location, AVG(temp) AS temp FROM slide(clean1, rows => 3, every => 1);
CREATE VIEW mean2 AS
  SELECT MIN(time) AS time, MIN(location) AS location, AVG(temp) AS temp FROM slide(clean2, rows => 3, every => 1);

-- Both sensors by arrival, then by time, sorted by a buffer of four rows.
CREATE VIEW merged AS SELECT time, location, temp FROM mean1 UNION ALL SELECT time, location, temp FROM mean2;
CREATE VIEW sorted AS SELECT time, location, temp FROM bsort(merged, on => time, slack => 3);

CREATE VIEW hot AS SELECT time, location, temp FROM sorted WHERE temp >= 90;

-- How many places are hot within two units of time. Results are traced to the averages: P(8, {5}) of the paper.
CREATE VIEW places WITH (provenance = 'lineage', provenance_of = 'merged') AS
  SELECT window_start AS time, COUNT(DISTINCT location) AS locations
  FROM slide(hot, on => time, width => 2, every => 1) GROUP BY window_start;

-- An alarm is traced to the readings of both sensors.
CREATE VIEW alarm WITH (provenance = 'lineage') AS SELECT time, locations FROM places WHERE locations >= 2;

-- Should the threshold be raised? Places that would not count if it were 100.
CREATE VIEW revision AS
  SELECT time, merged_time, merged_location, merged_temp FROM provenance(places, merged)
  WHERE merged_temp < 100 AND locations > 1;
