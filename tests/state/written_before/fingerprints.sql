-- == aggregates

CREATE TABLE sale (shop TEXT, item TEXT, n INT, price DECIMAL(8,2), weight DOUBLE, day DATE)

CREATE VIEW query_2 AS SELECT shop, COUNT(*), COUNT(n), SUM(n), AVG(n), MIN(n), MAX(n) FROM sale GROUP BY shop
-- query_2 03030484db5f3fd1a8b54d939ceaeb8d

CREATE VIEW query_3 AS SELECT shop, SUM(price), AVG(price), MIN(price), MAX(price), SUM(n * price) FROM sale GROUP BY shop
-- query_3 7fcca499a9dab533ac0d9ab13b168a8a

CREATE VIEW query_4 AS SELECT shop, SUM(weight), AVG(weight), MIN(weight), MAX(weight) FROM sale GROUP BY shop
-- query_4 705a18b35d48b09c5c78bb4062aa33b8

CREATE VIEW query_5 AS SELECT shop, MIN(item), MAX(item), MIN(day), MAX(day) FROM sale GROUP BY shop
-- query_5 13a683ddf861f5a5bbeafe4a195594d8

CREATE VIEW query_6 AS SELECT item, COUNT(DISTINCT shop), COUNT(DISTINCT price), SUM(DISTINCT n) FROM sale GROUP BY item
-- query_6 e4c774e398c6c0a77bd33e4d4c707f31

CREATE VIEW query_7 AS SELECT shop, item, COUNT(*) FROM sale GROUP BY shop, item HAVING COUNT(*) > 1 OR item IS NULL
-- query_7 c795efe70379461991d2fbe69c7e4785

CREATE VIEW query_8 AS SELECT n % 2 AS odd, COUNT(*) AS many FROM sale GROUP BY n % 2
-- query_8 e139f499078e89234d76ecb252156aa5

CREATE VIEW query_9 AS SELECT UPPER(shop) AS s, SUM(n) + 1, MAX(price) - MIN(price) FROM sale GROUP BY UPPER(shop)
-- query_9 ab9c128bef454111a9b073915a87304d

CREATE VIEW query_10 AS SELECT shop, COUNT(*) FILTER (WHERE n > 1), SUM(n) FILTER (WHERE item = 'tea') FROM sale GROUP BY shop
-- query_10 c8702d0e2cf477b0fbe131c673ab715d

CREATE VIEW query_11 AS SELECT COUNT(*), SUM(n), MIN(shop), AVG(price) FROM sale
-- query_11 d724c0e038401fc56b9a8356d2910424

CREATE VIEW query_12 AS SELECT COUNT(*) FROM sale HAVING COUNT(*) > 100
-- query_12 74f329ae043c031fe79ef621242f8d01

CREATE VIEW query_13 AS SELECT shop FROM sale GROUP BY shop HAVING SUM(n) IS NULL
-- query_13 d0251f4d9a233d9d1334712f1e0807a7

CREATE VIEW query_14 AS SELECT bool_and(n > 1), bool_or(n > 4), shop FROM sale GROUP BY shop
-- query_14 e43efbf1a2a8893cd3aa227d8bf2d271

CREATE VIEW query_15 AS SELECT s, MAX(t) FROM (SELECT shop AS s, item, SUM(n) AS t FROM sale GROUP BY shop, item) AS x GROUP BY s
-- query_15 9da4056c6c9327b1136af916a60f2b7b

CREATE VIEW query_16 AS SELECT day, COUNT(*) FROM sale GROUP BY 1
-- query_16 f6556f1e4cb433d92ee1c7e95c8086b6

CREATE VIEW query_17 AS SELECT shop AS place, SUM(n) AS total FROM sale GROUP BY place
-- query_17 4dde4be949465ee9a3a78561ccf5ba39

CREATE VIEW query_18 AS SELECT EXTRACT(day FROM day) AS d, COUNT(*) FROM sale GROUP BY d
-- query_18 14946ae006b31d740acc175d274cd618

CREATE VIEW ends AS SELECT shop, MIN(price) AS lo, MAX(price) AS hi, MIN(item) AS first, COUNT(DISTINCT item) AS items FROM sale GROUP BY shop; CREATE VIEW whole AS SELECT COUNT(*) AS c, SUM(n) AS n, AVG(weight) AS w, MAX(day) AS last FROM sale
-- ends 65eb41463db67b7afe707413642dade4
-- whole d5c7715737df2294ebef582a8cef6ba1

-- == binding

CREATE TABLE t (i INT)

CREATE TABLE kv (k INT, v INT)

CREATE VIEW query_4 AS SELECT i + 1 AS j, COUNT(*) AS n FROM t GROUP BY j HAVING EXISTS (SELECT 1 FROM t AS u WHERE u.i = j)
-- query_4 f70c6f77fe0efe00efbc172c19504989

CREATE VIEW query_5 AS SELECT i + 1 AS j FROM t GROUP BY j HAVING j IN (SELECT u.i FROM t AS u WHERE u.i < j + 1)
-- query_5 34976423c6cbaf6cc99ff1c6ffbffb9a

CREATE VIEW query_6 AS SELECT i + 1 AS j FROM t ORDER BY (SELECT MAX(u.i) FROM t AS u WHERE u.i = j) DESC, j LIMIT 2
-- query_6 dce6f8e922c710ae0a5346f1570a9a6f

CREATE VIEW query_8 AS SELECT 123 AS x FROM kv ORDER BY MAX(v)
-- query_8 f63e1c3d80f7af73e3bf8a21c16c0db9

CREATE VIEW query_9 AS SELECT k FROM kv GROUP BY k ORDER BY SUM(v)
-- query_9 9086e71ffff27d6ff283405557ffc122

CREATE VIEW query_10 AS SELECT v FROM kv ORDER BY ALL
-- query_10 5642152002488429e0a591b3e8699906

CREATE VIEW query_11 AS SELECT k, v FROM kv ORDER BY ALL DESC LIMIT 2
-- query_11 45debec3c042d2ec3fea1ee03bd190cd

CREATE VIEW query_12 AS SELECT v FROM kv UNION SELECT k FROM kv ORDER BY v % 3, v LIMIT 3
-- query_12 46b146b2fbb238d622f97e4fbcea5ad1

CREATE VIEW query_13 AS VALUES (1, 'x'), (2, 'y'), (3, 'z') ORDER BY 1 DESC LIMIT 2
-- query_13 c6760fa7da3005760cafebd78af752aa

CREATE VIEW query_18 AS WITH a AS (SELECT i FROM t) SELECT k FROM kv WHERE k = 1
-- query_18 06ba35166b4e1cafd3dfd8df322026e1

CREATE VIEW query_24 AS VALUES (1, (SELECT MAX(i) FROM t)), (2, NULL)
-- query_24 0f4627af83351a1affe44a710f1c310e

CREATE VIEW query_25 AS SELECT SUM(v) FILTER (WHERE v > (SELECT MIN(i) FROM t)) AS s, MAX((SELECT MAX(i) FROM t) + k) AS m FROM kv
-- query_25 f701ae25d20d9f6862e4850023a1c98c

CREATE VIEW query_26 AS SELECT k, COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM t WHERE t.i = kv.v)) AS n, SUM(v) AS s FROM kv GROUP BY k
-- query_26 8df30dcb3f7f272504d50a66b171afe1

CREATE VIEW query_28 AS SELECT k, COUNT(*) FILTER (WHERE v IN (SELECT i FROM t)) AS n FROM kv GROUP BY k HAVING SUM(k) FILTER (WHERE k > (SELECT 0)) > 0
-- query_28 3815a5c9336ef900fd2f9ccfd14a4f81

-- == ddl

CREATE TABLE t (a INT PRIMARY KEY, b TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY, b TEXT NOT NULL)

CREATE VIEW v AS SELECT a + 1 AS c, b FROM t
-- v 0613e8b57fd083ae5f2105039b7ba651

CREATE VIEW w AS SELECT COUNT(*) AS n FROM v WHERE c > 2
-- w 821599b46acc18eb3d215e1e1f05a7ae

CREATE OR REPLACE VIEW v AS SELECT a + 10 AS c, b FROM t
-- v 681a0e9a37f7ec22448157518b7ca474

DROP VIEW IF EXISTS nothing

DROP VIEW v CASCADE

CREATE VIEW v2(x, y) AS SELECT a, b FROM t
-- v2 5f92022e1725413fff49268749a024f9

DROP TABLE t CASCADE

CREATE TABLE t (a INT)

CREATE TABLE Mixed (Aa INT)

CREATE VIEW query_33 AS SELECT AA FROM MIXED
-- query_33 fb45b70bdae7fc422f81104d624868c3

CREATE VIEW r(a) WITH (policy = 'dred', recursion_limit = '50') AS SELECT aa FROM mixed UNION SELECT a + 1 FROM r WHERE a < 5
-- r 7705e7ba2a1f30fa10c064667e7961f0

CREATE TABLE soft (a INT, seen TIMESTAMP) WITH (ttl = '1 day 12 h')

CREATE TABLE softer (a INT, seen TIMESTAMP) WITH (ttl_column = 'seen', ttl = '500 ms')

CREATE VIEW flat WITH (policy = 'dred', recursion_limit = 5, recursion_rows = 5, aggregate_selection = 'on') AS SELECT aa FROM mixed
-- flat fb45b70bdae7fc422f81104d624868c3

CREATE TABLE two (a INT, b INT, c TEXT, PRIMARY KEY (a, b))

-- == decimals

CREATE TABLE d (id INT, n DECIMAL(18,2), w DECIMAL(38,2), f DECIMAL(38,20), b BIGINT)

CREATE VIEW query_4 AS SELECT id, n + n, n - w, w * 2, -w, w + b, n * b, n % 7, w % 7 FROM d
-- query_4 6094d4c12e81e59a54a08c1154078bad

CREATE VIEW query_5 AS SELECT id, w > n, w = w, b < w, w <> 2.25, w IN (2.25, 3), w BETWEEN 0 AND 99999999999999999999999999999.99 FROM d
-- query_5 cee6c4b5aa3af551a633ed9c8d9de628

CREATE VIEW query_6 AS SELECT id, least(n, w), greatest(w, f), coalesce(w, 0), nullif(w, 2.25), CASE WHEN id < 3 THEN w ELSE n END FROM d
-- query_6 a69659c54ddd6255f8cd7ea19d9ba252

CREATE VIEW query_7 AS SELECT id, abs(w), sign(w), round(w, 1), round(f, 3), floor(f), ceil(f), round(w, -3) FROM d
-- query_7 b079521df3f60e70e6bcb8caa2b8b3d7

CREATE VIEW query_8 AS SELECT id, CAST(w AS TEXT), CAST(f AS TEXT), CAST(w AS DOUBLE), CAST(w AS DECIMAL(38,0)), CAST(b AS DECIMAL(38,5)), CAST(CAST(w AS TEXT) AS DECIMAL(38,1)), CAST(f AS BIGINT) FROM d
-- query_8 94dea33d4db276298f5a9e881dd64c01

CREATE VIEW query_9 AS SELECT CAST(2.5 AS DECIMAL(38,0)), CAST(-2.5 AS DECIMAL(38,0)), CAST(CAST(f AS DECIMAL(20,0)) AS INT), 12345678901234567890.5 + 1 FROM d WHERE id = 3
-- query_9 c2e4e70e47f18f5f632ec1e1f3d636b3

CREATE VIEW query_10 AS SELECT CAST('123456789012345678901234567890.125' AS DECIMAL(38,2)), CAST(CAST(0.1 AS DOUBLE) AS DECIMAL(38,20)), CAST(TRUE AS DECIMAL(20,1)), TRY_CAST('1e38' AS DECIMAL(38,0)), TRY_CAST('x' AS DECIMAL(38,0))
-- query_10 edecd8132cb5272b1ac472f637f98b62

CREATE VIEW query_11 AS SELECT SUM(n), SUM(w), SUM(f), COUNT(w), COUNT(DISTINCT w), SUM(DISTINCT n), MIN(w), MAX(w), MAX(f) FROM d
-- query_11 c4e783a0dc38473d82d47d84817b4c73

CREATE VIEW query_12 AS SELECT SUM(w * id) * 0.0001000000 FROM d WHERE id > 2
-- query_12 c384026e9adbf0cd437ec06214d63923

