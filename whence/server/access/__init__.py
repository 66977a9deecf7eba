"""Who may do what: tokens, rights of names and rows, pages and hosts.

| module           | what it is for |
|------------------|-----------------|
| `tokens`         | who a caller is, by a token of a file |
| `rights`         | what a caller may do, by the rows of `allowed` |
| `grants`         | what the rows of `allowed` mean |
| `row_conditions` | conditions of row rights, bound for a caller |
| `sight`          | what of a database there is for a caller |
| `restrict`       | a query, restricted to what its caller sees |
| `row_rights`     | which rows at hand a caller may read or write |
| `witness_rights` | what a caller may be shown of an explanation |
| `network_policy` | which pages and host names may talk to the server |
"""
