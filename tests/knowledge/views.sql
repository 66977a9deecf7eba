-- Views over the streams a and b of test_soundness.py: every operator of plans, alone and over others.

CREATE VIEW stream AS SELECT * FROM a;
CREATE VIEW filtered AS SELECT t, v FROM a WHERE k = 1 AND v > 0;
CREATE VIEW merged AS SELECT t, k, v FROM a UNION ALL SELECT t, k, v FROM b;
CREATE VIEW best AS SELECT k, MAX(v) AS high, MIN(v) AS low FROM a GROUP BY k;
CREATE VIEW counted AS SELECT k, COUNT(*) AS n, COUNT(v) AS m, COUNT(DISTINCT v) AS d FROM a GROUP BY k;
CREATE VIEW summed AS SELECT k, SUM(v) AS s, AVG(v) AS m FROM a GROUP BY k;
CREATE VIEW summed_up AS SELECT k, SUM(v) AS s FROM b GROUP BY k;
CREATE VIEW by_half AS SELECT t // 2 AS half, COUNT(*) AS n, MAX(v) AS high FROM a GROUP BY t // 2;
CREATE VIEW by_tick AS SELECT t + 1 AS next, SUM(v) AS s FROM a GROUP BY t + 1;
CREATE VIEW even AS SELECT COUNT(*) AS n, SUM(v * v) AS s FROM a WHERE t % 2 = 0;
CREATE VIEW early AS SELECT k, MAX(v) AS high FROM a WHERE t < 3 GROUP BY k;
CREATE VIEW both AS SELECT k, COUNT(*) AS n, MAX(v) AS high FROM (SELECT t, k, v FROM a UNION ALL SELECT t, k,
    v FROM b) GROUP BY k;
CREATE VIEW computed AS SELECT k, 10 - SUM(v) AS free, MAX(v) - MIN(v) AS spread, ABS(MIN(v)) AS size, MAX(v)
    * 2 AS twice, COALESCE(MAX(v), 0) AS known, GREATEST(MAX(v), 1) AS most, LEAST(MIN(v), 0) AS least, CASE
    WHEN COUNT(*) > 1 THEN 'many' ELSE 'one' END AS many, COUNT(*) % 2 AS odd, COUNT(*) // 2 AS pairs, SUM(v)
    / COUNT(*) AS mean, CAST(MAX(v) AS DOUBLE) AS d, CAST(COUNT(*) AS TEXT) AS shown, -MAX(v) AS minus FROM a
    GROUP BY k;
CREATE VIEW truth AS SELECT k, MAX(v) < 1 AS low, COUNT(*) >= 2 AS many, MAX(v) IS NULL AS missing, MAX(v) = 2
    AS top, NOT (MIN(v) > 0) AS neg, MAX(v) < 1 AND COUNT(*) < 2 AS few, MAX(v) IN (1, 2) AS some FROM a GROUP
    BY k;
CREATE VIEW hidden AS SELECT MAX(v) < 2 AS low, COUNT(*) > 1 AS many FROM a GROUP BY k;
CREATE VIEW having_less AS SELECT k FROM a GROUP BY k HAVING MAX(v) < 1;
CREATE VIEW having_more AS SELECT k, COUNT(*) AS n FROM a GROUP BY k HAVING COUNT(*) > 1;
CREATE VIEW having_both AS SELECT k, SUM(v) AS s FROM a GROUP BY k HAVING COUNT(*) > 1 AND MAX(v) < 2;
CREATE VIEW having_any AS SELECT k, SUM(v) AS s FROM a GROUP BY k HAVING SUM(v) = 1;
CREATE VIEW having_or AS SELECT k, SUM(v) AS s FROM a GROUP BY k HAVING MAX(v) < 1 OR COUNT(*) > 1;
CREATE VIEW distinct_rows AS SELECT DISTINCT k, v FROM a;
CREATE VIEW distinct_count AS SELECT k, COUNT(*) AS n FROM (SELECT DISTINCT k, v FROM a) GROUP BY k;
CREATE VIEW excepted AS SELECT k FROM a EXCEPT SELECT k FROM b;
CREATE VIEW excepted_all AS SELECT k FROM a EXCEPT ALL SELECT k FROM b;
CREATE VIEW intersected AS SELECT k FROM a INTERSECT SELECT k FROM b;
CREATE VIEW not_there AS SELECT k, v FROM (SELECT DISTINCT k, v FROM a) x WHERE NOT EXISTS (SELECT 1 FROM
    (SELECT DISTINCT k FROM b) y WHERE y.k = x.k);
