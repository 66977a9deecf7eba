"""Kernels that read image files.

| module   | what it is for |
|----------|-----------------|
| `planes` | byte planes to words |
"""
