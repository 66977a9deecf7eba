"""Spark's DataFrames: rows in, as batches and as streams, and changes out.

| module      | what it is for |
|-------------|-----------------|
| `frames`    | DataFrames to rows, and back |
| `columns`   | a DataFrame's columns as a table's |
| `debezium`  | Debezium's change events |
| `routing`   | one job: encode rows, and route them to partitions |
| `corrupt`   | records that Spark's readers could not read |
| `lines`     | the line numbers of rejected records |
| `refusals`  | rows that break the order of a stream |
| `splitting` | a batch too large for one epoch, as several |
| `streams`   | streaming DataFrames attached to tables |
| `sinks`     | changes of views as DataFrames |
"""
