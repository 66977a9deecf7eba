"""What a query means: logical nodes over expressions, before anything decides how to maintain it.

| module          | what it is for |
|-----------------|-----------------|
| `logical`       | the logical nodes |
| `nodes`         | constructors of nodes, with schemas that follow from the inputs |
| `expressions`   | scalar expressions, bound and typed |
| `functions`     | the Python functions that queries call |
| `program`       | the tables, functions and views of a database |
| `multiway_join` | nested inner joins as one n-way join |
| `unify`         | columns of a body that must be equal, as one variable |
| `pinned`        | columns that a predicate restricts to constants |
| `size`          | how deep and how large a plan is |
"""
