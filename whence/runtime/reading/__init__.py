"""Reads: always the last committed epoch, whole.

| module             | what it is for |
|--------------------|-----------------|
| `reader`           | reads a database |
| `partition_reader` | reads a partition |
| `handles`          | handles on tables and views, and results |
| `adhoc`            | SELECT over tables and views, by DuckDB |
| `duckdb_engine`    | DuckDB in this process, with queries that can be stopped |
| `query_process`    | strangers' queries, in processes that can be killed |
| `query_worker`     | what runs in such a process, and DuckDB's settings |
| `calls`            | the table functions of ad-hoc SQL |
| `zoned_queries`    | AT TIME ZONE in ad-hoc SQL |
| `changes`          | change feeds |
| `pinned_rows`      | look-ups among ad-hoc queries |
| `notifications`    | what changes for the subscriptions of a template |
| `template_messages` | what changes for ranges, as messages that are routed by content |
| `late_rows`        | rows that came too late |
| `missed_pairs`     | results that joins in bounded memory have missed |
"""
