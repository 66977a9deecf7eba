"""Algebras compiled by Numba."""
