"""Plans that follow the data: running joins that are ordered anew, and the optimizer as a program on the engine.

| module         | what it is for |
|----------------|-----------------|
| `statistics`   | what is known of a running join, as updates flow |
| `margin`       | how far costs may move before another plan can be the best |
| `policy`       | when a switch pays |
| `adaptive_join` | one running join: from a reading to advice |
| `switch`       | indexes of the next plan, built in slices |
| `report`       | what EXPLAIN says of a running join |
| `history`      | what was switched, and why |
| `optimizer`    | `whence.optimizer`: join graphs, and the best plan of a query while its costs change |
| `declarative`  | the optimizer as rules on a dataflow of its own, and the loop that prunes |
| `private_flow` | a program on a dataflow without catalog, log or locks |
| `rules`        | the rules |
| `refresh`      | when views that are refreshed on demand have to be |
| `keeping`      | which joins of some inputs views keep, by what was met |
| `warm`         | a call of every kernel, to compile it |
"""
