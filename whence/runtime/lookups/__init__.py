"""Lookups: relations from outside, of which tables have the rows that are cached.

| module     | what it is for |
|------------|-----------------|
| `caches`   | which rows an epoch needs, which are fetched, and which stay |
| `declaring` | the table of a lookup, as `db.create_lookup` says it |
| `fetching` | calls of what fetches rows, within their time |
| `services` | functions that fetch from an HTTP service or a PostgreSQL table |
"""
