"""Scalar expressions, compiled to functions of whole columns of codes.

| module       | what it is for |
|--------------|-----------------|
| `evaluate`   | expressions to functions from rows to a column |
| `conditions` | comparisons and logic, which one kernel decides |
| `functions`  | the built-in functions |
| `kernels`    | the compiled part of the above |
"""