CREATE VIEW there AS SELECT k, v FROM (SELECT DISTINCT k, v FROM a) x WHERE EXISTS (SELECT 1 FROM (SELECT
    DISTINCT k FROM b) y WHERE y.k = x.k);
CREATE VIEW marked AS SELECT k, EXISTS (SELECT 1 FROM (SELECT DISTINCT k FROM b) y WHERE y.k = x.k) AS has
    FROM (SELECT DISTINCT k FROM a) x;
CREATE VIEW not_best AS SELECT k FROM (SELECT DISTINCT k FROM a) x WHERE NOT EXISTS (SELECT 1 FROM (SELECT k,
    SUM(v) AS s FROM b GROUP BY k) y WHERE y.k = x.k AND y.s > 0);
CREATE VIEW joined AS SELECT x.k, x.high, y.n FROM (SELECT k, MAX(v) AS high FROM a GROUP BY k) x JOIN (SELECT
    k, COUNT(*) AS n FROM b GROUP BY k) y ON x.k = y.k;
CREATE VIEW joined_on_less AS SELECT x.k, y.n FROM (SELECT k, MAX(v) AS high FROM a GROUP BY k) x JOIN (SELECT
    k, COUNT(*) AS n FROM b GROUP BY k) y ON x.k = y.k AND x.high > y.n;
CREATE VIEW joined_on_value AS SELECT x.k AS k, y.k AS j FROM (SELECT k, MAX(v) AS high FROM a GROUP BY k) x
    JOIN (SELECT DISTINCT k FROM b) y ON x.high = y.k;
CREATE VIEW optional AS SELECT x.k, x.n - COALESCE(y.s, 0) AS free FROM (SELECT k, COUNT(*) AS n FROM a GROUP
    BY k) x LEFT JOIN (SELECT k, SUM(v) AS s FROM b GROUP BY k) y ON x.k = y.k;
CREATE VIEW available AS SELECT x.k FROM (SELECT DISTINCT k FROM a) x LEFT JOIN (SELECT k, SUM(v) AS s FROM b
    GROUP BY k) y ON x.k = y.k WHERE 1 - COALESCE(y.s, 0) > 0;
CREATE VIEW optional_rows AS SELECT x.k, y.v FROM (SELECT DISTINCT k FROM a) x LEFT JOIN (SELECT DISTINCT k, v
    FROM b) y ON x.k = y.k;
CREATE VIEW full_rows AS SELECT x.k, y.k AS j FROM (SELECT DISTINCT k FROM a) x FULL JOIN (SELECT DISTINCT k
    FROM b) y ON x.k = y.k;
CREATE VIEW first_two AS SELECT t, v FROM a ORDER BY v DESC LIMIT 2;
CREATE VIEW over_view AS SELECT MAX(high) AS high, COUNT(*) AS n, MIN(low) AS low FROM best;
CREATE VIEW over_truth AS SELECT COUNT(*) AS n FROM truth WHERE low;
CREATE VIEW over_counts AS SELECT SUM(n) AS s, MAX(n) AS m FROM counted;
CREATE VIEW by_best AS SELECT high, COUNT(*) AS n FROM best GROUP BY high;
CREATE VIEW over_having AS SELECT COUNT(*) AS n FROM having_more;
CREATE VIEW over_hidden AS SELECT low FROM hidden WHERE many;
CREATE VIEW union_moves AS SELECT k, MAX(v) AS x FROM a GROUP BY k UNION ALL SELECT k, COUNT(*) AS x FROM b
    GROUP BY k;
CREATE VIEW union_best AS SELECT k, MAX(x) AS x FROM (SELECT k, MAX(v) AS x FROM a GROUP BY k UNION SELECT k,
    SUM(v) AS x FROM b GROUP BY k) GROUP BY k;
CREATE VIEW crossed AS SELECT x.n, y.high FROM (SELECT COUNT(*) AS n FROM a) x, (SELECT k, MAX(v) AS high FROM
    b GROUP BY k) y;