CREATE TABLE partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost DECIMAL(15,2))

CREATE VIEW query_15 AS SELECT ps_partkey, SUM(ps_supplycost * ps_availqty) AS value FROM partsupp GROUP BY ps_partkey
HAVING SUM(ps_supplycost * ps_availqty) > (SELECT SUM(ps_supplycost * ps_availqty) * 0.0001000000 FROM partsupp)
-- query_15 78ab18ad8beb5eb049596c29afce9215

CREATE VIEW query_16 AS SELECT w, id FROM d ORDER BY w DESC NULLS LAST LIMIT 3
-- query_16 ff9669173b7e04c892f83c5965126435

CREATE VIEW query_17 AS SELECT w, id FROM d ORDER BY w NULLS LAST LIMIT 2
-- query_17 a82f7abc2cf3bc8dcec2a89deada1a12

CREATE VIEW query_18 AS SELECT a.id, b.id FROM d AS a JOIN d AS b ON a.w = -b.w
-- query_18 a804ecf1f8c35e9cb8c738ec9e883889

CREATE VIEW query_19 AS SELECT n, SUM(w) FROM d GROUP BY n
-- query_19 0cd9ee1eb873b218c9ee9b13c66a19a1

CREATE VIEW query_20 AS SELECT DISTINCT abs(w) FROM d
-- query_20 1183182ec96cc699f514a11479ad5a00

CREATE VIEW query_21 AS SELECT n FROM d INTERSECT SELECT w + 9999999999999997.74 FROM d
-- query_21 c450ff2ff5f8cb856c72293471ddd7e9

CREATE VIEW query_22 AS SELECT w FROM d EXCEPT SELECT -w FROM d
-- query_22 a8ea7a3664e117dced70b3a9b0f61a7e

CREATE VIEW typed AS SELECT n + 1 AS a, n + n AS b, n * n AS c, CAST(n AS DECIMAL(18,9)) * CAST(n AS DECIMAL(18,9)) AS d,
  w * n AS e, n * b AS f, n * id AS g, n + b AS h, n % w AS i, -w AS j, round(w, 1) AS k, ceil(w) AS l FROM d WHERE id = 3
-- typed 66d1146351b9f90ceb94a281772f4eab

CREATE VIEW sums AS SELECT SUM(n) AS a, SUM(w) AS b, SUM(f) AS c, AVG(w) AS d FROM d
-- sums 4a95eb705e5f5a823711fa0e71450017

CREATE VIEW large AS SELECT SUM(w) AS s FROM d
-- large 87ae394c89dd19807b0882d141572067

CREATE VIEW query_30 AS SELECT COUNT(*) FROM d
-- query_30 3dfa4d7f6ae5cd274e21c3f42a5a7b3e

-- == dml

CREATE TABLE bag (a INT, b TEXT)

CREATE TABLE keyed (id INT PRIMARY KEY, v TEXT, n INT)

CREATE VIEW counts AS SELECT v, COUNT(*) AS c, SUM(n) AS n FROM keyed GROUP BY v
-- counts dcd5ebfa10d6f5e11e3da9c432a59682

-- == errors

CREATE TABLE link (src TEXT, dst TEXT, cost INT)

CREATE VIEW asked AS SELECT src, CAST(dst AS INT) AS n FROM link
-- asked 498deb5dfc190e0ebbfbfbe98d20bae1

-- == expressions

CREATE TABLE n (i INT, d DOUBLE, m DECIMAL(8,2), s TEXT)

CREATE VIEW query_2 AS SELECT 1 + 2 * 3 - 4, (1 + 2) * 3, -2 - -3, 2 + 3 = 5 AND NOT 1 > 2
-- query_2 ffa2f24ae6f914fa3daf7a80fbfb45ac

CREATE VIEW query_3 AS SELECT i, i + 1, i - 1, i * i, -i, i % 3, i // 2, i / 2 FROM n
-- query_3 23b6b4839365de1692534876d0d66ca5

CREATE VIEW query_4 AS SELECT m + 1, m - 0.5, m * 2, m * m, -m, m / 2 FROM n
-- query_4 fc11f2f74f49b3a3e97f021d75799984

CREATE VIEW query_5 AS SELECT d + 1, d * d, d - i, d / 2, i / d FROM n WHERE i <> 0
-- query_5 a3384acafcaffa497cac1d2f28d84447

CREATE VIEW query_8 AS SELECT i / 0, d / 0 FROM n
-- query_8 fe28853aaca53bfcd3d5ac4a40421b51

CREATE VIEW query_9 AS SELECT s = 'seven', s < 'seven', s >= 'Seven', s <> '' FROM n
-- query_9 5b165f6f0add20aa59a1f4b72736de9b

CREATE VIEW query_10 AS SELECT s LIKE 's%', s LIKE '_even', s ILIKE 'SE%', s NOT LIKE '%v%' FROM n
-- query_10 285e88d5fc03c48d835bdde7ae3c7312

CREATE VIEW query_11 AS SELECT i BETWEEN -7 AND 0, i NOT BETWEEN 1 AND 10, m BETWEEN -2 AND 2 FROM n
-- query_11 3d190bfcc0dc6ce70b969ceef0153990

CREATE VIEW query_12 AS SELECT i IN (7, 8, 9), s IN ('seven', ''), i NOT IN (0), m IN (1.25, 7) FROM n
-- query_12 01acb7beaf0925e3144dde8493fe457f

CREATE VIEW query_13 AS SELECT CASE WHEN i > 0 THEN 'plus' WHEN i < 0 THEN 'minus' ELSE 'zero or null' END FROM n
-- query_13 a4a8597c132689d5c3e23c884409f97b

CREATE VIEW query_14 AS SELECT CASE i WHEN 7 THEN 1.5 WHEN 0 THEN 2 END, IF(i > 0, i, 0) FROM n
-- query_14 f28fe31ac06c7768ef2819a27a858b65

CREATE VIEW query_15 AS SELECT 'it''s' || ' ' || i || '/' || m FROM n WHERE i IS NOT NULL
-- query_15 d517baa9f718b3ab142d516e5f96326f

CREATE VIEW query_16 AS SELECT i AS a, i + 1 AS b FROM n WHERE i + 1 > 0 AND (s = 'seven' OR d = 0)
-- query_16 e0d9b081a66c9996f21d1000ac660e14

CREATE VIEW query_17 AS SELECT * FROM (SELECT i, i * 2 AS twice FROM n) AS q WHERE twice <> 0
-- query_17 ac92543dad2ee1433c86ce61c54aa716

CREATE VIEW query_18 AS SELECT (i, s) = (7, 'seven') FROM n
-- query_18 7c366c9d6f8c6b6cb99ec2158e53738a

CREATE VIEW product AS SELECT i, CAST(i AS BIGINT) * 9000000000000000000 AS x FROM n WHERE i < 1 AND i > -2
-- product cc4cd2ef860202f52fa4fea9856e9e64

CREATE VIEW cube AS SELECT CAST(i AS BIGINT) * 4000000000 * 4000000000 AS x FROM n WHERE i = 1
-- cube 5d997e7ed3e6cc886bf208d3b6dc1fa5

-- == functions

CREATE TABLE w (k INT, s TEXT, n INT, d DOUBLE, m DECIMAL(8,3), dd DATE, ts TIMESTAMP)

CREATE VIEW query_2 AS SELECT k, LOWER(s), UPPER(s), LENGTH(s), REVERSE(s) FROM w
-- query_2 23590a7d9025d7fe44df11ea2d809812

CREATE VIEW query_3 AS SELECT k, TRIM(s), LTRIM(s), RTRIM(s), TRIM('Hd' FROM s) FROM w
-- query_3 bb24dcf1a8ed418d2a374de3b28c5dd2

CREATE VIEW query_4 AS SELECT k, SUBSTRING(s, 2), SUBSTRING(s, 2, 3), SUBSTRING(s FROM 1 FOR 2), LEFT(s, 3), RIGHT(s, 3) FROM w
-- query_4 fd762e3eb606183c50923288cf7c893b

CREATE VIEW query_5 AS SELECT k, REPLACE(s, 'o', '0'), CONCAT(s, '-', n), s || '-' || n, REPEAT(s, 2) FROM w
-- query_5 8b8c10e5ee4a8752083332258bff1e28

CREATE VIEW query_6 AS SELECT k, POSITION('o' IN s), STRPOS(s, 'World'), CONTAINS(s, 'ell'), STARTS_WITH(s, 'He'), ENDS_WITH(s, 'b') FROM w
-- query_6 225c198e989d72b23287f97dd51099bc

CREATE VIEW query_7 AS SELECT k, LPAD(s, 4, '*'), RPAD(s, 12, 'xy'), SPLIT_PART(s, ' ', 2) FROM w
-- query_7 f6ddf09364c3533440ade150cd9c5398

CREATE VIEW query_8 AS SELECT k, ABS(n), SIGN(n), ABS(d), ABS(m), MOD(n, 3) FROM w
-- query_8 723676d5177d22afa8849f05b2ecb5dd

CREATE VIEW query_9 AS SELECT k, FLOOR(d), CEIL(d), ROUND(d), ROUND(d, 1), ROUND(m, 2), FLOOR(m), CEIL(m) FROM w
-- query_9 9c2165eb978cc77e3a612c868e40201b

CREATE VIEW query_10 AS SELECT k, SQRT(ABS(d)), POWER(n, 2), EXP(d), LN(ABS(n) + 1), LOG10(ABS(n) + 1) FROM w
-- query_10 431e6230a7f62423440fb711b415c6aa

CREATE VIEW query_11 AS SELECT k, LEAST(n, 3), GREATEST(n, d), COALESCE(n, k), NULLIF(n, 0), IFNULL(n, 9) FROM w
-- query_11 1f5674e5de59df020f9513dc3221bebc

CREATE VIEW query_12 AS SELECT k, YEAR(dd), MONTH(dd), DAY(dd), QUARTER(dd), WEEK(dd), DAYOFYEAR(dd), DAYOFWEEK(dd) FROM w
-- query_12 5e5bafa0b59b1755d193b8213e6a5d08

CREATE VIEW query_13 AS SELECT k, EXTRACT(hour FROM ts), EXTRACT(minute FROM ts), EXTRACT(second FROM ts), EXTRACT(epoch FROM ts), DATE_PART('month', ts) FROM w
-- query_13 578d6a1453a2d7edbf83d26e542e893c

CREATE VIEW query_14 AS SELECT k, DATE_TRUNC('month', ts), DATE_TRUNC('hour', ts), DATE_TRUNC('year', CAST(dd AS TIMESTAMP)) FROM w
-- query_14 4b9061924d76bfc686032081768b3674

CREATE VIEW query_15 AS SELECT k, DATE_DIFF('day', dd, DATE '2024-03-01'), DATE_DIFF('month', dd, DATE '2024-03-01'), DATE_DIFF('year', dd, DATE '2024-03-01') FROM w
-- query_15 30b9935c72c2cf893c2fc1df1a80b802

CREATE VIEW query_16 AS SELECT k, dd + INTERVAL '1' DAY, ts + INTERVAL '90' MINUTE, dd - 1 FROM w
-- query_16 c9e99a14e1918ca60a50623e81e0104d

CREATE VIEW query_17 AS SELECT UPPER(LEFT(s, 1)) AS initial, COUNT(*) FROM w GROUP BY UPPER(LEFT(s, 1)) HAVING MAX(LENGTH(s)) > 3
-- query_17 9f384a6a4d33748350d7b7987e526441

CREATE VIEW query_18 AS SELECT a.k, b.k FROM w AS a JOIN w AS b ON LENGTH(a.s) = LENGTH(b.s) + 4
-- query_18 43a3c6cd9f9a7c6eb10558c456c403cc

-- == joins

CREATE TABLE a (k INT, x TEXT)

CREATE TABLE b (k INT, y TEXT)

CREATE TABLE c (x TEXT, z INT)

CREATE VIEW query_6 AS SELECT a.k, x, y FROM a JOIN b ON a.k = b.k
-- query_6 40e6e117c90f10d3bfb4bf3c5ca00e9d

CREATE VIEW query_7 AS SELECT a.k, x, y FROM a, b WHERE a.k = b.k
-- query_7 40e6e117c90f10d3bfb4bf3c5ca00e9d

