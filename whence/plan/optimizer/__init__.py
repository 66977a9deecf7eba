"""Cost-based optimization of joins, from scratch and incremental: and-or graphs, costs, and two procedural optimizers.

| module         | what it is for |
|----------------|-----------------|
| `query_graph`  | relations, equalities and their classes; expressions as sets of relations |
| `physical`     | physical operators and properties |
| `split`        | the alternatives of an entry: the search space, one entry at a time |
| `cost`         | what operators cost |
| `space`        | the and-or graph in arrays, with row counts and local costs |
| `changes`      | changes of statistics and costs |
| `bottom_up`    | dynamic programming (System R) |
| `top_down`     | branch and bound (Volcano) |
| `greedy`       | a plan that is found at once, as an upper bound |
| `lower_bounds` | what entries cost at least |
| `paths`        | the and-or graph of the paths of a join's deltas |
| `plans`        | the best plan, its entries, and roads not taken |
| `kept_joins`   | what it saves to keep the join of some inputs |
| `kernels`      | loops over the arrays |

An **entry** (OR node) is an expression with a physical property, an **alternative** (AND node) a physical operator over
entries. The cost of an alternative is its local cost and the best costs of its inputs; the best cost of an entry is the
least of its alternatives. What changes is local costs, and row counts, from which they follow.
"""
