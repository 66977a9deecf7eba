"""WebSocket connections and their sessions.

| module      | what it is for |
|-------------|-----------------|
| `websocket` | WebSocket connections: frames in and out |
| `session`   | one client over a WebSocket: hello, subscriptions, inserts, calls |
| `inserts`   | inserts over a WebSocket as writes of the queue |
| `gateway`   | all connections that follow the database, and what they share |
"""
