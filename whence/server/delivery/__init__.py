"""Subscriptions: from an epoch that is stable to the frames of all who follow it.

| module       | what it is for |
|--------------|-----------------|
| `delivery`   | what is new goes to all who subscribe |
| `telling`    | what is sent of what values can still become |
| `subscriber` | one subscription: its cursor, and what it is being sent |
| `tick_subscriber` | one subscription of a broker: ranges of ticks, and silence |
| `audience`   | all who follow one channel, and the frames they share |
| `admissions` | which channel a caller's queries are, by their rights |
| `states`     | the state of a subscription in chunks |
| `explained`  | changes with the witnesses of their rows |
| `frames`     | messages as the bytes that go to a socket |
"""
