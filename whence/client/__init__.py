"""Clients of a served database (`whence.connect`): blocking and async, with the verbs of a local one.

There is one implementation. The protocol's state is held without input or output (`protocol`, `feeds`), an asyncio link
makes and remakes the connection, and the blocking client runs that in a thread of its own.

| module          | what it is for |
|-----------------|-----------------|
| `failures`      | errors of a server, raised as what they are there |
| `encoding`      | rows and values to send, and tables that come back |
| `statements`    | which scripts may be sent again |
| `feeds`         | what a subscription has received and its user has not taken |
| `events`        | what is under way, and what happens to it |
| `protocol`      | what to send on each connection, and what messages mean |
| `connection`    | the link to a server, made again when it is lost |
| `transactions`  | writes that are gathered and sent as one |
| `answers`       | answers of questions |
| `handles`       | handles on tables, streams and views |
| `async_reader`  | the verbs that read, to be awaited |
| `client`        | `AsyncClient` and `connect_async` |
| `background`    | an event loop in a thread |
| `reader`        | the verbs that read, and wait |
| `blocking`      | `Client` and `connect` |
| `subscriptions` | subscriptions, async and blocking |
| `messages`      | messages of templates, async and blocking |
"""
