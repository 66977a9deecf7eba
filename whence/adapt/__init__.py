"""Plans that follow the data: what the optimizer needs the engine for.

| module         | what it is for |
|----------------|-----------------|
| `optimizer`    | `whence.optimizer`: join graphs, and the best plan of a query while its costs change |
| `declarative`  | the optimizer as rules on a dataflow of its own, and the loop that prunes |
| `private_flow` | a program on a dataflow without catalog, log or locks |
| `rules`        | the rules |
| `warm`         | a call of every kernel, to compile it |
"""