CREATE VIEW query_8 AS SELECT k, x, y FROM a JOIN b USING (k)
-- query_8 40e6e117c90f10d3bfb4bf3c5ca00e9d

CREATE VIEW query_9 AS SELECT a.k, x, b.k, y FROM a LEFT JOIN b ON a.k = b.k
-- query_9 aeda2ec0c4fb540a3caf3fef46afb95b

CREATE VIEW query_10 AS SELECT a.k, x, b.k, y FROM a RIGHT JOIN b ON a.k = b.k
-- query_10 8c4b058ca2f2d4458a54dce8f0ae57b3

CREATE VIEW query_11 AS SELECT a.k, x, b.k, y FROM a FULL JOIN b ON a.k = b.k
-- query_11 835dca6b11b2d8c39eef64d699bd60f8

CREATE VIEW query_12 AS SELECT k, x, y FROM a FULL JOIN b USING (k)
-- query_12 35c089becc5708ac171c58e5a58f1846

CREATE VIEW query_13 AS SELECT a.k, b.k FROM a CROSS JOIN b WHERE a.k < b.k
-- query_13 eea28ef1da1e2daf6a82eb4d2315d1ba

CREATE VIEW query_14 AS SELECT a.k, b.k FROM a JOIN b ON a.k < b.k AND b.y <> 'b4'
-- query_14 60bf10909c82b1f1f59553e0651b0ba8

CREATE VIEW query_15 AS SELECT a.x, b.y FROM a LEFT JOIN b ON a.k < b.k
-- query_15 50527bebcf42d7edb2b3ce921a03c763

CREATE VIEW query_16 AS SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.y LIKE 'b_' AND a.x <> 'a3'
-- query_16 7cd687a1824daf50bbb43e74c4df20f7

CREATE VIEW query_17 AS SELECT a.x, b.y FROM a FULL JOIN b ON a.k = b.k AND a.k > 2
-- query_17 1377eedb2aac5f4e605d49081970f5c0

CREATE VIEW query_18 AS SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k WHERE b.k IS NULL
-- query_18 1c89ed035bbcd0720c560ec331dc8dbd

CREATE VIEW query_19 AS SELECT a.x, b.y, c.z FROM a JOIN b ON a.k = b.k LEFT JOIN c ON c.x = a.x
-- query_19 9b4439f1185eea1f18c22395cfb83fc1

CREATE VIEW query_20 AS SELECT a.x, b.y, c.z FROM c LEFT JOIN a ON a.x = c.x LEFT JOIN b ON b.k = a.k
-- query_20 2ba1be3371f23979a56c4436d5c31b7a

CREATE VIEW query_21 AS SELECT l.k, r.k FROM a AS l JOIN a AS r ON l.k = r.k
-- query_21 d164c5b011927ed827a901a1a6142dde

CREATE VIEW query_22 AS SELECT l.x, r.x FROM a AS l JOIN a AS r ON l.k + 1 = r.k
-- query_22 7c128c7b4a11cd1d6ca2d91cd2abc423

CREATE VIEW query_23 AS SELECT a.k, c.z FROM a JOIN c ON UPPER(a.x) = UPPER(c.x) AND c.z / 10 = a.k
-- query_23 a562b12cc2c8f6790ee43b4341d4f691

CREATE VIEW query_24 AS SELECT * FROM a NATURAL JOIN c
-- query_24 1edc46f356a8195de49fa2c9a5aa3897

CREATE VIEW query_25 AS SELECT a.*, c.z FROM a JOIN c ON c.x = a.x WHERE a.k = 2
-- query_25 b6097fb45229ebf2e4d314500b050c12

CREATE VIEW query_26 AS SELECT COUNT(*) FROM a, b, c
-- query_26 e6d72bbb09cf3c41f13cead1103d3734

CREATE VIEW query_27 AS SELECT a.x, t.n FROM a JOIN (SELECT k, COUNT(*) AS n FROM b GROUP BY k) AS t ON t.k = a.k
-- query_27 e82343ce18a26c53ca4418aa53c9c190

CREATE VIEW kept AS SELECT a.x, b.y, c.z FROM a LEFT JOIN b ON a.k = b.k FULL JOIN c ON c.x = a.x
-- kept 463f4bb703f2cbbb4119cb4873ffac5a

CREATE TABLE n1 (a INT)

CREATE TABLE n2 (a INT, b INT)

CREATE TABLE n3 (b INT)

CREATE VIEW query_43 AS SELECT n1.a, n3.b FROM n1 JOIN n2 JOIN n3 ON n2.b = n3.b ON n1.a = n2.a
-- query_43 720309c2b8b927c06b0769fe3dbd6e41

CREATE TABLE pair (x INT, y INT); CREATE VIEW twice AS SELECT l.x, r.y FROM pair AS l JOIN pair AS r ON l.x = r.x AND l.x = r.y
-- twice 43acdc19b7b1803e57e74b86fb43a7ea

CREATE VIEW query_48 AS SELECT p.x FROM pair AS p, pair AS q, pair AS r WHERE p.x = q.x AND q.x = r.x AND CAST(0.50 AS DECIMAL(6,2)) = CAST(1.00 AS DECIMAL(6,2))
-- query_48 01cf3ae83c4ad9e8b5beffc4c47cdba7

-- == nulls

CREATE TABLE b (x BOOLEAN, y BOOLEAN)

CREATE VIEW query_2 AS SELECT x, y, x AND y, x OR y, NOT x FROM b
-- query_2 05fbecfbd453609cc52bf18fd2454a26

CREATE VIEW query_3 AS SELECT x, y FROM b WHERE x AND y
-- query_3 aed7d9a7307e92e7f0189bef79910082

CREATE VIEW query_4 AS SELECT x, y FROM b WHERE NOT (x OR y)
-- query_4 2e6bedf53611838f7bd5bf11e8aa311f

CREATE VIEW query_5 AS SELECT x, y, x = y, x <> y, x IS NULL, y IS NOT NULL, x IS DISTINCT FROM y, x IS NOT DISTINCT FROM y FROM b
-- query_5 bc1c63d16482ec397afef34178194bcb

CREATE TABLE t (k INT, a INT, s TEXT)

CREATE VIEW query_8 AS SELECT k FROM t WHERE a = NULL
-- query_8 90a81e47e1c78f43fa0b28197b5c4271

CREATE VIEW query_9 AS SELECT k FROM t WHERE a <> 3
-- query_9 530eb2bd7994554f6fa4beaaba9b9773

CREATE VIEW query_10 AS SELECT k FROM t WHERE NOT a > 1
-- query_10 9c1c96e8d6347a1d4cb6eb6e7056398c

CREATE VIEW query_11 AS SELECT k FROM t WHERE a IN (1, NULL)
-- query_11 0602c42157eb12b4ba240c9de9a5e689

CREATE VIEW query_12 AS SELECT k FROM t WHERE a NOT IN (1, NULL)
-- query_12 1ae8aeb0191798d08d8d5b7a9bfc52fd

CREATE VIEW query_13 AS SELECT k FROM t WHERE a NOT IN (1, 3)
-- query_13 f8b09adb7f307f9919035d8edd691cea

CREATE VIEW query_14 AS SELECT k, a BETWEEN 2 AND NULL, a BETWEEN NULL AND 2, s LIKE NULL, s || 'x' FROM t
-- query_14 9a13ae07d77fe4eb0eb5f30b4410228d

CREATE VIEW query_15 AS SELECT k, COALESCE(a, -1), COALESCE(s, 'none'), NULLIF(a, 3), CASE WHEN a > 2 THEN 'big' WHEN a IS NULL THEN 'none' END FROM t
-- query_15 4fd8015b80ed37d4c77aa453712bab2f

CREATE VIEW query_16 AS SELECT k, CASE a WHEN NULL THEN 'null' WHEN 1 THEN 'one' ELSE 'other' END FROM t
-- query_16 c678a8ea732bf95efb84dc1cefd0120e

CREATE VIEW query_17 AS SELECT k, a + NULL, -a, ABS(a), LEAST(a, 2), GREATEST(a, NULL), LEAST(NULL, NULL) FROM t
-- query_17 a2085e2aa4ae1fe48c8100ae7ab3ec5e

CREATE VIEW query_18 AS SELECT COUNT(*), COUNT(a), COUNT(s), COUNT(DISTINCT s), SUM(a), AVG(a), MIN(a), MAX(s) FROM t
-- query_18 ad0691a0003d347437ab74b18473f286

CREATE VIEW query_19 AS SELECT s, COUNT(*), COUNT(a), SUM(a), MIN(a) FROM t GROUP BY s
-- query_19 8e56f4a41a64eccf949e26c89502364c

CREATE VIEW query_20 AS SELECT SUM(a), MIN(a), COUNT(a), COUNT(*) FROM t WHERE a IS NULL
-- query_20 c45423f88c3fa0fcad991acd7092d625

CREATE VIEW query_21 AS SELECT COUNT(*), SUM(a), AVG(a), MAX(a) FROM t WHERE k > 100
-- query_21 acaed0644d7c4ecf293fe9b24ab170ac

CREATE VIEW query_22 AS SELECT s, SUM(a) FROM t WHERE k > 100 GROUP BY s
-- query_22 a8ca309b8841e9bfb44b0d4b69f57165

CREATE VIEW query_23 AS SELECT DISTINCT s FROM t
-- query_23 84a1ad85f1d2d54ac29a44490b39ef41

CREATE VIEW query_24 AS SELECT a FROM t INTERSECT SELECT NULL
-- query_24 d2377aa458d1d3ce38f1ad5404c85bba

CREATE VIEW query_25 AS SELECT a FROM t EXCEPT SELECT NULL
-- query_25 5bf2ccc8b2a7d667a3520a2c1b61a794

CREATE VIEW query_26 AS SELECT x.k, y.k FROM t AS x JOIN t AS y ON x.a = y.a
-- query_26 a65a2d4637fbe3ca363a00d43d09725e

CREATE VIEW query_27 AS SELECT x.k, y.k FROM t AS x JOIN t AS y ON x.a IS NOT DISTINCT FROM y.a
-- query_27 4bb50e5140e46291c92cf0d86592853e

CREATE VIEW query_28 AS SELECT x.k, y.k FROM t AS x LEFT JOIN t AS y ON x.a = y.a AND x.s = y.s
-- query_28 baddcbd7483d96c3e79fb17772e58ccf

CREATE VIEW query_29 AS SELECT k FROM t WHERE k NOT IN (SELECT a FROM t)
-- query_29 54ce8fcfb231d32c4f39199313a37fa2

CREATE VIEW query_30 AS SELECT k FROM t WHERE k NOT IN (SELECT a FROM t WHERE a IS NOT NULL)
-- query_30 e7bef114e9b8a018a33051d955c21ed5

CREATE VIEW query_31 AS SELECT k FROM t WHERE a NOT IN (SELECT k FROM t WHERE k > 3)
-- query_31 322b688acb11404c30c8361d5374f267

CREATE VIEW query_32 AS SELECT k FROM t WHERE a NOT IN (SELECT k FROM t WHERE k > 100)
-- query_32 33b310da02e5d28da43e30597d2399bd

CREATE VIEW query_33 AS SELECT x.k FROM t AS x WHERE x.a NOT IN (SELECT y.a FROM t AS y WHERE y.k = x.k + 1)
-- query_33 c6bd7eb80e1906bf8f14946e5eea79d4

CREATE VIEW query_34 AS SELECT x.k FROM t AS x WHERE x.a NOT IN (SELECT y.k FROM t AS y WHERE y.k = x.k + 1)
-- query_34 4d9260bbe0acf8d82d76fc46df735d81

CREATE VIEW query_35 AS SELECT k FROM t WHERE a NOT IN (SELECT k FROM t WHERE k > 3) AND a NOT IN (SELECT k FROM t WHERE k > 100)
-- query_35 06bbeba65c760d43cb59e9548d6b369e

CREATE VIEW query_36 AS SELECT x.k FROM t AS x WHERE NOT EXISTS (SELECT 1 FROM t AS y WHERE y.a = x.k)
-- query_36 a1da17a9751b6b652098c17cb3e411f9

CREATE VIEW query_37 AS SELECT k, a IN (SELECT k FROM t WHERE k < 4) FROM t
-- query_37 4ab9782e9ddbd296c25343c94c7140b6

