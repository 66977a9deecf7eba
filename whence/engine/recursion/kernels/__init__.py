"""Kernels of recursion, over one record: the store of a component.

| module        | what it is for |
|---------------|-----------------|
| `store`       | the record: slots, hash tables and chains over them |
| `binding`     | variables of a rule: taking in a row, tests, computations |
| `search`      | run a plan: every binding that starts from a row |
| `derive`      | a row that is derived or withdrawn: queue, links, what was touched |
| `externals`   | changes of external rows |
| `fixpoint`    | withdraw, over-delete, rederive, propagate, collect |
| `gather`      | write down all derivations through rows, or of them |
| `heads`       | the heads of written-down derivations |
| `annotations` | annotations by slot, and variables of rows |
| `mailbox`     | rows that cross partitions |
"""
