"""The compiled part of matching.

| module | what it is for |
|---|---|
| `forest` | packed trees of boxes |
| `inside` | rows of an ordered multiset that are inside boxes |
| `pairs` | who is affected by a row of a join, and by which rows of the other side |
| `stabbing` | stabbing partitions |
| `hull` | least values of ranges, and the rectangles of ranges that points change |
| `distinct` | distinct values in ranges |
| `marked` | packed trees of boxes whose marks are bounds |
| `top` | the first rows inside boxes |
"""
