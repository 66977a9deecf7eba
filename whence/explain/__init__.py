"""Explanations: why a row is in a view or not, what it stands on, and what the loss of rows would do.

A question goes from room to room: `derive` takes the derivations behind a row from the running dataflow, `ask` computes
over them, `show` writes the answer. `why_not` explains a row that is not there; `retrieve` finds the inputs behind
rows of streams.

| module or room | what it holds |
|---|---|
| `graph` | the derivations behind some rows, in arrays: what every question is asked of |
| `missing` | a row that is not there, and what stands in its way, as data |
| `derive` | from rows of a view to the derivations behind them |
| `why_not` | why a row is not in a view: what it lacks, what excludes it |
| `ask` | witnesses, formulas, critical rows, resilience, contributions and probabilities |
| `show` | answers as text, JSON, Graphviz and HTML |
| `retrieve` | from results of stream views to the inputs behind them, and forward |
| `kernels` | searches and fixpoints over derivations, compiled by Numba |
| `warm` | compiles these kernels |
"""
