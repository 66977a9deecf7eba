"""Subscriptions to a running database: its relations and queries followed, for this process and for a server.

`whence/subscribe/` says what a subscriber is told; here it is tied to a coordinator. A query that is not simply a table
or view is kept by a transient view, which all who ask for it share.

| module      | what it is for |
|-------------|-----------------|
| `queries`   | which SELECTs can be subscribed to, and when two are the same |
| `channels`  | relations that are followed, and the channels that equal subscriptions share |
| `horizons`  | what promises have established for a relation, as of any epoch that may be told |
| `closings`  | when rows become final that do not change |
| `hub`       | opens and closes channels, and says what may be told |
| `witnesses` | why the rows of an update are there, as of its epoch |
| `local`     | `db.subscribe`: a subscription in this process |
| `triggers`  | conditions that subscriptions wait for |
| `templates` | subscriptions to templates |
"""
