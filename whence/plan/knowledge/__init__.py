"""What a value can still become: derived by the compiler from plans and promises, as data that travels to clients.

| module      | what it is for |
|-------------|-----------------|
| `bounds`    | everything that a value can still become: order, join, finality, words |
| `intervals` | interval arithmetic of all operations, those of numbers first |
| `truths`    | that of conditions, and of choices between values |
| `moments`   | that of dates and times |
| `model`     | knowledge of a relation as data: terms, branches, growths |
| `sources`   | what streams promise |
| `checks`    | what checks over several columns say of one |
| `terms`     | terms made of expressions, moved, bounded |
| `facts`     | what is known of the rows of one node |
| `rowwise`   | facts of selections, projections, unions, and of what compares whole rows |
| `groups`    | facts of groups |
| `pairs`     | the pairs of rows of a join |
| `joins`     | facts of inner joins, and of rows with or without a partner |
| `outer_joins` | facts of LEFT, RIGHT and FULL JOIN |
| `derive`    | the knowledge of a view, node by node |
| `describe`  | knowledge in words |
"""
