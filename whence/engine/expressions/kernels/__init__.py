"""The compiled part of expressions.

| module       | what it is for |
|--------------|-----------------|
| `conditions` | comparisons and three-valued logic over columns and constants |
"""