CREATE VIEW scalar AS SELECT k, (SELECT COUNT(*) FROM b) AS n FROM (SELECT DISTINCT k FROM a) x;
CREATE VIEW constant AS SELECT 1 AS one, 'x' AS two;
CREATE VIEW many_right AS SELECT y.v, x.k FROM (SELECT DISTINCT k, v FROM b) y RIGHT JOIN (SELECT DISTINCT k FROM
    a) x ON x.k = y.k;
CREATE VIEW one_right AS SELECT x.k, y.s, x.n FROM (SELECT k, SUM(v) AS s FROM b GROUP BY k) y RIGHT JOIN (SELECT
    k, COUNT(*) AS n FROM a GROUP BY k) x ON x.k = y.k;
CREATE VIEW right_on_more AS SELECT x.k, y.v FROM (SELECT DISTINCT k, v FROM b) y RIGHT JOIN (SELECT DISTINCT k, v
    FROM a) x ON x.k = y.k AND x.v > y.v;
CREATE VIEW counted_left AS SELECT x.k, x.n, y.v FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) x LEFT JOIN
    (SELECT DISTINCT k, v FROM b) y ON x.k = y.k;
CREATE VIEW full_many AS SELECT x.k, x.v, y.k AS j, y.v AS w FROM (SELECT DISTINCT k, v FROM a) x FULL JOIN (SELECT
    DISTINCT k, v FROM b) y ON x.k = y.k;
CREATE VIEW full_one AS SELECT COALESCE(x.k, y.k) AS k, x.n, y.s FROM (SELECT COALESCE(k, 7) AS k, COUNT(*) AS n
    FROM a GROUP BY COALESCE(k, 7)) x FULL JOIN (SELECT COALESCE(k, 7) AS k, SUM(v) AS s FROM b GROUP BY
    COALESCE(k, 7)) y ON x.k = y.k;
CREATE VIEW full_using AS SELECT k, n, s, n + s AS both FROM (SELECT t AS k, COUNT(*) AS n FROM a GROUP BY t) x
    FULL JOIN (SELECT t AS k, SUM(v) AS s FROM b GROUP BY t) y USING (k);
CREATE VIEW full_sides AS SELECT x.t, y.t AS u FROM (SELECT DISTINCT t FROM a) x FULL JOIN (SELECT DISTINCT t FROM
    b) y ON x.t = y.t;
CREATE VIEW full_having AS SELECT COALESCE(x.t, y.t) AS t, x.n FROM (SELECT t, COUNT(*) AS n FROM a GROUP BY t) x
    FULL JOIN (SELECT DISTINCT t FROM b) y ON x.t = y.t WHERE COALESCE(x.n, 0) < 1;
CREATE VIEW less_than_some AS SELECT k FROM (SELECT DISTINCT k, v FROM a) x WHERE NOT EXISTS (SELECT 1 FROM (SELECT
    DISTINCT k, v FROM b) y WHERE y.k = x.k AND y.v > x.v);
CREATE VIEW no_partner AS SELECT v FROM (SELECT DISTINCT k, v FROM a) x WHERE NOT EXISTS (SELECT 1 FROM (SELECT
    DISTINCT k FROM b) y WHERE y.k = x.k);
CREATE VIEW having_exactly AS SELECT k, SUM(v) AS s, MAX(v) AS m FROM b GROUP BY k HAVING SUM(v) = 1;
CREATE VIEW first_ticks AS SELECT t, k FROM a ORDER BY t LIMIT 2;
CREATE VIEW first_by_null AS SELECT t, v FROM a ORDER BY k NULLS FIRST, v LIMIT 1;
CREATE VIEW second_two AS SELECT t, v FROM a ORDER BY t LIMIT 2 OFFSET 1;
CREATE VIEW first_of_group AS SELECT k, MAX(v) AS high FROM a GROUP BY k ORDER BY high DESC, k LIMIT 1;
CREATE VIEW first_halves AS SELECT t // 2 AS half, COUNT(*) AS n FROM a GROUP BY t // 2 ORDER BY half LIMIT 1;
CREATE VIEW first_hidden AS SELECT t FROM a ORDER BY v, t LIMIT 2;
CREATE VIEW first_counted AS SELECT COUNT(*) AS n, MAX(v) AS high FROM (SELECT t, v FROM a ORDER BY t LIMIT 2);
CREATE VIEW first_lowest AS SELECT k, MAX(v) AS high, COUNT(*) AS n FROM a GROUP BY k ORDER BY high, k LIMIT 1;
