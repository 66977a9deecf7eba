"""One runner a system, all with the interface of `common.Peer`: load, update, answer, each timed the same way.

| peer | what it does on an update |
|---|---|
| `whence_peer` | maintains the view; public API only |
| `pathway_peer` | maintains the view with `pw.iterate` (differential dataflow), in a process of its own |
| `duckdb_peer` | recomputes with WITH RECURSIVE and takes the difference |
| `scipy_peer` | recomputes with the fastest graph or matrix routine for the program at hand |

Servers, for `serving`, have the interface of `served`: a process, an address, publishers and followers.

| server | what its clients get |
|---|---|
| `whence_server_peer` | the changes of maintained views |
| `nats_peer`, `nats_raw` | raw events, of which they compute their views; without a client library where that is slow |
| `rows` | the first two, as three servers in a row, for `delivery` |
| `postgres_peer` | a notification, after which they ask for their views again |
"""
