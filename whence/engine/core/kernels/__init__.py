"""The compiled part of batches, relations and orders.

| module     | what it is for |
|------------|-----------------|
| `batches`  | equal rows numbered, changes added up, small batches joined |
| `relation` | a batch added to a relation, taken back, looked up |
| `table`    | the hash table of rows |
| `index`    | hash indexes on some columns |
| `distinct` | how many keys there are, by HyperLogLog |
| `rebuild`  | the hash tables of a relation, built at once |
| `ordered`  | leaves of sorted rows, and their order |
| `doubles`  | codes of doubles |
"""