CREATE VIEW query_38 AS SELECT k, 7 IN (SELECT a FROM t), 3 IN (SELECT a FROM t) FROM t WHERE k = 1
-- query_38 63ea7bffaa6115c1ad6cc799eb662e6e

CREATE VIEW query_39 AS SELECT k, a FROM t ORDER BY a, k
-- query_39 fba85b781fcd80b8a17f805ac768f406

CREATE VIEW query_40 AS SELECT k, a FROM t ORDER BY a DESC NULLS FIRST, k
-- query_40 fba85b781fcd80b8a17f805ac768f406

CREATE VIEW query_41 AS SELECT k, a FROM t ORDER BY a NULLS FIRST, k LIMIT 3
-- query_41 617b8a8df8f7beaccf425055eadadcf6

CREATE VIEW query_42 AS SELECT s FROM t GROUP BY s HAVING SUM(a) > 0
-- query_42 20e1dc5149226345fd7b23f054a41504

CREATE VIEW query_43 AS SELECT k FROM t WHERE NULL
-- query_43 b63fc79564116ed4f6c1d3cc2a308713

CREATE VIEW query_44 AS SELECT COALESCE(a, k) FROM t UNION ALL SELECT a FROM t
-- query_44 65b513e848ac07701f8653c7ff671943

CREATE VIEW query_45 AS SELECT x AND y FROM b UNION ALL SELECT x FROM b
-- query_45 a7496fcca02c14f1faf9d3d58d1e8b14

-- == recursion

CREATE TABLE link (src TEXT, dst TEXT, cost INT)

CREATE VIEW reach(src, dst) AS SELECT src, dst FROM link UNION SELECT l.src, r.dst FROM link AS l JOIN reach AS r ON l.dst = r.src
-- reach 54f46fc5f8d8241a73656074aa02a66d

CREATE VIEW total AS SELECT COUNT(*) AS pairs FROM even; CREATE VIEW even(a, b) AS SELECT l.src, o.b FROM link AS l JOIN odd AS o ON l.dst = o.a; CREATE VIEW odd(a, b) AS SELECT src, dst FROM link UNION SELECT l.src, e.b FROM link AS l JOIN even AS e ON l.dst = e.a
-- total b9aaa3367ca86252076fc7976c481ee3
-- even 44fad03d0f5bef89e37a306819a26bbd
-- odd efc9004ced712c6ac455de9bfc98af7b

CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link UNION ALL SELECT l.src, c.dst, l.cost + c.cost FROM link AS l JOIN cheapest AS c ON l.dst = c.src) AS x GROUP BY src, dst
-- cheapest 3993e95789ee1ea1d94d6d59c4e7d6f5

CREATE VIEW query_17 AS WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 4) SELECT n FROM r
-- query_17 024121b4c2f3dcd9b1ffe6e5796d26d1

CREATE VIEW query_18 AS WITH RECURSIVE f(node, hops) AS (SELECT 'a', 0 UNION SELECT link.dst, f.hops + 1 FROM f JOIN link ON link.src = f.node WHERE f.hops < 3) SELECT node, MIN(hops) FROM f GROUP BY node
-- query_18 f66eadf1b57242419189ddf93e801f6e

CREATE VIEW from_a AS WITH RECURSIVE f(node) AS (SELECT 'a' UNION SELECT link.dst FROM f JOIN link ON link.src = f.node) SELECT COUNT(*) AS n, MAX(node) AS last FROM f
-- from_a 3b922665999ea2086c365df2107d0c4a

CREATE VIEW both AS SELECT src AS x FROM link UNION ALL SELECT x FROM both
-- both 96cf035a5fe3468fca440aa25072b52c

DROP VIEW both

CREATE TABLE hop (src INT, dst INT, kind TEXT); CREATE VIEW way(src, dst) AS SELECT src, dst FROM hop UNION SELECT way.src, hop.dst FROM way JOIN hop ON (way.dst = hop.src AND hop.kind = 'a') OR (hop.src = way.dst AND hop.kind = 'b' AND way.src <> 3)
-- way 905782b4d9211397de70f341f90edb03

CREATE TABLE seed (n INT)

CREATE VIEW counter(n) WITH (recursion_limit = '100') AS SELECT n FROM seed UNION SELECT n + 1 FROM counter WHERE n >= 10
-- counter 8b67e37412c8ca9b6032c2c2e7442973

CREATE VIEW query_47 AS WITH RECURSIVE a(x) AS (SELECT 1 UNION SELECT a.x + 1 FROM a WHERE a.x IN (WITH RECURSIVE b(y) AS (SELECT 1 UNION SELECT y + 1 FROM b WHERE y < 3) SELECT y FROM b)) SELECT x FROM a
-- query_47 770905751e39d88a78c7896f5c28cf5c

CREATE VIEW query_48 AS WITH RECURSIVE a(x) AS (SELECT 1 UNION SELECT s.y FROM (WITH RECURSIVE b(y) AS (SELECT x FROM a UNION SELECT y + 1 FROM b WHERE y < 3) SELECT y FROM b) AS s) SELECT x FROM a
-- query_48 2d5f325b4a5bca54cfcd1dabfc225a39

CREATE VIEW query_49 AS WITH RECURSIVE a(x) AS (SELECT 1 UNION SELECT x + 1 FROM a WHERE x < 2) SELECT a.x, s.y FROM a, (WITH RECURSIVE b(y) AS (SELECT 5 UNION SELECT y + 1 FROM b WHERE y < 6) SELECT y FROM b) AS s
-- query_49 08c02546917c5299a3de44f80c2e779b

-- == set_operations

CREATE TABLE p (x INT, y TEXT)

CREATE TABLE q (x INT, y TEXT)

CREATE VIEW query_4 AS SELECT * FROM p UNION SELECT * FROM q
-- query_4 aaf8cabe17a712e67d67836ded3b8b6b

CREATE VIEW query_5 AS SELECT * FROM p UNION ALL SELECT * FROM q
-- query_5 58c03340241896df4ef6a74d2bb6d45f

CREATE VIEW query_6 AS SELECT * FROM p INTERSECT SELECT * FROM q
-- query_6 28d6b4d6de67077a672091db00c93875

CREATE VIEW query_7 AS SELECT * FROM p INTERSECT ALL SELECT * FROM q
-- query_7 014b82fa0c6dd0408412e8b210c60789

CREATE VIEW query_8 AS SELECT * FROM p EXCEPT SELECT * FROM q
-- query_8 361209822cead010e1d6864cbe1c8bb2

CREATE VIEW query_9 AS SELECT * FROM p EXCEPT ALL SELECT * FROM q
-- query_9 2be24187aaae013c088a144fc1526a0b

CREATE VIEW query_10 AS SELECT x FROM p UNION ALL SELECT x FROM q EXCEPT SELECT 1
-- query_10 ddfe1a3f436cc1704fcbdbfc8e1ece42

CREATE VIEW query_11 AS SELECT x FROM p UNION (SELECT x FROM q INTERSECT SELECT 5)
-- query_11 e3666510e4a39c3a3fc8fdbc0c359407

CREATE VIEW query_12 AS SELECT DISTINCT x FROM p
-- query_12 b3607c480b6566269454d741b588b637

CREATE VIEW query_13 AS SELECT DISTINCT x % 2, y IS NULL FROM p
-- query_13 8a2677195ddae76ea6e0e3308f6f8bf9

CREATE VIEW query_14 AS SELECT x FROM p UNION SELECT 1.5
-- query_14 495f25f290c230e7fd9eb34119d10719

CREATE VIEW query_15 AS SELECT y, COUNT(*) FROM (SELECT * FROM p UNION ALL SELECT * FROM q) AS u GROUP BY y
-- query_15 abda8f3ac0dea32b10869ff268b6e3b5

CREATE VIEW u AS SELECT * FROM p UNION SELECT * FROM q; CREATE VIEW ea AS SELECT * FROM p EXCEPT ALL SELECT * FROM q; CREATE VIEW e AS SELECT * FROM p EXCEPT SELECT * FROM q; CREATE VIEW ia AS SELECT * FROM p INTERSECT ALL SELECT * FROM q; CREATE VIEW i AS SELECT * FROM p INTERSECT SELECT * FROM q
-- u aaf8cabe17a712e67d67836ded3b8b6b
-- ea 2be24187aaae013c088a144fc1526a0b
-- e 361209822cead010e1d6864cbe1c8bb2
-- ia 014b82fa0c6dd0408412e8b210c60789
-- i 28d6b4d6de67077a672091db00c93875

CREATE VIEW query_29 AS SELECT x FROM p WHERE x = 1 UNION SELECT DATE '2024-01-01'
-- query_29 8eb07e7155b199667a679daf5c6cc1fc

-- == streams

CREATE STREAM reading (time INT NOT NULL, loc INT, temp DOUBLE) WITH (retain = '1000 rows')

CREATE STREAM IF NOT EXISTS reading (time INT, loc INT, temp DOUBLE)

CREATE TABLE room (loc INT, name TEXT)

CREATE VIEW warm AS SELECT time, loc, temp * 2 AS twice FROM reading WHERE temp > 20
-- warm eddf1e42f08c0c279154099e5df114be

CREATE VIEW mean AS SELECT loc, AVG(temp) AS t, MIN(time) AS time FROM slide(reading, rows => 2, every => 1, by => loc) GROUP BY loc
-- mean 2c42101b6f5fa6a36d28bee2af4aa860

CREATE VIEW query_15 AS SELECT COUNT(*) AS n, SUM(time) AS s, FIRST(loc) AS f, LAST(temp) AS l FROM slide(reading, rows => 3, every => 3)
-- query_15 f299cd7955cc9eb76a0251ef44b46950

CREATE VIEW query_16 AS SELECT window_start, window_end, COUNT(DISTINCT loc) AS places FROM slide(reading, on => time, width => 4, every => 2)
GROUP BY window_start, window_end
-- query_16 f7057f69472e03c4240ef04e379b6ccd

CREATE VIEW query_17 AS SELECT loc, COUNT(*) AS n FROM slide(reading, on => time, width => 3, every => 3, origin => 1) GROUP BY loc HAVING COUNT(*) > 1
-- query_17 b52a76f23db2b8496eef46bc1d9667d1

CREATE VIEW query_18 AS SELECT MEDIAN(temp) AS m, QUANTILE(temp, 1) AS q, STDDEV_POP(temp) AS s FROM slide(reading, every => 3)
-- query_18 b9d77a58d1b64b7ccd0250fe4023b7c0

CREATE VIEW query_19 AS SELECT time FROM bsort(reading, on => time, slack => 2)
-- query_19 089c71d80d99f74290902567cc2ae626

CREATE VIEW query_20 AS SELECT time, name FROM reading JOIN room ON reading.loc = room.loc
-- query_20 501fbbc161fba6b5a0e096bd3e7114fe

CREATE VIEW query_21 AS SELECT time, name FROM room RIGHT JOIN reading ON reading.loc = room.loc AND temp > 30
-- query_21 646824b63a2890c463bba2edaba68b35

CREATE VIEW query_22 AS SELECT time FROM reading WHERE NOT EXISTS (SELECT 1 FROM room WHERE room.loc = reading.loc)
-- query_22 d4ee23c83e3dabdeb7135c6cc4ad3d55

CREATE VIEW query_23 AS SELECT a.time, b.t FROM slide(reading, rows => 1) AS a JOIN slide(mean, rows => 1) AS b ON a.loc = b.loc
-- query_23 8d4cdada9d0554d741e236b20ab6fcbf

CREATE VIEW query_24 AS SELECT time, name FROM reading LEFT JOIN room ON reading.loc + 1 = room.loc AND name <> 'kiln' WHERE temp > 10
-- query_24 c1ec5a850a6bf7bf288df2833b31cedb

CREATE VIEW query_25 AS SELECT time, name FROM room, reading WHERE reading.loc * 2 = room.loc * 2 AND temp > 30 AND name LIKE '%s%'
-- query_25 22342e32d9a1138499c1f418e8dfaf72

CREATE VIEW query_26 AS SELECT a.time, b.time AS other FROM slide(reading, rows => 2) AS a, slide(reading, rows => 2) AS b
WHERE a.loc + 1 = b.loc AND a.temp < b.temp + 20
-- query_26 11c3f3e10f91df79b93a163a5b4c8b7a

CREATE VIEW query_27 AS SELECT time, loc IN (SELECT loc FROM room WHERE name = 'kiln') AS k FROM reading
-- query_27 d277010361c66c864e3626c9b79d60a8

