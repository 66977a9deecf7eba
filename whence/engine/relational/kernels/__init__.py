"""The compiled part of aggregates and of the first rows of groups.

| module      | what it is for |
|-------------|-----------------|
| `aggregate` | accumulators of groups, and the values they stand for |
| `float_sum` | exact sums of doubles |
| `group_heads` | the first rows of groups |
"""
