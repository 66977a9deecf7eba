"""The kernel of the sort.

| module | what it is for |
|--------|-----------------|
| `heap` | the heap of rows that a b-sort holds back |
"""
