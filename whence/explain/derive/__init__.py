"""Derivations: the rows behind a row, found in the running dataflow.

A **part** has rows with, for each source, the rows that they came from. **Wanted** are the values that rows must have
to matter. A **caveat** says why the graph may not be exact when base rows are lost.

| module | what it holds |
|---|---|
| `extractor` | `extract`: the derivations behind rows of a view, view by view down to base rows |
| `cone` | `Cone`: the rows of a recursive component, and their derivations by its own rules |
| `plan_evaluator` | `PlanEvaluator`: the rows of every other query, each with the rows it came from |
| `body_matcher` | `BodyMatcher`: rows of the sources of a rule body that fit together |
| `groups` | groups of an aggregate: best values and tallies |
| `grouped_query` | queries that are only selections and projections over groups |
| `parts` | `Part` and `Wanted`, and what is done with them a column at a time |
| `sources` | where the rows of parts come from: tables, absences, rows in between |
| `stream_tables` | streams under relations, as tables of base rows |
| `graph_builder` | `GraphBuilder`: rows become nodes, once each |
| `contract` | skips rows in between that say nothing of their own |
| `sql_text` | conditions and values in SQL |
"""
