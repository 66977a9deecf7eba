"""The compiled part of matching.

| module | what it is for |
|---|---|
| `lanes` | blocks of 16 boxes that are compared at once |
| `forest` | packed trees of boxes |
| `search` | which boxes of packed trees meet queries |
| `inside` | rows of an ordered multiset that are inside boxes |
| `parameters` | rows of parameters as boxes |
| `pairs` | who is affected by a row of a join |
| `pair_rows` | the pairs of rows that subscriptions select |
| `runs` | rows with one key, in the order of the values of their pairs |
| `routing` | the cheapest plan for an event |
| `stabbing` | stabbing partitions |
| `histogram` | step functions, and where to put their breaks |
| `hull` | least values of ranges, and the rectangles of ranges that points change |
| `distinct` | distinct values in ranges |
| `marked` | the greatest marks below the blocks of a forest |
| `top` | the first rows inside boxes |
"""
