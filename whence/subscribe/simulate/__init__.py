"""A simulation of publishers, brokers and subscribers over links that lose: `python -m whence.subscribe.simulate`.

Nodes run the very cores that a server runs (`publishing`, `sources`, `ranges`, `cursor`, `recent`), in virtual time.
There are two depths. In one views are model transforms, so that thousands of runs are made in minutes; in the other
they are SQL views of databases in folders. A run is a function of its seed; one that fails prints how to repeat it.
`oracle` has the laws that are checked. `bugs` has faults that can be planted to show that they are found.

| module    | what it is for |
|-----------|-----------------|
| `plans`   | model transforms: what views compute |
| `network` | virtual time and links |
| `oracle`  | what must be true |
| `completions` | bounds against everything that can still come |
| `bags`    | bags of rows, and batches of codes |
| `node_parts` | what nodes have: sources, views, sessions, subscribers |
| `node_epochs` | the log of a node, and the views over it |
| `node_delivery` | what a node tells |
| `nodes`   | publishers and brokers around the cores |
| `databases` | nodes that are real databases |
| `clients` | subscribers |
| `virtual_host` | an event loop and workers in virtual time |
| `wire_publishers` | publishers that speak the messages of the wire |
| `brokers` | a database that is a broker, with the writer that ships |
| `broker_bugs` | planted bugs of such brokers |
| `world`   | a run: graph, workload, faults, healing |
| `bugs`    | planted bugs, by name |
| `runs`    | many runs, in one process or several |
"""
