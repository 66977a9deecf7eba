"""Measurements of Whence beside its peers, each peer doing the same work in the same run.

| module | question |
|---|---|
| `recursive_peers` | what one link deleted or inserted costs in four recursive views, at 100 to 1,600 nodes |
| `join_peers` | what a batch of 1,000 mixed updates costs in a three-way join with GROUP BY over a million rows |
| `durable` | what commits, batches and reopening cost on disk, beside SQLite |
| `small_epochs` | what one row costs under 0 to 50 views, in memory and on disk |
| `lookups` | what it costs to find rows of a view of 5.6 million rows by key |
| `serving` | what a served database costs: events in, changes out, clients that come back; beside NATS and PostgreSQL |
| `delivery` | what delivery over three brokers in a row costs, and what curiosity saves; beside NATS in a row |
| `limits` | growth with unrelated state, bytes a row, time from import to the first answer |

`transit_stub`, `star`, `ledger`, `authorization` and `serving_data` make the data, `reopening` is a part of `durable`,
`serving_*` and `delivery_*` are the parts of `serving` and `delivery`, `peers/` holds one runner a system, `report`
prints, plots and saves.
"""
