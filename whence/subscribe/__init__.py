"""What subscriptions are made of, without input or output: it can be simulated, and tested without a server.

A **position** says which epoch of which history a subscriber has; a **history** is one database's, and each opening of
its folder for writing begins an **era** of it. A **state** is all rows of a query at a position; an **update** is the
net difference between two positions: rows that **went** and rows that **came**. A subscriber is a **cursor**, the
position it has reached, not a queue: whoever falls behind is given the difference from its position, or the state.
Only what is on stable storage is ever sent.

| module      | what it is for |
|-------------|-----------------|
| `positions` | which epoch of which history a client has reached |
| `plain`     | values of rows as JSON and msgpack have them |
| `messages`  | what a server and its clients send each other |
| `recent`    | the last changes of a relation, shared by all who follow it |
| `cursor`    | what to tell one subscriber next |
| `horizons`  | what promises have established as of a position |
| `gaps`      | which ticks are missing, and when to ask for them |
| `growth`    | which rows can still come, given horizons |
| `cells`     | what the values of a row can still become |
| `open_rows` | which rows a horizon makes final, found without looking at all of them |
| `ranges`    | sets of ticks, and their gaps |
| `passed_wants` | what subscribers of a relay ask for, and it asks for itself |
| `publishing`| what to tell a broker: ranges of ticks through its filter, answers to what it asks |
| `sources`   | what a broker has of a source: repeats, gaps, timers, amendments |
| `amendments`| when the filter of a source is to change |
| `source_needs` | what is needed of a source |
| `source_uses` | what one place in a plan needs of a source |
| `pushdown`  | which part of the views above is asked of each source |
| `results`   | which parts of views are computed where their sources are |
| `relation_facts` | what is known of a query's rows, ready to be asked |
| `wire_knowledge` | knowledge and horizons as they are sent |
| `row_bags`  | the rows at a subscriber, and those that it saw go |
| `known_rows` | what is known of one row: its values, bounds and whether it may come or go |
| `part_updates` | how one query changed, and what is known of its rows |
| `bus`       | what goes over a bus that many share: subjects, and messages in pieces |
| `rectangles` | messages for a content-based network: which ranges have a new answer |
| `routing`   | by which links a broker passes such messages on |
| `updates`   | what a subscriber iterates over |
| `waiting`   | publishers that have not been heard of |
| `urls`      | addresses of servers |
| `retrying`  | when to try again |
| `simulate`  | publishers, brokers and subscribers in virtual time |
"""
