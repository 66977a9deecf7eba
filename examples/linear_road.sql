-- Cars on expressways report where they are, and every segment's toll depends on the cars around it: the query SegTollS of
-- paper 003 (Table 2), with its five windows over the one stream of reports.
--
--     python examples/linear_road.py
--
-- `latest` is a relation: the rows that are in the window now. New reports replace old ones, and the views follow.

CREATE STREAM car_location (
  time INT NOT NULL, carid INT NOT NULL, speed INT NOT NULL,
  expway INT NOT NULL, dir INT NOT NULL, seg INT NOT NULL, xpos INT NOT NULL
);

-- Reports of the last 300 seconds.
CREATE VIEW recent AS SELECT expway, dir, seg, carid, speed, time FROM latest(car_location, on => time, width => 300);

-- The last report of every segment, and of every car.
CREATE VIEW last_in_segment AS
  SELECT expway, dir, seg, carid FROM latest(car_location, rows => 1, by => (expway, dir, seg));
CREATE VIEW last_of_car AS SELECT carid, expway, dir, seg, xpos FROM latest(car_location, rows => 1, by => carid);

-- Cars that reported in the last 30 seconds are on the road; the last four reports show where they were.
CREATE VIEW on_the_road AS SELECT carid, time FROM latest(car_location, on => time, width => 30);
CREATE VIEW last_four AS SELECT carid, xpos FROM latest(car_location, rows => 4, by => carid);

-- For every car on the road and every busy segment it has just gone through: the number of places where it was seen.
CREATE VIEW segment_toll AS
  SELECT r5.carid, r2.expway, r2.dir, r2.seg, COUNT(DISTINCT r5.xpos) AS places
  FROM recent AS r1, last_in_segment AS r2, last_of_car AS r3, on_the_road AS r4, last_four AS r5
  WHERE r2.expway = r3.expway AND r2.dir = 0 AND r3.dir = 0
    AND r2.seg < r3.seg AND r2.seg > r3.seg - 10
    AND r3.carid = r4.carid AND r3.carid = r5.carid
    AND r1.expway = r2.expway AND r1.dir = r2.dir AND r1.seg = r2.seg
  GROUP BY r5.carid, r2.expway, r2.dir, r2.seg;

-- Cars per segment within five minutes, and their speed: the basis of a toll.
CREATE VIEW congestion AS
  SELECT expway, dir, seg, COUNT(DISTINCT carid) AS cars, AVG(speed) AS speed FROM recent GROUP BY expway, dir, seg;

-- A car that reports the same place four times has stopped.
CREATE VIEW stopped AS
  SELECT carid, MIN(xpos) AS xpos FROM last_four GROUP BY carid HAVING COUNT(*) = 4 AND COUNT(DISTINCT xpos) = 1;
