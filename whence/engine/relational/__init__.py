"""The relational operators, one per file; each opens with its law, state and cost.

| module           | what it is for |
|------------------|-----------------|
| `scan`           | a table's port into the dataflow |
| `hold`           | a table whose changes wait for a view that is refreshed on demand |
| `values`         | constant rows |
| `select`         | rows for which a predicate is true |
| `selections`     | many of them from one batch, decided together |
| `project`        | one row of expressions per row |
| `union`          | all rows of all inputs |
| `lateral`        | each row with the rows of a table function |
| `join`           | rows of any number of inputs that agree on keys and pass the tests |
| `join_estimates` | what a join knows of its inputs when it orders its paths |
| `join_steps`     | how a path is extended by one input |
| `semijoin`       | left rows that have a match, have none, or say whether |
| `outer`          | pairs, and rows without a partner padded with NULLs |
| `setop`          | DISTINCT, INTERSECT and EXCEPT as functions of two counts |
| `aggregate`      | one row per group |
| `topk`           | the first rows of an order |
| `topk_per_group` | the first rows of each group |
| `kernels`        | the compiled part of the above |
"""
