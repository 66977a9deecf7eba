"""Incremental operators: batches of updates in, one batch of updates out, at a cost that follows the change.

The vocabulary, one file each; every file opens with the law it relies on, its state and its cost.

| word        | what it is |
|-------------|------------|
| Batch       | rows and the change of each one's annotation (`operator`); consolidated: each row once (`batch`) |
| Relation    | a keyed multiset with hash indexes, accumulators and undo (`relation`) |
| Ordered     | a multiset in an order (`ordered`) |
| arrangement | the one Relation of an operator's output, shared by all who look things up in it (`arrange`) |
| Dataflow    | operators in topological order, and the epoch that runs through them (`graph`); `build` makes them |

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
| fixpoint                | least fixpoint of rules | the recursive relations |
"""
