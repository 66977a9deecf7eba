"""Rows in and out: Python values, Arrow, pandas, polars and files, to codes and back.

| module       | what it is for |
|--------------|-----------------|
| `rows`       | rows of any kind to codes, and back |
| `arrow`      | Arrow columns to codes, and back |
| `texts`      | a dictionary's texts, found by their bytes |
| `reading`    | values from text, for files and messages |
| `files`      | CSV, JSON lines, Parquet, and files of updates |
| `json_lines` | rows as lines of JSON |
| `records`    | consecutive records of a file, as updates |
| `tails`      | files that grow, folders and streams, read by polling |
| `operations` | insertions and deletions, as sources name them |
| `rejects`    | records that do not fit their table |
| `results`    | answers of statements: rows, a count or a message |
| `archive`    | exports: a database as Parquet and SQL |
| `grid`       | tables as a terminal and a notebook show them |
| `html`       | HTML of what a notebook shows |
| `kernels`    | the compiled part of the above |
"""
