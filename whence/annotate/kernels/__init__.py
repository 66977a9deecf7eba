"""The compiled part of annotations.

| module         | what it is for |
|----------------|-----------------|
| `bdd`          | decision diagrams in one array of nodes |
| `levels`       | decision diagrams as bytes, and checks of nodes that come from elsewhere |
| `minimal`      | the minimal witnesses of a decision diagram |
| `order`        | depth-first traversal of edges, for orders of variables |
| `families`     | families of witnesses: monotone functions in their one irredundant form |
| `family_bytes` | families of witnesses as bytes |
| `edges`        | sets of derivation edges, and whether their heads are derivable |
| `edge_bytes`   | sets of derivation edges as bytes |
| `pool`         | sequences of integers, each stored once |
| `spans`        | the hulls of windows of tids |
| `tid_sets`     | sets of tids in a pool, and how each is stored |
| `tid_runs`     | unions over windows of a sequence of sets |
| `tid_paint`    | unions over windows whose rows are in any order |
| `tid_strands`  | unions over windows whose rows come from a few paths |
| `tid_pieces`   | overlapping windows as slices of one list of intervals |
"""
