"""Recursive views as components of rules.

| module        | what it is for |
|---------------|-----------------|
| `strata`      | the order of views, and what recursion may do |
| `scc`         | strongly connected components |
| `conjunctive` | queries as unions of conjunctive bodies |
| `rules`       | the views of a component to rules |
| `rule_model`  | rules, as the fixpoint runs them |
| `rule_shape`  | a rule as the search for join orders sees it |
| `native`      | expressions that fixpoint kernels compute |
| `externals`   | work that a body leaves to queries outside the recursion |
| `edges`       | external relations that rules follow as edges of a graph |
| `sharing`     | external relations with the same rows |
| `support`     | whether chosen derivations can carry a component |
| `settings`    | what views ask for in their options |
| `unify`       | columns of a body that must be equal, as one variable |
"""
