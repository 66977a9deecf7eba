"""The compiled part of aggregates.

| module      | what it is for |
|-------------|-----------------|
| `aggregate` | accumulators of groups, and the values they stand for |
| `float_sum` | exact sums of doubles |
"""
