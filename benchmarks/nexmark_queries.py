"""The queries of Nexmark that a view can keep, over tables of all events so far; and why the others cannot.

Windows are numbered: `floor(epoch(date_time) / 10)` is a tumbling window of ten seconds, and a window that hops is
joined with the numbers of the hops it is in. Where Nexmark takes the first row of a group by ROW_NUMBER, the view joins
the group's MAX or MIN.
"""

from __future__ import annotations

LEFT_OUT = {
    "q6": "the mean of a seller's last ten closed auctions: rows of a relation in an order (`OVER … ROWS`)",
    "q11": "session windows",
    "q12": "windows by the time of processing, which a second run would not repeat",
    "q19": "the ten highest bids of each auction: a top-k for each group",
}

QUERIES: dict[str, str] = {}

QUERIES["q0"] = "SELECT auction, bidder, price, date_time, extra FROM bid"

QUERIES["q1"] = "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid"

QUERIES["q2"] = "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"

QUERIES["q3"] = """
SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"""

QUERIES["q4"] = """
SELECT category, AVG(final) AS mean FROM (
  SELECT a.id, a.category, MAX(b.price) AS final FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) AS sold
GROUP BY category"""

QUERIES["q5"] = """
WITH hop AS (
  SELECT b.auction, CAST(floor(epoch(b.date_time) / 2) AS BIGINT) - h.k AS w, COUNT(*) AS bids
  FROM bid AS b CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS h(k)
  GROUP BY b.auction, CAST(floor(epoch(b.date_time) / 2) AS BIGINT) - h.k)
SELECT hop.auction, hop.w, hop.bids
FROM hop JOIN (SELECT w, MAX(bids) AS most FROM hop GROUP BY w) AS best ON hop.w = best.w AND hop.bids = best.most"""

QUERIES["q7"] = """
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid AS b JOIN (
  SELECT CAST(floor(epoch(date_time) / 10) AS BIGINT) AS w, MAX(price) AS price FROM bid
  GROUP BY CAST(floor(epoch(date_time) / 10) AS BIGINT)) AS top
ON b.price = top.price AND CAST(floor(epoch(b.date_time) / 10) AS BIGINT) = top.w"""

QUERIES["q8"] = """
SELECT p.id, p.name, p.w FROM (
    SELECT id, name, CAST(floor(epoch(date_time) / 10) AS BIGINT) AS w FROM person) AS p
  JOIN (
    SELECT DISTINCT seller, CAST(floor(epoch(date_time) / 10) AS BIGINT) AS w FROM auction) AS a
  ON p.id = a.seller AND p.w = a.w"""

QUERIES["q9"] = """
WITH valid AS (
  SELECT a.id, a.item_name, a.seller, b.bidder, b.price, b.date_time
  FROM auction AS a JOIN bid AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires),
best AS (SELECT id, MAX(price) AS price FROM valid GROUP BY id),
first AS (
  SELECT v.id, v.price, MIN(v.date_time) AS date_time
  FROM valid AS v JOIN best ON v.id = best.id AND v.price = best.price
  GROUP BY v.id, v.price)
SELECT v.* FROM valid AS v JOIN first AS f ON v.id = f.id AND v.price = f.price AND v.date_time = f.date_time"""

QUERIES["q10"] = """
SELECT auction, bidder, price, date_time, extra, CAST(date_time AS DATE) AS day, EXTRACT(hour FROM date_time) AS hour
FROM bid"""

QUERIES["q13"] = """
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM (SELECT *, MOD(auction, 1000) AS key FROM bid) AS b JOIN side AS s ON b.key = s.key"""

QUERIES["q14"] = """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN EXTRACT(hour FROM date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN EXTRACT(hour FROM date_time) <= 6 OR EXTRACT(hour FROM date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time, date_time, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"""

_STATISTICS = """COUNT(*) AS total, COUNT(*) FILTER (WHERE price < 10000) AS low,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
       COUNT(*) FILTER (WHERE price >= 1000000) AS high"""
_DISTINCT = """COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
       COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders, COUNT(DISTINCT auction) AS auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
       COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions"""

QUERIES["q15"] = f"""
SELECT CAST(date_time AS DATE) AS day, {_STATISTICS}, {_DISTINCT}
FROM bid GROUP BY CAST(date_time AS DATE)"""

QUERIES["q16"] = f"""
SELECT channel, CAST(date_time AS DATE) AS day, MAX(date_trunc('minute', date_time)) AS minute,
       {_STATISTICS}, {_DISTINCT}
FROM bid GROUP BY channel, CAST(date_time AS DATE)"""

QUERIES["q17"] = f"""
SELECT auction, CAST(date_time AS DATE) AS day, {_STATISTICS}, MIN(price) AS min_price, MAX(price) AS max_price,
       AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid GROUP BY auction, CAST(date_time AS DATE)"""

QUERIES["q18"] = """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra
FROM bid AS b JOIN (SELECT bidder, auction, MAX(date_time) AS last FROM bid GROUP BY bidder, auction) AS l
ON b.bidder = l.bidder AND b.auction = l.auction AND b.date_time = l.last"""

QUERIES["q20"] = """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, a.item_name, a.description,
       a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category
FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10"""

QUERIES["q21"] = """
SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE split_part(split_part(url, 'channel_id=', 2), '&', 1) END AS channel_id
FROM bid WHERE contains(url, 'channel_id=') OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"""

QUERIES["q22"] = """
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
       split_part(url, '/', 6) AS dir3
FROM bid"""
QUERIES = {name: text.strip() for name, text in QUERIES.items()}
