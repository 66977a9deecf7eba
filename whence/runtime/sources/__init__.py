"""Sources: tables and streams whose rows come from other databases. A database that has some is a broker.

What a publisher tells is applied in one transaction with the **ticks** that it covers, the epochs of the publisher's
history. So what was told twice is applied once, what is missing is seen and asked for, and a broker that was killed
knows what it has. Of streams, rows after a gap are applied at once; tables, and plans that depend on the order of rows,
wait until every tick before is here. What decides is `subscribe/sources.py`, which knows no socket, clock or thread.

| module         | what it is for |
|----------------|-----------------|
| `broker`       | all sources of one database, and the thread that their messages come in by |
| `host`         | what does the work of a broker: an event loop and threads, or virtual time |
| `source_feed`  | one source: its subscription upstream, from message to action |
| `connection`   | the WebSocket to one server |
| `nats_connection` | the connection to a bus, by which relations are heard that others publish |
| `asking`       | what a source is asked for |
| `curiosity`    | what sources are asked for, kept current |
| `source_curiosity` | follows the local relations that decide what one source is asked for |
| `results`      | parts of views that publishers compute, and the rows in their place |
| `definition`   | what a relation is, as SQL that goes to those who make a source of it |
| `source_writer`| the worker that makes transactions of what has come |
| `promises`     | promises of publishers, as writes of a broker |
| `reflected`    | the ticks that are reflected, as rows |
| `relayed`      | a relation in the ticks of a history: how a server tells brokers of it |
| `fetched_rows` | rows that a relay had let go of, through the query of who asks for them |
| `ordered`      | rows of several sources in one order |
| `lost_changes` | single changes that are not known any more, told to those who want each |
| `doubt`        | what the rows of a subscription reflect, and wait for |
| `listing`      | SHOW SOURCES |
"""
