"""What every operator is made of: batches, relations, a dataflow, and images of state.

| module           | what it is for |
|------------------|-----------------|
| `operator`       | the interface of operators: apply, commit, undo, image, restore |
| `batch`          | batches put together and consolidated |
| `relation`       | a keyed multiset with hash indexes, accumulators and undo |
| `ordered`        | an ordered multiset |
| `range_index`    | an ordered index of a relation |
| `fill`           | when undo keeps the former state instead of a log |
| `arrangement`    | the one relation of an operator's output, shared by its consumers |
| `key_lookup`     | rows of a relation by any columns |
| `lifetimes`      | when rows with a time-to-live are due |
| `dataflow`       | the operators of a partition in topological order, and the epochs that run through them |
| `installation`   | new views on their way into a dataflow |
| `epoch`          | what one transaction changed in the tables |
| `epoch_context`  | number and time of the running epoch, and whether it replays |
| `growing_index` | an index that is built in slices |
| `image`          | operator state as named arrays |
| `fingerprint`    | a name for what an operator computes, the same in every process |
| `operator_stats` | rows and bytes of an operator's state |
| `statistics`     | distinct keys and samples of a relation, for plans |
| `machine_costs`  | what work costs on this machine, as measured at set-up |
| `key_estimates`  | how many rows match a key on the path of a join or rule |
| `kernels`        | the compiled part of the above |
"""
