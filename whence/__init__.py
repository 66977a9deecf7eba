"""Whence keeps SQL views up to date over insertions and deletions, recursive views included."""
