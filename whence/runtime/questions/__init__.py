"""Questions about a database: rows are found as users name them, and asked about at the last committed epoch.

| module | what it holds |
|---|---|
| `provenance_queries` | `why`, `critical`, `resilience`, `contribution` and `reliability` of a row |
| `annotated` | `annotation` of a row of a view that maintains provenance |
| `tracing` | `trace`, `provenance` and lineage of rows of streams |
| `what_if` | `what_if`: an epoch that is run, read and undone |
| `explain` | EXPLAIN, SHOW and DESCRIBE: plans, state and metrics |
"""