CREATE VIEW query_28 AS SELECT loc, temp FROM latest(reading, rows => 1, by => loc)
-- query_28 c9cb21fc4ad68932a841f00d46cf6c1d

CREATE VIEW query_29 AS SELECT loc, COUNT(*) AS n FROM reading GROUP BY loc
-- query_29 30f9bafcdec1c76bb84c4ac8746abd0c

CREATE VIEW query_30 AS SELECT time FROM warm UNION ALL SELECT time FROM mean
-- query_30 103de19789e1093fc37d232c7b44b808

DROP STREAM reading CASCADE

-- == subqueries

CREATE TABLE emp (id INT, dept TEXT, boss INT, pay INT)

CREATE TABLE dept (name TEXT, city TEXT)

CREATE VIEW query_4 AS SELECT id FROM emp WHERE dept IN (SELECT name FROM dept WHERE city = 'Rome')
-- query_4 ae534311a78aa68a3479f0ae0731f33d

CREATE VIEW query_5 AS SELECT id FROM emp WHERE dept NOT IN (SELECT name FROM dept WHERE name IS NOT NULL)
-- query_5 efc796fa5a752d4ae135ec47f5c03f8b

CREATE VIEW query_6 AS SELECT id FROM emp WHERE dept NOT IN (SELECT name FROM dept)
-- query_6 548dd4e0860189aee62517b207391b8b

CREATE VIEW query_7 AS SELECT name FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.name AND pay > 85)
-- query_7 620da16f58e1dbb6111077247d1841f5

CREATE VIEW query_8 AS SELECT name FROM dept WHERE NOT EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.name)
-- query_8 452a5f14bfcd4cf16aa8f79c326ef914

CREATE VIEW query_9 AS SELECT id FROM emp AS e WHERE EXISTS (SELECT 1 FROM emp AS x WHERE x.boss = e.id AND x.pay < e.pay)
-- query_9 c63d3b894f061a9603034c72328eae41

CREATE VIEW query_10 AS SELECT id FROM emp AS e WHERE NOT EXISTS (SELECT 1 FROM emp AS x WHERE x.pay > e.pay)
-- query_10 01bc706cc80898cc40f78a2da7eccc6c

CREATE VIEW query_11 AS SELECT id FROM emp AS e WHERE EXISTS (SELECT 1 FROM dept WHERE city = 'Rome')
-- query_11 cda2e0b23e4f5df6c5791ee113b2c353

CREATE VIEW query_12 AS SELECT id FROM emp WHERE (dept, pay) IN (SELECT dept, MAX(pay) FROM emp GROUP BY dept)
-- query_12 2f3fe3d1badf992987830675f257dc66

CREATE VIEW query_13 AS SELECT id, EXISTS (SELECT 1 FROM dept WHERE dept.name = emp.dept) AS known FROM emp
-- query_13 bcab51e13323b9796343a7b1507b42f7

CREATE VIEW query_14 AS SELECT id, dept IN (SELECT name FROM dept) FROM emp
-- query_14 31501d55c3a64c71cc35e35a71b3a07f

CREATE VIEW query_15 AS SELECT id FROM emp WHERE pay > (SELECT AVG(pay) FROM emp)
-- query_15 54159ffc2243a68a083419cde3f5dd44

CREATE VIEW query_16 AS SELECT id, pay - (SELECT MIN(pay) FROM emp) FROM emp
-- query_16 bfcfc94626688b264d209f3b625c2560

CREATE VIEW query_17 AS SELECT e.id FROM emp AS e WHERE e.pay = (SELECT MAX(x.pay) FROM emp AS x WHERE x.dept = e.dept)
-- query_17 624bf3f6d9ee73e66012925e64dc6685

CREATE VIEW query_18 AS SELECT d.name, (SELECT COUNT(*) FROM emp WHERE emp.dept = d.name) AS heads FROM dept AS d
-- query_18 f97602b5b6c1a3bf6b75b56b742363e8

CREATE VIEW query_19 AS SELECT id FROM emp WHERE dept = 'dev' OR dept IN (SELECT name FROM dept WHERE city = 'Rome')
-- query_19 96627f8c34f5b900db069e92ab01939a

CREATE VIEW query_20 AS SELECT id FROM emp WHERE NOT (dept IN (SELECT name FROM dept WHERE city = 'Rome') AND pay > 70)
-- query_20 ee855fb24f78747958105a20aa041d55

CREATE VIEW query_21 AS WITH rich AS (SELECT id, dept FROM emp WHERE pay >= 90), towns AS (SELECT name, city FROM dept) SELECT rich.id, towns.city FROM rich JOIN towns ON towns.name = rich.dept
-- query_21 01b820db6699f1bea2b7a906950032ec

CREATE VIEW query_22 AS WITH a(x) AS (SELECT pay FROM emp), b AS (SELECT x, COUNT(*) AS n FROM a GROUP BY x) SELECT * FROM b WHERE n > 1
-- query_22 2e6ff74a2f386f2975b95d9c2759ccab

CREATE VIEW query_23 AS SELECT q.city, SUM(q.pay) FROM (SELECT d.city, e.pay FROM dept AS d JOIN emp AS e ON e.dept = d.name) AS q GROUP BY q.city
-- query_23 3f487a0afef9b1a59f6e55676de0fa88

CREATE VIEW nowhere AS SELECT id FROM emp WHERE dept NOT IN (SELECT name FROM dept); CREATE VIEW above AS SELECT id FROM emp WHERE pay > (SELECT AVG(pay) FROM emp); CREATE VIEW idle AS SELECT name FROM dept WHERE NOT EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.name)
-- nowhere 548dd4e0860189aee62517b207391b8b
-- above 54159ffc2243a68a083419cde3f5dd44
-- idle 452a5f14bfcd4cf16aa8f79c326ef914

-- == topk

CREATE TABLE score (player TEXT, game TEXT, points INT)

CREATE VIEW best AS SELECT player, points FROM score ORDER BY points DESC NULLS LAST, player LIMIT 3; CREATE VIEW middle AS SELECT player, points FROM score ORDER BY points, player LIMIT 2 OFFSET 1
-- best d1aee0f75abd80af89417571a5f8de47
-- middle 04bbc08cb7c2a07c16a2db0c6d9c3991

CREATE VIEW query_5 AS SELECT player, points FROM score ORDER BY points DESC, player LIMIT 2
-- query_5 0669aeb4fa1c6a2068c797ecb90cf506

CREATE VIEW query_6 AS SELECT player FROM score ORDER BY points DESC NULLS FIRST, player OFFSET 4
-- query_6 12f151202d575b2bf6bf22c2d76b2bed

CREATE VIEW query_7 AS SELECT points, COUNT(*) AS n FROM score GROUP BY points ORDER BY n DESC, points LIMIT 1
-- query_7 9875005bc3854d7bbeab4a3278477af6

CREATE VIEW query_8 AS SELECT game, points FROM score ORDER BY 1, 2 NULLS FIRST
-- query_8 775e4dfb4ddedc3fb11a304a08290cf2

CREATE VIEW query_9 AS SELECT player FROM score ORDER BY points LIMIT 0
-- query_9 cd83148cafa2a8025f98cd7f58365c67

CREATE VIEW query_10 AS SELECT s.player FROM (SELECT player FROM score ORDER BY player DESC LIMIT 2) AS s
-- query_10 2772cd5c23037bd7b97dc29a6a4743aa

CREATE TABLE tied (a INT, b TEXT, c INT)

CREATE VIEW tie AS SELECT a, b, c FROM tied ORDER BY a LIMIT 2
-- tie 19d4c9105d30676601813cfba60f602a

-- == types

CREATE TABLE v (id INT, b BOOLEAN, i INTEGER, l BIGINT, d DOUBLE, m DECIMAL(10,2), t TEXT, dd DATE, ts TIMESTAMP)

CREATE VIEW query_4 AS SELECT id, i // 2, l + 1, d * 2, m + 1, m * m, t || '!', b = TRUE FROM v
-- query_4 79c4c4b10459b74fc279683d91f60e9c

CREATE VIEW query_5 AS SELECT id, i + 1 FROM v
-- query_5 4252e1f8e61f5ac74c6abedd0c144705

CREATE VIEW query_6 AS SELECT id, dd + 1, ts - INTERVAL '1' HOUR, dd < DATE '2000-01-01', ts = TIMESTAMP '1969-12-31 00:00:00' FROM v
-- query_6 8e8480aa8e3f36dfd51e57df0afa1a0a

CREATE VIEW query_7 AS SELECT CAST('12' AS INT), CAST(12 AS TEXT), CAST(2.5 AS INT), CAST(3.5 AS INT), CAST('1.255' AS DECIMAL(5,2)), CAST(1 AS BOOLEAN)
-- query_7 22b3469eb132a0cf982624b78852c6b7

CREATE VIEW query_8 AS SELECT id, CAST(m AS INT), CAST(m AS DOUBLE), CAST(i AS TEXT), CAST(b AS INT), CAST(dd AS TIMESTAMP), CAST(ts AS DATE) FROM v
-- query_8 01356ab28699c1a5dcd948069af968f9

CREATE VIEW query_9 AS SELECT id, CAST(b AS TEXT), CAST(dd AS TEXT), CAST(m AS TEXT), TRY_CAST(t AS INT) FROM v
-- query_9 1d6459f3013e4be5685661a29d36e69d

CREATE VIEW query_10 AS SELECT TRY_CAST('x' AS INT), TRY_CAST('2024-02-30' AS DATE), '7'::INT
-- query_10 588d1667becf87295881720745012a5a

CREATE TABLE money (k TEXT, x DECIMAL(9,3))

CREATE VIEW query_15 AS SELECT k, SUM(x), MIN(x), MAX(x), AVG(x), COUNT(x) FROM money GROUP BY k
-- query_15 d24a23a3e601f5cc8d06e598e1c8d535

CREATE VIEW query_16 AS SELECT 0.1 + 0.2 = 0.3, 7 / 2, 7 // 2, -7 // 2, 7 % 3, -7 % 3, 2 * 3.5, 1e3
-- query_16 6fa2eb20e8eae245e5d13b0456f44ad5

CREATE TABLE spans (k INT, s INTERVAL)

CREATE VIEW query_19 AS SELECT k, s FROM spans
-- query_19 ea6a642973de79a3b175caa54abe5bff

CREATE VIEW query_20 AS SELECT k, TIMESTAMP '2024-01-31 10:00:00' + s FROM spans
-- query_20 a53bd2360dc62a19e465e2ccc56ddc1f

CREATE VIEW query_21 AS SELECT DATE '2024-01-31' + INTERVAL '1' MONTH, DATE '2024-03-31' - INTERVAL '1' MONTH, DATE '2024-03-01' - DATE '2024-02-01'
-- query_21 012824f05e9321276361cd9fa8758c4b

CREATE VIEW query_22 AS SELECT TIMESTAMP '2024-01-02 00:00:00' - TIMESTAMP '2024-01-01 12:00:00', INTERVAL '1' HOUR * 3
-- query_22 e47406af6c8d37421a55ad28ba6bb7be

CREATE VIEW query_23 AS SELECT id FROM v WHERE dd >= '2024-01-01' AND ts < '2025-01-01' AND i = '2147483647'
-- query_23 9d0324fae21c798674cd8bb7f410931b

CREATE VIEW query_28 AS SELECT COUNT(*) FROM v
-- query_28 477048fa4b0cf4b01e1adb3d6718a32e

CREATE VIEW met AS SELECT i AS x FROM v UNION ALL SELECT k FROM spans UNION ALL SELECT m FROM v
-- met 5e1ecc72decbcfee316d9c70482ef34d

CREATE VIEW query_33 AS SELECT COALESCE(i, d) FROM v UNION ALL SELECT 1
-- query_33 a3a2188bd87ed203d013a01b87a38623

CREATE TABLE f (x DOUBLE)

CREATE VIEW query_36 AS SELECT x FROM f WHERE x <> 0.0 ORDER BY x
-- query_36 16f4003301b4d4a242b09d2e86bc779f

CREATE VIEW query_37 AS SELECT COUNT(DISTINCT x), MIN(x), MAX(x) FROM f
-- query_37 d145be5a217a12bb996eca78117eafa9

