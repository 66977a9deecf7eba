"""From results of stream views to the inputs behind them, and the other way.

| file      | what |
|-----------|------|
| `site`    | where to look: the running dataflow, the plan it runs, connection points |
| `behind`  | the tids behind results, however the view is traced |
| `pjoin`   | each result beside each of its inputs, as a relation |
| `graph`   | the same as derivations, for `why` |
| `forward` | the results that an input reached |
| `replay`  | the tids behind results, by running a copy of their network over the rows that cover them |
"""
