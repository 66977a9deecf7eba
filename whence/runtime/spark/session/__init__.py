"""Spark sessions and their Java.

| module    | what it is for |
|-----------|-----------------|
| `session` | sessions with measured settings |
| `java`    | finds a Java that Spark can run on |
| `errors`  | errors of Spark and Java as ours |
| `warming` | warm-up of a new session |
"""
