"""Writes of many connections, committed by one thread and acknowledged when they are stable.

| module         | what it is for |
|----------------|-----------------|
| `write_queue`  | the thread that commits what connections write |
| `epoch_writes` | the writes of one epoch, each in a savepoint |
| `acknowledger` | the thread that answers writes when they are stable |
| `publishers`   | numbered writes, each done once |
"""
