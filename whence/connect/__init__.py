"""Sources and sinks: where rows come from and go to.

| module  | what it carries |
|---------|-----------------|
| `rows`  | Python rows (tuples, dicts), Arrow, pandas and polars, to codes and back |
| `arrow` | one Arrow column to codes and back |
| `files` | CSV, JSON lines, Parquet, and files of updates |
"""
