"""Questions to derivations, compiled by Numba."""
