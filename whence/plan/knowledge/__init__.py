"""What a value can still become: derived by the compiler from plans and promises, as data that travels to clients.

| module      | what it is for |
|-------------|-----------------|
| `bounds`    | everything that a value can still become: order, join, finality, words |
| `intervals` | interval arithmetic of all operations |
| `moments`   | that of dates and times |
| `model`     | knowledge of a relation as data: terms, branches, growths |
| `terms`     | terms made of expressions, moved, bounded |
| `facts`     | what is known of the rows of one node |
| `rowwise`   | facts of selections, projections, unions, and of what compares whole rows |
| `groups`    | facts of groups |
| `joins`     | facts of joins |
| `derive`    | the knowledge of a view, node by node |
| `describe`  | knowledge in words |
"""
