"""Subscriptions of templates, matched with rows in groups: an event finds those it affects without looking at the rest.

| module | what it is for |
|---|---|
| `matching` | what all operators of templates have in common: their law, epochs, undo, reading |
| `match_rows` | subscriptions that select rows of one relation |
| `match_pairs` | subscriptions that select pairs of rows: equal keys, ranges on both sides, a band |
| `hotspots` | subscriptions in groups whose intervals share a point, and the scattered rest |
| `late_index` | rows in another order, brought up to date when they are read |
| `match_cost` | what each plan for an event of a join costs, and which is used |
| `interval_histogram` | about how many intervals hold a point? |
| `match_least` | subscriptions to the least or greatest value in a range |
| `match_distinct` | subscriptions to the distinct values in a range |
| `match_top` | subscriptions to the first rows of a selection in an order |
| `bounds` | parameters as boxes, rows as points |
| `boxes` | which boxes does a point or a box meet? |
| `marked_boxes` | which boxes does a point meet, of those whose mark is high enough? |
| `range_matching` | what matching by one range has in common: points, and ranges as points of a plane |
| `range_minima` | the least value of any range of points, and the ranges that an epoch changes |
| `box_minima` | the least value of any box of points, and the boxes that an epoch changes |
| `ordered_minima` | rows in order, and the least value of each leaf |
| `kernels` | the compiled part of the above |
"""
