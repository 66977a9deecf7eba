"""From results of stream views to the inputs behind them, and the other way.

| module | what it holds |
|---|---|
| `site` | `Site`: the dataflow and the plan in which a question looks |
| `backward` | the tids of the inputs behind results |
| `forward` | the tids of the results that an input reached |
| `pjoin` | the p-join: each result beside each of its inputs, as a relation |
| `replay` | the tids behind results, by running an instrumented copy of their network |
| `graph` | the derivations of rows of streams |
"""
