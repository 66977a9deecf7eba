"""Replay: find the inputs behind rows that a stream view has published.

A view with covering intervals knows the first and the last tid behind a row. An instrumented copy of its network, fed
with the rows between them, tells which of them it is.

| module            | what it is for |
|-------------------|-----------------|
| `replica`         | an instrumented copy of the network behind a view |
| `chain`           | a copy of a chain that starts cold |
| `stretches`       | which rows a replay runs over |
| `checkpoints`     | states of a network to start from |
| `matching`        | results of a copy matched with published ones |
| `published`       | results of a replay compared with published ones |
| `covering_join`   | the c-join: intervals to tids |
| `provenance_join` | the p-join: results beside their inputs |
| `align`           | intervals laid out for more sources |
| `ragged`          | lists of tids as whole arrays |
"""
