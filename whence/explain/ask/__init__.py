"""Questions asked of derivations: what suffices, what is critical, how much it can stand, how likely it is.

A **variable** is a base row that may be lost, a **witness** a set of base rows that suffices. A **tally** is a node
whose aggregates are over its body: with it the function of a row is not monotone.

| module | what it holds |
|---|---|
| `evaluate` | `Evaluator`: which nodes are there when some base rows are lost, 64 cases at a time |
| `witnesses` | minimal witnesses of a row, the smallest first |
| `formula` | the function of a row as people write it |
| `critical` | base rows whose loss alone removes rows |
| `resilience` | the fewest base rows whose loss removes a row |
| `contribution` | Shapley and Banzhaf values of base rows |
| `reliability` | the probability of a row when base rows are there independently |
| `remedies` | changes of one base row that make a missing row appear |
| `trial` | the same questions, answered by losing rows in a copy of the database |
| `simplify` | `System`: the equations of a row, made smaller |
| `decision_diagram` | `DecisionDiagram`: the exact function of a row, if it fits |
| `frontier_order` | in which order the arcs of a network are decided |
| `tally` | aggregates when some of their rows are lost |
| `intervals` | confidence intervals of a share |
"""
