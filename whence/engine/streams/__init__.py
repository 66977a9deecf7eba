"""Stream operators: ordered, append-only batches in, an ordered batch out.

A row of a stream has a tid, its number in the stream, and `$at`, when it arrived. Each module of an operator opens with
its law, its state and its cost.

| module             | what it is for |
|--------------------|-----------------|
| `stream`           | what every stream operator is; late rows |
| `stream_scan`      | a base stream |
| `retain`           | a stream view, whose last rows are retained |
| `connection_point` | the retained rows of a stream |
| `merge`            | UNION ALL of streams |
| `sort`             | bsort: sorted as far as a buffer allows |
| `lookup`           | a stream joined with a relation |
| `box_lookup`       | a stream joined with the subscriptions of a template, by boxes |
| `outside_lookup`   | a stream joined with a relation that is outside |
| `generate`         | where provenance begins and ends |
| `promise`          | nothing more comes below a value: closes windows |
| `late`             | warnings of rows that came too late |
| `arrivals`         | rows that an operator buffers |
| `order`            | ordered columns as codes |
| `networks`         | plan nodes to operators |
| `windows`          | operators over windows |
| `replay`           | instrumented copies that find the inputs of published rows |
| `kernels`          | the compiled part of the sort |
"""
