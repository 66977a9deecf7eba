"""A simulation of publishers, brokers and subscribers over links that lose: `python -m whence.subscribe.simulate`.

There are two depths. In the depth `model` nodes run the very cores that a server runs (`publishing`, `sources`,
`ranges`, `cursor`, `recent`) around model transforms, so that thousands of runs are made in minutes. In the depth
`databases` everything ships but threads and sockets: databases in folders, servers, brokers and clients, in virtual
time; views are random SELECTs that DuckDB recomputes. A run is a function of its seed; one that fails prints how to
repeat it. `oracle` and `stage_oracle` have the laws that are checked. Bugs can be planted to show that they are found.

| module    | what it is for |
|-----------|-----------------|
| `network` | virtual time and links |
| `oracle`  | what must be true |
| `runs`    | many runs, in one process or several |
| **models** | |
| `plans`   | model transforms: what views compute |
| `bounded_plans` | the transforms as SQL, for their bounds |
| `completions` | bounds against everything that can still come |
| `bags`    | bags of rows, and batches of codes |
| `node_parts` | what nodes have: sources, views, sessions, subscribers |
| `node_epochs` | the log of a node, and the views over it |
| `node_delivery` | what a node tells |
| `nodes`   | publishers and brokers around the cores |
| `clients` | subscribers |
| `world`   | a run: graph, workload, faults, healing |
| `bugs`    | planted bugs, by name |
| **databases** | |
| `virtual_host` | an event loop and workers in virtual time |
| `served_nodes` | a database that is served, and a broker if it has sources |
| `node_links` | connections to it, whose messages get lost |
| `link_clients` | clients of it |
| `node_histories` | what a database has been, epoch by epoch |
| `stage_oracle` | what its views must show, by DuckDB |
| `stage_completions` | what may still come, held against what is shown |
| `stages`  | all of these for a scenario that says what happens |
| `random_selects` | random views |
| `database_world` | a run from a seed |
| `database_bugs` | planted bugs of it |
"""
