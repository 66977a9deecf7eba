"""Queries over streams as networks of ordered, append-only inputs.

| module         | what it is for |
|----------------|-----------------|
| `model`        | the nodes of stream networks |
| `networks`     | which views are streams, and what becomes of the streams they read |
| `windows`      | GROUP BY over `slide` as windows |
| `lookup_boxes` | conditions of a lookup that make rows of its relation boxes |
| `instrument`   | generators, propagators and droppers of lineage |
| `replay`       | instrumented copies that are replayed |
| `tid_chains`   | chains that only say when results come, and of what inputs |
"""
