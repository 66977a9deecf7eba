"""Kernels that convert columns.

| module    | what it is for |
|-----------|-----------------|
| `columns` | Arrow's numbers into rows of codes |
| `texts`   | a hash table of texts by their UTF-8 |
"""