CREATE VIEW query_38 AS SELECT CAST(-2147483648 AS INT) AS low, CAST(2147483647 AS INT) AS high, CAST('-2147483648' AS INT) AS text
-- query_38 e660ee3b04043ed09c23d895c78048be

CREATE TABLE moments (d DATE, s TIMESTAMP, n BIGINT, i INTERVAL)

CREATE VIEW later AS SELECT d + n AS day, s + i AS moment, s - i AS before FROM moments
-- later 22e14bea93358189eb73fdb5697d4a3c

CREATE VIEW query_51 AS SELECT COUNT(*) AS n FROM moments
-- query_51 d4eacfbf3a03135630561283e0f86ab3

-- == relations

CREATE TABLE link (src INT, dst INT, cost INT);
    CREATE TABLE node (id INT PRIMARY KEY, name TEXT, region TEXT);
    CREATE TABLE price (item TEXT, day DATE, amount DECIMAL(10, 2), weight DOUBLE, big DECIMAL(30, 4), ok BOOLEAN,
                        at TIMESTAMP, PRIMARY KEY (item, day));
    CREATE TABLE beacon (name TEXT PRIMARY KEY, seen TIMESTAMP) WITH (ttl = '1 hour', ttl_column = 'seen');
    CREATE TABLE ping (node INT, n INT) WITH (ttl = '60 s');
    CREATE TABLE closed (node INT);
    CREATE VIEW joined AS SELECT l.src, n.name, l.cost FROM link AS l JOIN node AS n ON n.id = l.dst WHERE l.cost > 2;
    CREATE VIEW unequal AS SELECT a.src, b.dst FROM link AS a JOIN link AS b ON a.cost < b.cost AND a.dst = b.src;
    CREATE VIEW triangle AS SELECT a.src, b.src AS mid, c.src AS last FROM link AS a, link AS b, link AS c
      WHERE a.dst = b.src AND b.dst = c.src AND c.dst = a.src;
    CREATE VIEW crossed AS SELECT c.node, p.n FROM closed AS c CROSS JOIN ping AS p;
    CREATE VIEW left_of AS SELECT l.src, l.dst, n.name FROM link AS l LEFT JOIN node AS n ON n.id = l.dst;
    CREATE VIEW right_of AS SELECT l.cost, n.name FROM link AS l RIGHT JOIN node AS n ON n.id = l.dst AND l.cost > 4;
    CREATE VIEW full_of AS SELECT b.name, n.id FROM beacon AS b FULL JOIN node AS n ON n.name = b.name;
    CREATE VIEW semi AS SELECT id FROM node WHERE EXISTS (SELECT 1 FROM link WHERE link.src = node.id AND cost > 3);
    CREATE VIEW anti AS SELECT id FROM node WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.dst = node.id);
    CREATE VIEW marked AS SELECT id, id NOT IN (SELECT node FROM closed) AS apart FROM node;
    CREATE VIEW scalar AS SELECT src, cost, (SELECT COUNT(*) FROM node WHERE node.id = link.src) AS known FROM link
      WHERE cost >= (SELECT AVG(cost) FROM link);
    CREATE VIEW totals AS SELECT src, COUNT(*) AS n, COUNT(cost) AS c, COUNT(DISTINCT dst) AS d, SUM(cost) AS s,
      SUM(DISTINCT cost) AS sd, AVG(cost) AS a, MIN(cost) AS low, MAX(cost) AS high, COUNT_IF(cost > 3) AS many,
      BOOL_AND(cost > 1) AS every_one, BOOL_OR(cost > 8) AS some, MIN(dst) FILTER (WHERE cost > 2) AS first
      FROM link GROUP BY src HAVING COUNT(*) > 1;
    CREATE VIEW money AS SELECT item, SUM(amount) AS s, SUM(weight) AS w, SUM(big) AS b, AVG(weight) AS aw,
      MIN(amount) AS low, MAX(big) AS high, MAX(at) AS newest, MIN(item || 'x') AS text, BOOL_AND(ok) AS ok
      FROM price GROUP BY item;
    CREATE VIEW whole AS SELECT COUNT(*) AS n, SUM(weight) AS w, SUM(amount) AS s, MAX(day) AS last FROM price;
    CREATE VIEW chosen AS SELECT region, ANY_VALUE(region) AS one FROM node GROUP BY region;
    CREATE VIEW distinct_of AS SELECT DISTINCT src, cost FROM link;
    CREATE VIEW one_of AS SELECT src AS x FROM link UNION SELECT node FROM closed;
    CREATE VIEW all_of AS SELECT src AS x FROM link UNION ALL SELECT node FROM closed;
    CREATE VIEW both AS SELECT src AS x FROM link INTERSECT SELECT dst FROM link;
    CREATE VIEW both_all AS SELECT src AS x FROM link INTERSECT ALL SELECT dst FROM link;
    CREATE VIEW but AS SELECT src AS x FROM link EXCEPT SELECT dst FROM link;
    CREATE VIEW but_all AS SELECT src AS x FROM link EXCEPT ALL SELECT dst FROM link;
    CREATE VIEW top AS SELECT src, dst, cost FROM link ORDER BY cost DESC, dst LIMIT 3;
    CREATE VIEW top_text AS SELECT item, day FROM price ORDER BY item DESC NULLS FIRST, day LIMIT 2 OFFSET 1;
    CREATE VIEW lateral_of AS SELECT l.src, x.i, x.p FROM link AS l, parts(l.cost) AS x;
    CREATE VIEW constants AS SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, t);
    CREATE VIEW called AS SELECT shout(name) AS name, UPPER(region) AS region, TRIM(name) AS t FROM node;
    CREATE VIEW expressed AS SELECT item, CASE WHEN ok THEN amount * 2 ELSE -amount END AS x, day + 3 AS later,
      at - INTERVAL '1 month 2 hours' AS earlier, EXTRACT(year FROM day) AS y, TRY_CAST(item AS INT) AS n,
      CAST(weight AS DECIMAL(25, 1)) AS w, item LIKE 'a%' AND NOT ok IS NULL AS liked, big % 7 AS rest,
      COALESCE(weight, 0.5) / 3 AS third, GREATEST(day, DATE '2024-02-01') AS d, item IN ('ab', 'b') AS listed,
      at - TIMESTAMP '2024-01-01' AS since, SUBSTRING(item, 1, 1) || LENGTH(item) AS s, ROUND(weight, 1) AS r
      FROM price WHERE amount BETWEEN -50 AND 90 OR ok;
    CREATE VIEW stacked AS SELECT region, SUM(s) AS s FROM totals JOIN node ON node.id = totals.src GROUP BY region;
    CREATE VIEW reach AS SELECT src, dst FROM link
      UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
    CREATE VIEW reach_dred WITH (policy = 'dred') AS SELECT src, dst FROM link
      UNION SELECT r.src, link.dst FROM reach_dred AS r JOIN link ON r.dst = link.src;
    CREATE VIEW pairs (a, b) AS SELECT src, dst FROM link
      UNION SELECT x.a, y.b FROM pairs AS x JOIN pairs AS y ON x.b = y.a;
    CREATE VIEW odd AS SELECT src, dst FROM link
      UNION SELECT e.src, link.dst FROM even AS e JOIN link ON e.dst = link.src;
    CREATE VIEW even AS SELECT o.src, link.dst FROM odd AS o JOIN link ON o.dst = link.src;
    CREATE VIEW open_path AS SELECT src, dst FROM link
      UNION SELECT p.src, link.dst FROM open_path AS p JOIN link ON p.dst = link.src
      WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
    CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW widest AS SELECT src, dst, MAX(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, w.dst, LEAST(link.cost, w.cost) FROM link JOIN widest AS w ON link.dst = w.src) AS q
      GROUP BY src, dst;
    CREATE VIEW path AS SELECT src, dst, cost, 1 AS hops FROM link
      UNION SELECT path.src, link.dst, path.cost + link.cost, path.hops + 1 FROM path JOIN link ON path.dst = link.src;
    CREATE VIEW fewest AS SELECT src, dst, MIN(hops) AS hops FROM path GROUP BY src, dst;
    CREATE VIEW route WITH (aggregate_selection = 'one') AS
      SELECT src, dst, src || '.' || dst AS vec, cost AS bw FROM link
      UNION SELECT link.src, route.dst, link.src || '.' || vec, LEAST(link.cost, route.bw)
            FROM link JOIN route ON link.dst = route.src;
    CREATE VIEW highest AS SELECT src, dst, MAX(bw) AS bw FROM route GROUP BY src, dst;
    CREATE VIEW highest_route AS SELECT route.src, route.dst, vec, route.bw FROM route
      JOIN highest ON route.src = highest.src AND route.dst = highest.dst AND route.bw = highest.bw;
    CREATE VIEW divided AS SELECT cost AS n FROM link UNION SELECT x.h FROM divided, halves(divided.n) AS x;
    CREATE VIEW upto AS
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT i FROM n;
    CREATE VIEW kept_auto WITH (maintain = 'absorption') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_auto AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_witnesses WITH (maintain = 'absorption', provenance = 'witnesses', propagate = 'eager') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_witnesses AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_bdd WITH (maintain = 'absorption', provenance = 'bdd') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_bdd AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_bdd_eager WITH (maintain = 'absorption', provenance = 'bdd', propagate = 'eager') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_bdd_eager AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_often WITH (maintain = 'absorption', propagate = '2 epochs') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_often AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_relative WITH (maintain = 'relative') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_relative AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_relative_eager WITH (maintain = 'relative', propagate = 'eager') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_relative_eager AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_cheapest WITH (maintain = 'absorption') AS
      SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN kept_cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW kept_safe WITH (maintain = 'relative') AS
      SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst)
      UNION SELECT link.src, s.dst FROM link JOIN kept_safe AS s ON link.dst = s.src
            WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
    CREATE VIEW kept_union WITH (maintain = 'absorption') AS SELECT src AS x FROM link UNION SELECT node FROM closed;
    CREATE VIEW kept_distinct WITH (maintain = 'relative') AS SELECT DISTINCT src FROM link WHERE cost > 3;
    CREATE VIEW kept_but WITH (maintain = 'absorption') AS SELECT src FROM link EXCEPT SELECT node FROM closed;
-- joined eddeaed47d4b23792b8838ef593de6d7
-- unequal 7c0af64d965b85196ec42f74a87e18c8
-- triangle 8ff8678ce5ae371a4f80fef1e243b364
-- crossed e85607fead56f757a461f4a60bf480d2
-- left_of 7c647b446ac1d479b8e75486884fc828
-- right_of 7d1386804ad3604095ab018edb8ed97b
-- full_of 449ff936678fa18ae26b690fecd9e622
-- semi 71d040dcbe115f74219cef7fc7e666a3
-- anti 3b6f7ff8e8e13d6eeda84f956f1a3526
-- marked 9ea20cb4d3409a5f05a1beaf4a1a14e5
-- scalar 017601078987ae37e35b1ec892f0dbd1
-- totals a5945c65decf95ada6adb539f68d0e05
-- money ede097a56c3a9bd68c8932d396b3acd0
-- whole 2d93bb4fb51ffa576f662f4eed8b7fdc
-- chosen ff2b655d08578c3e8c81683db80ebfe8
-- distinct_of 84df3121b8400035d73b3c52977ad720
-- one_of a40d24e9f002752ff18401910bf32993
-- all_of b6519df45ef95ea09e778fb691df8dd1
-- both 567ab0ccb5d099da12b0a5f4714eb9d9
-- both_all 293ca27253c1b73ecb05b58a85fac8d5
-- but 10da6be57ac260472e16794e5257d5f5
-- but_all d6e936fb8e07dec231b6fb05d9a5684d
-- top f641f81bb6c66bdd9d0f996e0da01403
-- top_text bca22b9a5cfe0a8cde51358f9965cfdb
-- lateral_of de70952a3bc4be1ec931d086673396a2
-- constants 2abc19c4224feb7e51c8fbf81142fc0c
-- called 95157efaa79f9248a59d89cf810e3f57
-- expressed 25c682ae4fced5bd5873c5e12f36b9f9
-- stacked 09d1606981b6caea4645f9060138f761
-- reach ed9b08d067e2f7ee5a853fb954764fa4
-- reach_dred 22cb3199e70ca0907fcc02def6b8f088
-- pairs 1f755cb99fe8331de3330d227f25d916
-- odd 3abd524e16904188dfbd0b5bdeb2276b
-- even d36d48d0b2449e4a52803fc6e8194647
-- open_path 1a27afac63ff9339eaed9f08dd07a24b
-- cheapest 12f7c1b0a2f3f2daef5f67bdbb3785ab
-- widest 3c57c3b56cddc986b464bd5f2a15d4b7
-- path 5955c2dc3d231c9fd26de05a73d8f422
-- fewest f0a28bc1ea3e813a7473ce51c8e49948
-- route 317b52f7337769f02eb92c6be0bb519d
-- highest 201ea4ac4dd491bf835449366e249205
-- highest_route 6222395d93a16ee3d017fe637135348d
-- divided 64a18a35a5aa42cf97fd3ec71488b3dd
-- upto 06fbef81e5ffada82e44c982cb317f33
-- kept_auto b370d5a58daeea087dd373009a634912
-- kept_witnesses 06695e1382d20524d19b9f47a5c68e8d
-- kept_bdd ec12dac89b9922dcd24d14c7372097c3
-- kept_bdd_eager 8d44f1684fe7d4a641d88100e9e6f724
-- kept_often 90157f35461c6cb6f4d672e9a64af88b
-- kept_relative dab22bb3eebc2c41420210ed441c1afd
-- kept_relative_eager c1a8139b5238cadf9635b83c5f333584
-- kept_cheapest c83bf6ae0d1afe78d162f6a4ac27a19d
-- kept_safe 06e6199503c21d271493dd4ce900b3a2
-- kept_union b3270aa45643ea2fb6d1727f1f149e7c
-- kept_distinct 3905f76bba284eacb9caf7749c929e9c
-- kept_but fd6ffac13b3f4871c87ca9d3912f76e1

