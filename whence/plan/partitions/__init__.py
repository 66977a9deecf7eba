"""Where the rows of a partitioned database live, and how plans move them.

| module           | what it is for |
|------------------|-----------------|
| `partition_keys` | the columns by which tables are partitioned |
| `distribute`     | the plan of a partitioned database |
| `enforce`        | moves of rows, added where an operator needs them together |
| `localize`       | recursion that reaches a fixpoint in each partition |
| `exchange`       | recursion whose rows cross partitions |
| `heavy_keys`     | keys of joins whose rows are divided among partitions |
| `streams`        | what stream networks ask of the place of base streams |
"""
