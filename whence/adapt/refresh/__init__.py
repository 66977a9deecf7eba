"""When a held view is refreshed: learnt costs of its pending rows, and schedules that keep a response time.

A held view lets the changes of its tables wait as long as the work they leave can be done within a bound. Rows may be
released table by table, so a schedule decides which tables to release when the bound would be exceeded.

| module        | what it is for |
|---------------|-----------------|
| `costs`       | what a release costs: one function per table, a shared part, recomputation |
| `learnt_cost` | a table's cost function, learnt from releases that were timed |
| `view_costs`  | the costs of one held view, learnt from all its releases |
| `plans`       | lazy, greedy and minimal plans; the cheapest one by A* |
| `lower_bound` | the bound that A* searches with |
| `schedulers`  | what to release when: naive, online, planned for a guessed time |
| `simulate`    | a schedule over given arrivals; the optimum of all plans, by brute force |
"""
