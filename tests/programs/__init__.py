"""Random programs, written from docs/sql.md alone: a second generator beside `tests/property/test_random_programs.py`.

`generate.py` makes a program from a seed: tiny tables of all types with NULLs everywhere, views over them and over each
other, and steps: transactions over several tables, epochs that fail, views made before and after the data, reopening.
`play.py` carries it out in Whence beside DuckDB and compares after every step. `reduce.py` makes a failing program
small. `python -m tests.programs --minutes 5` looks for failures and prints the smallest program of each.
"""
