"""HTTP: addresses, requests, formats, and streams of events.

| module             | what it is for |
|--------------------|-----------------|
| `http`             | the HTTP application |
| `http_connections` | HTTP connections with a deadline for the head of a request |
| `requests`         | HTTP requests as arguments of a verb |
| `endpoints`        | the table of addresses |
| `openapi`          | the description of the addresses, and its page |
| `formats`          | rows as JSON, Arrow and CSV |
| `metrics`          | counters, in the text format of Prometheus |
| `sse`              | subscriptions as a stream of events over HTTP |
"""
