"""A running database: epochs in, committed state out.

A `Database` is the public API over a coordinator. The coordinator numbers epochs, writes them to its storage, and runs
them in its partitions, which own tables, lifetimes and a dataflow; embedded there is one, on Spark there are many.

| module           | what it is for |
|------------------|-----------------|
| `database`       | the public API |
| `opening`        | puts a coordinator together |
| `coordinator`    | numbers epochs, holds the locks, commits or undoes |
| `partition`      | owns tables, lifetimes and a dataflow; runs, commits and undoes an epoch |
| `backend`        | how a coordinator reaches its partitions |
| `deployment`     | where partitions run |
| `partition_plan` | what a partition holds |
| `epoch_result`   | what came of an epoch |
| `adaptation`     | looks at running joins, and switches their orders |
| `catalog`        | names, and the plan behind them |
| `schema_changes` | CREATE and DROP, between two epochs |
| `transient_views` | views of SELECTs while somebody subscribes to them |
| `held_views`     | views that are refreshed when they are read, within a bound |
| `moved_views`    | views that are at another server now |
| `definitions`    | definitions of tables and views, compared |
| `following`      | files, folders and streams, taken in epoch by epoch |
| `statements`     | scripts, statement by statement |
| `word_collector` | forgets words that nothing refers to |
| `warm`           | compiles every kernel |
| `writing`        | transactions and writes to tables and streams |
| `reading`        | handles, ad-hoc queries and change feeds |
| `lookups`        | relations from outside, of which some rows are kept |
| `questions`      | why, what-if, tracing and EXPLAIN |
| `subscriptions`  | relations and queries that are followed |
| `sources`        | relations that come from other databases |
| `durable`        | journal, snapshots, recovery, checks and copies |
| `spark`          | partitions on Spark |
"""
