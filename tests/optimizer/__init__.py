"""The optimizer: search space, counts, changes, and three ways to the same cost."""
