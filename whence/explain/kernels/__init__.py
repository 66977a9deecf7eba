"""Kernels of questions, compiled by Numba. Derivations are arrays: `head`, and `body[start[d] : start[d + 1]]`.

| module | what it holds |
|---|---|
| `cone` | all derivations of rows of a recursive component |
| `splice` | bodies in place of the rows in between that they derive |
| `spread` | least fixpoints over derivations, one case or 64 at a time |
| `least` | the smallest derivation of each node |
| `best_first` | the smallest witnesses first |
| `losses` | how many rows go with each base row |
| `flow` | a least cut between two vertices |
| `frontier` | the decision diagram of paths in a network |
| `diagram` | probabilities and slopes of a decision diagram |
"""
