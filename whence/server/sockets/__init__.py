"""WebSocket connections and their sessions.

| module      | what it is for |
|-------------|-----------------|
| `websocket` | WebSocket connections: frames in and out |
| `session`   | one client over a WebSocket: hello, subscriptions, inserts, calls |
| `inserts`   | inserts over a WebSocket as writes of the queue |
| `bus_publisher` | relations that are published on a bus, and questions about them |
| `gateway`   | all connections that follow the database, and what they share |
"""
