"""Why a row is not in a view: what it lacks, what excludes it, or which condition is not true.

A **goal** is a row that is asked for, by the values of some of its columns; goals are sets of rows any of which would
do. A **rule body** is one way to the rows of a query: sources side by side, tests over them, absences. A body without a
match has a **gap** at a source if the others have matches that ask a row of it.

| module | what it holds |
|---|---|
| `search` | `explain_missing`: why a table or view has no such row, level by level down to base rows |
| `goals` | `Goals`, and `GoalReader`: goals in values, in codes, and the rows among them that are there |
| `rule_bodies` | the rule bodies of a query, and which of them could lead to a goal |
| `gaps` | matches of a rule body without one of its sources, and what they ask of it |
| `frontier` | the rows of a recursive view that would lead to a goal |
| `missing_groups` | groups that are there with other values, fail HAVING, or have no rows |
| `exclusions` | the rows that keep a match out, with their derivations |
| `side_conditions` | what must stay as it is for one change of a base row to bring a row about |
| `nearest_rows` | what a table or view has instead of a goal |
| `body_text` | rules and their conditions as people read them |
"""
