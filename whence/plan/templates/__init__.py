"""Which templates are matched in groups, and how: from the join that defines a template to a plan.

| module         | what it is for |
|----------------|-----------------|
| `recognise`    | the plan of a template in groups, and what EXPLAIN says of it |
| `shapes`       | a defining plan taken apart; selections of rows |
| `pairs`        | joins of two relations, and bands |
| `parts`        | other shapes over selections that are matched in groups |
| `over_streams` | how rows of a stream find their subscriptions |
"""
