"""Kernels of writes.

| module  | what it is for |
|---------|-----------------|
| `signs` | +1 and -1 in a source's order, to counts of rows |
"""
