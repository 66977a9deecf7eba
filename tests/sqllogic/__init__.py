"""Files of sqllogictest: those of SQLite, DuckDB and Materialize, and our own in `tests/sql`.

`reader.py` reads them, `run.py` runs the first kind: `python -m tests.sqllogic FILE…` says how much of a file holds.
"""
