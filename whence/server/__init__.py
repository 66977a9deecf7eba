"""A database served over the network: HTTP for reading, writing and questions, WebSocket and SSE for subscriptions.

| module           | what it is for |
|------------------|-----------------|
| `limits`         | how much one caller may ask of the server |
| `failures`       | errors as a client gets them |
| `listening`      | addresses, sockets and certificates |
| `worker_threads` | threads for what takes longer than an event loop may wait |
| `app`            | `whence.serve`: a server from its start to its end |
| `access`         | who may do what: tokens, rights of names and rows, pages and hosts |
| `writing`        | writes of many connections, committed by one thread and acknowledged when they are stable |
| `verbs`          | what can be called, over HTTP and WebSocket alike: every verb once |
| `web`            | HTTP: addresses, requests, formats, and streams of events |
| `delivery`       | subscriptions: from an epoch that is stable to the frames of all who follow it |
| `sockets`        | WebSocket connections and their sessions |
"""
