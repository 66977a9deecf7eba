"""Relations from outside."""
