"""Windows over streams: aggregates per window, the latest rows, and joins.

| module         | what it is for |
|----------------|-----------------|
| `window`       | aggregates: one row per group and window |
| `window_plan`  | the integer tables that its kernels read |
| `window_lines` | its memory: a store of lines with undo |
| `window_trace` | annotations of the rows in open windows |
| `recent`       | the rows in a window now, per key |
| `latest`       | those rows as a relation |
| `window_join`  | a join of two streams over windows |
| `bounded_join` | a join of two streams in bounded memory |
| `kept_rows`    | which rows it keeps, and what it has missed |
| `memory_pool`  | memory that several joins share |
| `cached_keys`  | which keys of a relation that is outside are kept |
| `eviction_tuner` | how the streams go on, and how long rows are worth keeping, learnt from arrivals |
| `kernels`      | the compiled part of the above |
"""