-- == streams

CREATE STREAM a (k INT, name TEXT, v INT, t INT) WITH (retain = '30 rows');
    CREATE STREAM b (k INT, w DOUBLE, t INT) WITH (retain = 'all');
    CREATE STREAM c (at TIMESTAMP, v DECIMAL(9, 2));
    CREATE TABLE place (k INT, city TEXT);
    CREATE VIEW rows_by AS SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(name) AS m
      FROM slide(a, rows => 3, every => 2, by => k) GROUP BY k;
    CREATE VIEW timed_by AS SELECT k, name, MIN(v) AS low, window_end
      FROM slide(a, on => t, width => 20, every => 5, by => k) GROUP BY k, name, window_end;
    CREATE VIEW minutes AS SELECT window_start, AVG(v) AS m, COUNT(DISTINCT v) AS d
      FROM slide(c, on => at, width => '5 min', every => '1 min') GROUP BY window_start;
    CREATE VIEW pairs AS SELECT x.k, x.v, y.w FROM slide(a, rows => 4, by => k) AS x
      JOIN slide(b, rows => 3, by => k) AS y ON x.k = y.k;
    CREATE VIEW near AS SELECT x.k, x.v, y.w FROM slide(a, on => t, width => 9, by => k) AS x
      JOIN slide(b, on => t, width => 9, by => k) AS y ON x.k = y.k;
    CREATE VIEW counts AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY k;
    CREATE VIEW newest AS SELECT k, v FROM latest(a, rows => 2, by => k);
    CREATE VIEW names AS SELECT DISTINCT name FROM a;
    CREATE VIEW placed AS SELECT a.k, a.v, place.city FROM a JOIN place ON place.k = a.k;
    CREATE VIEW traced_by WITH (provenance = 'lineage') AS
      SELECT k, SUM(v) AS s FROM slide(a, rows => 3, every => 1, by => k) GROUP BY k;
    CREATE VIEW every_row AS SELECT COUNT(*) AS n, AVG(v) AS m, LAST(name) AS l, FIRST(k) AS f, STDDEV(v) AS sd,
      MEDIAN(v) AS md, QUANTILE(v, 0.9) AS q, COUNT(DISTINCT name) AS d FROM slide(a, rows => 5, every => 3);
    CREATE VIEW landmark AS SELECT COUNT(*) AS n, SUM(v) AS s FROM slide(a, every => 7);
    CREATE VIEW late_ones AS SELECT window_start, SUM(w) AS s, MAX(w) AS high
      FROM slide(b, on => t, width => 10, every => 5, lateness => 3) GROUP BY window_start;
    CREATE VIEW from_first AS SELECT window_start, COUNT(*) AS n, MIN(w) AS low
      FROM slide(b, on => t, width => 8, every => 8, origin => 'first') GROUP BY window_start;
    CREATE VIEW ordered WITH (retain = '5 rows') AS SELECT k, v, t FROM bsort(a, on => t, slack => 4);
    CREATE VIEW within AS SELECT k, w, t FROM bsort(b, on => t, within => 2);
    CREATE VIEW merged AS SELECT k, v AS x FROM a WHERE v > 3 UNION ALL SELECT k, t FROM b;
    CREATE VIEW over AS SELECT k, COUNT(*) AS n FROM slide(merged, rows => 6, every => 4) GROUP BY k;
    CREATE VIEW crossed AS SELECT x.k, x.v, y.w FROM slide(a, rows => 4) AS x JOIN slide(b, rows => 3) AS y
      ON x.k = y.k;
    CREATE VIEW lately AS SELECT k, w FROM latest(b, on => t, width => 12);
    CREATE VIEW split AS SELECT a.k, x.i FROM a, parts(a.v) AS x;
    CREATE VIEW traced WITH (provenance = 'lineage') AS
      SELECT SUM(v) AS s, MAX(t) AS t FROM slide(a, rows => 6, every => 2);
    CREATE VIEW traced_ids WITH (provenance = 'lineage', encoding = 'ids') AS
      SELECT window_start, COUNT(*) AS n FROM slide(b, on => t, width => 10, every => 5) GROUP BY window_start;
    CREATE VIEW traced_intervals WITH (provenance = 'lineage', encoding = 'intervals', retain = '7 rows') AS
      SELECT MAX(v) AS high FROM slide(a, rows => 4, every => 2);
    CREATE VIEW traced_deltas WITH (provenance = 'lineage', encoding = 'deltas') AS
      SELECT MIN(v) AS low, MEDIAN(v) AS mid FROM slide(a, rows => 5, every => 1);
    CREATE VIEW traced_words WITH (provenance = 'lineage', encoding = 'dictionary') AS
      SELECT x.v, y.w FROM slide(a, rows => 2) AS x JOIN slide(b, rows => 2) AS y ON x.k = y.k;
    CREATE VIEW traced_over WITH (provenance = 'lineage', provenance_of = 'merged') AS
      SELECT SUM(n) AS n FROM slide(over, rows => 2, every => 1);
    CREATE VIEW covered WITH (provenance = 'covering') AS
      SELECT MAX(t) AS t, AVG(v) AS m FROM slide(a, rows => 4, every => 2);
    CREATE VIEW covered_sorted WITH (provenance = 'covering') AS
      SELECT SUM(v) AS s FROM slide((SELECT * FROM bsort(a, on => t, slack => 2)), rows => 3, every => 2);
    CREATE VIEW covered_join WITH (provenance = 'covering') AS
      SELECT x.v, y.w FROM slide(a, rows => 3) AS x JOIN slide(b, rows => 2) AS y ON x.k = y.k;
    CREATE VIEW behind AS SELECT t, m, a_tid, a_v FROM provenance(covered, a) WHERE m > 3;
    CREATE VIEW behind_traced AS SELECT s, a_tid FROM provenance(traced, a);
-- rows_by e41b4516da2fc3b6c71ee2d608bbc384
-- timed_by 35de4a5367175c7d66bf48b3ff39edbc
-- minutes 56e4791d2b4e27e0a27c8c8a9b2cfa77
-- pairs 9359c2e2ad823b052eca6f70ac395aed
-- near d20f553d159596d7f1e086bb2d32f88d
-- counts 5de5cf9d082e99e7c497e4fef0b96aec
-- newest dc06c632fa0609229028c77384a3615d
-- names 767a2bf1bf618a82f0e64471a14c5215
-- placed 649979817ef0c0dcf6dded6bf5aab9c5
-- traced_by 6bf411804ed557432095b32f20dd2117
-- every_row bcea7ae6d58900ff5fcf4a0b8d5ab236
-- landmark c8fc6622d92cd39cacf3f390df34d6cf
-- late_ones 21f8fe4085d5ec68b8c2db0ed55e40df
-- from_first fe12d6bac1a6d5bc64d93ff4066712da
-- ordered 44a1f00f2bdbd62c8555ac0160fec4a4
-- within 46e78a852e0f99eeb150946993cfefc7
-- merged 735ed2e6d0ccf44ae3d9506bedac5c36
-- over 02ce3b5f395278631242a4c50c7fb13f
-- crossed 1d60e110dc243ed27e1303e4ac0a6751
-- lately 288001cf107ba09b263d631c77061557
-- split d61e8a92c988f963085dfa94432b3dc1
-- traced 424170d117da588dd9855f1e664c628b
-- traced_ids b6ab5253db41c316b62e9555c9941597
-- traced_intervals 96b74e1b5724a89c2cc005ecf3ea31d1
-- traced_deltas e145af83635baf5617652056031020a8
-- traced_words 293188dceab51674c341aea4bf58dbf4
-- traced_over 01f1cab0aafe87ea9494b9d723d9cd78
-- covered 9bd62f59c0067336c3777c3d6bcb3333
-- covered_sorted d6e3544d30d5e6ee05ce2bfdb35b4edd
-- covered_join fb42e6df56a0b35d8a1f539802df0726
-- behind 00834d658732666a9851a5aaeb53a4c4
-- behind_traced 55578df05ed69d8a6ca6d129185a9ec0

-- == partitions

