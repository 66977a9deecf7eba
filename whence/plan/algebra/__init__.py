"""What a query means: logical nodes over expressions, before anything decides how to maintain it.

| module             | what it is for |
|--------------------|-----------------|
| `logical`          | the logical nodes, each with what others must know of it |
| `constructors`     | constructors of nodes, with schemas that follow from the inputs |
| `expressions`      | scalar expressions, bound and typed |
| `functions`        | the Python functions that queries call |
| `program`          | the tables, functions and views of a database |
| `multiway_join`    | nested inner joins as one n-way join |
| `join_paths`       | the orders in which deltas of an n-way join meet its inputs |
| `work_costs`       | what a probe, a match, an index and kept or shipped bytes cost |
| `join_bounds`      | bounds that tests of a join set to columns |
| `parameter_ranges` | comparisons of data with parameters, and their ranges |
| `pinned`           | columns that a predicate restricts to constants |
| `size`             | how deep and how large a plan is |
| `arrival`          | the hidden column of streams: when a row arrived |
| `distribution`     | where the rows of a relation live |
"""
