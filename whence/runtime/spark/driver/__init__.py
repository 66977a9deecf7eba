"""The driver of a database in partitions.

| module                 | what it is for |
|------------------------|-----------------|
| `deployment`           | a database in partitions, here or in Spark's workers |
| `driver`               | takes rows in, and writes relations out |
| `partitioned_backend`  | all partitions, for a coordinator |
| `partitioned_relation` | tables and views in partitions |
| `supersteps`           | runs an epoch, superstep by superstep |
| `jobs`                 | epochs, supersteps and questions as Spark jobs |
| `meeting`              | the tasks of one epoch: who gets which partitions, and when a round is over |
| `planner`              | where tables and views live |
| `heavy_joins`          | keys whose rows joins divide among partitions |
| `explain_skew`         | what EXPLAIN says of keys that many rows have |
| `images`               | images of all partitions |
| `retrieving`           | questions about streams in partitions |
| `arrival_counter`      | numbers the rows of a stream |
| `options`              | the settings of users |
"""
