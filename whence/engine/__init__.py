"""Incremental operators: batches of updates in, one batch of updates out, at a cost that follows the change.

| module             | what it is for |
|--------------------|-----------------|
| `core`             | operators, batches, relations, the dataflow, images of state |
| `expressions`      | scalar expressions, compiled |
| `relational`       | the relational operators |
| `recursion`        | fixpoints, and how they follow deletions |
| `matching`         | the subscriptions of templates, matched with rows in groups |
| `streams`          | streams, windows, and the lineage of their results |
| `exchange`         | rows on their way between partitions |
| `build`            | logical nodes to running operators |
| `calibration`      | fits the costs of plans for events on this machine |
| `work_calibration` | measures what the work of joins costs on this machine |
| `warm`             | a call of every kernel, to compile it |

Every operator's file opens with the law that it relies on, its state and its cost.

| operator | law | state of its own |
|----------|-----|------------------|
| scan, values            | identity; a constant | the table; the rows |
| select, project, union, lateral | linear | none |
| join                    | bilinear | none: indexes on its inputs' arrangements |
| semijoin                | L·φ, φ a threshold of the number of matches | matches by pattern of the left row |
| outer                   | inner join + padded anti joins | theirs |
| setop (distinct, intersect, except) | f(left count, right count) of each row | the counts |
| aggregate               | f(accumulators) of each group | accumulators, ordered values for MIN and MAX |
| topk                    | head of an ordered multiset | the order, and the head |
| topk per group          | the same of each group | the order |
| match rows, match pairs | R·P and R·S·P, changes only | boxes of subscriptions, the rows in order |
| fixpoint                | least fixpoint of rules | the recursive relations |
"""
