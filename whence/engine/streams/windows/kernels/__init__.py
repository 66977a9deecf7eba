"""Kernels of windows. `window_state` lays out the record that those of `window` take.

| module            | what it is for |
|-------------------|-----------------|
| `window`          | the loop over rows: clocks, watermarks, closing windows |
| `window_state`    | the record of a window operator, and its plan |
| `window_lines`    | the memory of windows, with an undo log |
| `window_panes`    | clocks, groups and panes; evicting panes |
| `window_rows`     | adding rows to panes |
| `window_acc`      | accumulators of panes |
| `window_distinct` | distinct values of groups |
| `window_order`    | order statistics, for quantiles |
| `window_show`     | output rows |
| `window_trace`    | annotations of buffered rows |
| `window_check`    | checks a restored image |
| `recent`          | queues of the rows in a window, per key |
| `join_rows`       | joins two sides, row by row |
| `bounded`         | joins two sides of which some rows are kept, and evicts the others |
"""
