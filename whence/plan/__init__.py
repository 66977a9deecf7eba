"""From bound queries to plans: the logical algebra, rewrites, recursion, streams, and partitions.

| module       | what it is for |
|--------------|-----------------|
| `algebra`    | logical nodes, expressions, programs, and joins seen whole |
| `rewrite`    | pure functions from plan to plan, one per file |
| `recursion`  | strata, recursive components, and their rules |
| `streams`    | stream networks, windows, and instrumented copies |
| `knowledge`  | what values of a view can still become |
| `optimizer`  | cost-based plans of joins, from scratch and incremental |
| `eviction`   | which rows a join in bounded memory keeps: models of values, expected benefits |
| `partitions` | where rows live, and the moves that a plan takes |
| `templates`  | which templates are matched in groups, and how |
| `promises`   | what holds of every row that a table takes in |
| `order_sensitive` | which views depend on the order in which rows of their sources come |
"""