CREATE TABLE link (src INT, dst INT, cost INT);
    CREATE TABLE node (id INT PRIMARY KEY, name TEXT, region TEXT);
    CREATE TABLE price (item TEXT, day DATE, amount DECIMAL(10, 2), weight DOUBLE, big DECIMAL(30, 4), ok BOOLEAN,
                        at TIMESTAMP, PRIMARY KEY (item, day));
    CREATE TABLE beacon (name TEXT PRIMARY KEY, seen TIMESTAMP) WITH (ttl = '1 hour', ttl_column = 'seen');
    CREATE TABLE ping (node INT, n INT) WITH (ttl = '60 s');
    CREATE TABLE closed (node INT);
    CREATE VIEW joined AS SELECT l.src, n.name, l.cost FROM link AS l JOIN node AS n ON n.id = l.dst WHERE l.cost > 2;
    CREATE VIEW unequal AS SELECT a.src, b.dst FROM link AS a JOIN link AS b ON a.cost < b.cost AND a.dst = b.src;
    CREATE VIEW triangle AS SELECT a.src, b.src AS mid, c.src AS last FROM link AS a, link AS b, link AS c
      WHERE a.dst = b.src AND b.dst = c.src AND c.dst = a.src;
    CREATE VIEW left_of AS SELECT l.src, l.dst, n.name FROM link AS l LEFT JOIN node AS n ON n.id = l.dst;
    CREATE VIEW right_of AS SELECT l.cost, n.name FROM link AS l RIGHT JOIN node AS n ON n.id = l.dst AND l.cost > 4;
    CREATE VIEW full_of AS SELECT b.name, n.id FROM beacon AS b FULL JOIN node AS n ON n.name = b.name;
    CREATE VIEW semi AS SELECT id FROM node WHERE EXISTS (SELECT 1 FROM link WHERE link.src = node.id AND cost > 3);
    CREATE VIEW anti AS SELECT id FROM node WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.dst = node.id);
    CREATE VIEW marked AS SELECT id, id NOT IN (SELECT node FROM closed) AS apart FROM node;
    CREATE VIEW scalar AS SELECT src, cost, (SELECT COUNT(*) FROM node WHERE node.id = link.src) AS known FROM link
      WHERE cost >= (SELECT AVG(cost) FROM link);
    CREATE VIEW totals AS SELECT src, COUNT(*) AS n, COUNT(cost) AS c, COUNT(DISTINCT dst) AS d, SUM(cost) AS s,
      SUM(DISTINCT cost) AS sd, AVG(cost) AS a, MIN(cost) AS low, MAX(cost) AS high, COUNT_IF(cost > 3) AS many,
      BOOL_AND(cost > 1) AS every_one, BOOL_OR(cost > 8) AS some, MIN(dst) FILTER (WHERE cost > 2) AS first
      FROM link GROUP BY src HAVING COUNT(*) > 1;
    CREATE VIEW money AS SELECT item, SUM(amount) AS s, SUM(weight) AS w, SUM(big) AS b, AVG(weight) AS aw,
      MIN(amount) AS low, MAX(big) AS high, MAX(at) AS newest, MIN(item || 'x') AS text, BOOL_AND(ok) AS ok
      FROM price GROUP BY item;
    CREATE VIEW whole AS SELECT COUNT(*) AS n, SUM(weight) AS w, SUM(amount) AS s, MAX(day) AS last FROM price;
    CREATE VIEW chosen AS SELECT region, ANY_VALUE(region) AS one FROM node GROUP BY region;
    CREATE VIEW distinct_of AS SELECT DISTINCT src, cost FROM link;
    CREATE VIEW one_of AS SELECT src AS x FROM link UNION SELECT node FROM closed;
    CREATE VIEW all_of AS SELECT src AS x FROM link UNION ALL SELECT node FROM closed;
    CREATE VIEW both AS SELECT src AS x FROM link INTERSECT SELECT dst FROM link;
    CREATE VIEW both_all AS SELECT src AS x FROM link INTERSECT ALL SELECT dst FROM link;
    CREATE VIEW but AS SELECT src AS x FROM link EXCEPT SELECT dst FROM link;
    CREATE VIEW but_all AS SELECT src AS x FROM link EXCEPT ALL SELECT dst FROM link;
    CREATE VIEW top AS SELECT src, dst, cost FROM link ORDER BY cost DESC, dst LIMIT 3;
    CREATE VIEW top_text AS SELECT item, day FROM price ORDER BY item DESC NULLS FIRST, day LIMIT 2 OFFSET 1;
    CREATE VIEW lateral_of AS SELECT l.src, x.i, x.p FROM link AS l, parts(l.cost) AS x;
    CREATE VIEW constants AS SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, t);
    CREATE VIEW called AS SELECT shout(name) AS name, UPPER(region) AS region, TRIM(name) AS t FROM node;
    CREATE VIEW stacked AS SELECT region, SUM(s) AS s FROM totals JOIN node ON node.id = totals.src GROUP BY region;
    CREATE VIEW reach AS SELECT src, dst FROM link
      UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
    CREATE VIEW odd AS SELECT src, dst FROM link
      UNION SELECT e.src, link.dst FROM even AS e JOIN link ON e.dst = link.src;
    CREATE VIEW even AS SELECT o.src, link.dst FROM odd AS o JOIN link ON o.dst = link.src;
    CREATE VIEW open_path AS SELECT src, dst FROM link
      UNION SELECT p.src, link.dst FROM open_path AS p JOIN link ON p.dst = link.src
      WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
    CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW widest AS SELECT src, dst, MAX(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, w.dst, LEAST(link.cost, w.cost) FROM link JOIN widest AS w ON link.dst = w.src) AS q
      GROUP BY src, dst;
    CREATE VIEW path AS SELECT src, dst, cost, 1 AS hops FROM link
      UNION SELECT path.src, link.dst, path.cost + link.cost, path.hops + 1 FROM path JOIN link ON path.dst = link.src;
    CREATE VIEW fewest AS SELECT src, dst, MIN(hops) AS hops FROM path GROUP BY src, dst;
    CREATE VIEW route WITH (aggregate_selection = 'one') AS
      SELECT src, dst, src || '.' || dst AS vec, cost AS bw FROM link
      UNION SELECT link.src, route.dst, link.src || '.' || vec, LEAST(link.cost, route.bw)
            FROM link JOIN route ON link.dst = route.src;
    CREATE VIEW highest AS SELECT src, dst, MAX(bw) AS bw FROM route GROUP BY src, dst;
    CREATE VIEW highest_route AS SELECT route.src, route.dst, vec, route.bw FROM route
      JOIN highest ON route.src = highest.src AND route.dst = highest.dst AND route.bw = highest.bw;
    CREATE VIEW divided AS SELECT cost AS n FROM link UNION SELECT x.h FROM divided, halves(divided.n) AS x;
    CREATE VIEW upto AS
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT i FROM n;
    CREATE VIEW spread_exchange WITH (partition = 'exchange') AS SELECT src, dst FROM link
      UNION SELECT link.src, s.dst FROM link JOIN spread_exchange AS s ON link.dst = s.src;
    CREATE VIEW spread_broadcast WITH (partition = 'broadcast') AS SELECT src, dst FROM link
      UNION SELECT link.src, s.dst FROM link JOIN spread_broadcast AS s ON link.dst = s.src;
    CREATE VIEW spread_one WITH (partition = 'one') AS SELECT src, dst FROM link
      UNION SELECT link.src, s.dst FROM link JOIN spread_one AS s ON link.dst = s.src;
    CREATE VIEW kept_auto_there WITH (maintain = 'absorption', partition = 'exchange') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_auto_there AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_witnesses_there WITH (maintain = 'absorption', provenance = 'witnesses', propagate = 'eager', partition = 'exchange') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_witnesses_there AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_bdd_there WITH (maintain = 'absorption', provenance = 'bdd', partition = 'exchange') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_bdd_there AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW kept_relative_there WITH (maintain = 'relative', partition = 'exchange') AS SELECT src, dst FROM link WHERE cost > 2
      UNION SELECT link.src, k.dst FROM link JOIN kept_relative_there AS k ON link.dst = k.src WHERE link.cost > 2;
    CREATE VIEW spread_pairs (a, b) WITH (partition = 'exchange') AS SELECT src, dst FROM link
      UNION SELECT x.a, y.b FROM spread_pairs AS x JOIN spread_pairs AS y ON x.b = y.a;
    CREATE VIEW spread_cheapest WITH (partition = 'exchange') AS
      SELECT src, dst, MIN(cost) AS cost FROM (SELECT src, dst, cost FROM link
      UNION ALL SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN spread_cheapest AS c ON link.dst = c.src) AS q
      GROUP BY src, dst;
    CREATE VIEW spread_safe WITH (partition = 'exchange', maintain = 'absorption') AS
      SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst)
      UNION SELECT link.src, s.dst FROM link JOIN spread_safe AS s ON link.dst = s.src
            WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.node = link.dst);
-- joined eddeaed47d4b23792b8838ef593de6d7
-- unequal 7c0af64d965b85196ec42f74a87e18c8
-- triangle 8ff8678ce5ae371a4f80fef1e243b364
-- left_of 7c647b446ac1d479b8e75486884fc828
-- right_of 7d1386804ad3604095ab018edb8ed97b
-- full_of 449ff936678fa18ae26b690fecd9e622
-- semi 71d040dcbe115f74219cef7fc7e666a3
-- anti 3b6f7ff8e8e13d6eeda84f956f1a3526
-- marked 9ea20cb4d3409a5f05a1beaf4a1a14e5
-- scalar 017601078987ae37e35b1ec892f0dbd1
-- totals a5945c65decf95ada6adb539f68d0e05
-- money ede097a56c3a9bd68c8932d396b3acd0
-- whole 2d93bb4fb51ffa576f662f4eed8b7fdc
-- chosen ff2b655d08578c3e8c81683db80ebfe8
-- distinct_of 84df3121b8400035d73b3c52977ad720
-- one_of a40d24e9f002752ff18401910bf32993
-- all_of b6519df45ef95ea09e778fb691df8dd1
-- both 567ab0ccb5d099da12b0a5f4714eb9d9
-- both_all 293ca27253c1b73ecb05b58a85fac8d5
-- but 10da6be57ac260472e16794e5257d5f5
-- but_all d6e936fb8e07dec231b6fb05d9a5684d
-- top f641f81bb6c66bdd9d0f996e0da01403
-- top_text bca22b9a5cfe0a8cde51358f9965cfdb
-- lateral_of de70952a3bc4be1ec931d086673396a2
-- constants 2abc19c4224feb7e51c8fbf81142fc0c
-- called 95157efaa79f9248a59d89cf810e3f57
-- stacked 09d1606981b6caea4645f9060138f761
-- reach ed9b08d067e2f7ee5a853fb954764fa4
-- odd 3abd524e16904188dfbd0b5bdeb2276b
-- even d36d48d0b2449e4a52803fc6e8194647
-- open_path 1a27afac63ff9339eaed9f08dd07a24b
-- cheapest 12f7c1b0a2f3f2daef5f67bdbb3785ab
-- widest 3c57c3b56cddc986b464bd5f2a15d4b7
-- path 5955c2dc3d231c9fd26de05a73d8f422
-- fewest f0a28bc1ea3e813a7473ce51c8e49948
-- route 317b52f7337769f02eb92c6be0bb519d
-- highest 201ea4ac4dd491bf835449366e249205
-- highest_route 6222395d93a16ee3d017fe637135348d
-- divided 64a18a35a5aa42cf97fd3ec71488b3dd
-- upto 06fbef81e5ffada82e44c982cb317f33
-- spread_exchange 136dc3af0cd332ac470a96d2dd770f93
-- spread_broadcast c0b87e226b2c0088c8f62a204be9cff7
-- spread_one 344e65d2e93102b0e142fd9c74f4e5fd
-- kept_auto_there 116babe6cd2ceebe8466c27e7c0b8439
-- kept_witnesses_there 4e9c266b1820a73497c5fcd4edebed23
-- kept_bdd_there 1db1e9fc327adc7003f9ca68d6bf9d67
-- kept_relative_there 505bb5037171536ac404fafd2b7d7db2
-- spread_pairs add5ec117540a5e216ea82695f66fec2
-- spread_cheapest 1dfa07e15fe972fd8f836e0a219ffaef
-- spread_safe 116e7c6f9dd1ffba6a86849f2fcd99c3

-- == partitioned-streams

CREATE STREAM a (k INT, name TEXT, v INT, t INT) WITH (retain = '64 MB');
    CREATE STREAM b (k INT, w DOUBLE, t INT) WITH (retain = 'all');
    CREATE STREAM c (at TIMESTAMP, v DECIMAL(9, 2));
    CREATE TABLE place (k INT, city TEXT);
    CREATE VIEW rows_by AS SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(name) AS m
      FROM slide(a, rows => 3, every => 2, by => k) GROUP BY k;
    CREATE VIEW timed_by AS SELECT k, name, MIN(v) AS low, window_end
      FROM slide(a, on => t, width => 20, every => 5, by => k) GROUP BY k, name, window_end;
    CREATE VIEW minutes AS SELECT window_start, AVG(v) AS m, COUNT(DISTINCT v) AS d
      FROM slide(c, on => at, width => '5 min', every => '1 min') GROUP BY window_start;
    CREATE VIEW pairs AS SELECT x.k, x.v, y.w FROM slide(a, rows => 4, by => k) AS x
      JOIN slide(b, rows => 3, by => k) AS y ON x.k = y.k;
    CREATE VIEW near AS SELECT x.k, x.v, y.w FROM slide(a, on => t, width => 9, by => k) AS x
      JOIN slide(b, on => t, width => 9, by => k) AS y ON x.k = y.k;
    CREATE VIEW counts AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY k;
    CREATE VIEW newest AS SELECT k, v FROM latest(a, rows => 2, by => k);
    CREATE VIEW names AS SELECT DISTINCT name FROM a;
    CREATE VIEW placed AS SELECT a.k, a.v, place.city FROM a JOIN place ON place.k = a.k;
    CREATE VIEW traced_by WITH (provenance = 'lineage') AS
      SELECT k, SUM(v) AS s FROM slide(a, rows => 3, every => 1, by => k) GROUP BY k;
-- rows_by e41b4516da2fc3b6c71ee2d608bbc384
-- timed_by 35de4a5367175c7d66bf48b3ff39edbc
-- minutes 56e4791d2b4e27e0a27c8c8a9b2cfa77
-- pairs 9359c2e2ad823b052eca6f70ac395aed
-- near d20f553d159596d7f1e086bb2d32f88d
-- counts 5de5cf9d082e99e7c497e4fef0b96aec
-- newest dc06c632fa0609229028c77384a3615d
-- names 767a2bf1bf618a82f0e64471a14c5215
-- placed 649979817ef0c0dcf6dded6bf5aab9c5
-- traced_by 6bf411804ed557432095b32f20dd2117

