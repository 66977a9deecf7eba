"""Kernels of the optimizers, over and-or graphs in arrays.

| module      | what it is for |
|-------------|-----------------|
| `costs`     | row counts and local costs, after a change of statistics |
| `bottom_up` | best costs from the leaves to the root, all of them or those that a change reaches |
| `top_down`  | best costs from the root, with branch and bound |
| `paths`     | costs of the paths of a join's deltas |
| `pruning`   | which alternatives a search space needs to have |
| `regrets`   | what the cheapest whole plan through each alternative costs more than the best |
"""
