"""Writes: transactions over tables and streams, until they become an epoch.

| module          | what it is for |
|-----------------|-----------------|
| `transaction`   | writes to any tables that become one epoch |
| `tables`        | a table as its writer sees it: committed rows and pending writes |
| `stream_writes` | the same for a stream, which is append-only |
| `inputs`        | rows as sources gave them, to deltas of tables |
| `conditions`    | rows named by key, by columns or by SQL |
| `row_selection` | the rows of a DELETE or UPDATE |
| `arrivals`      | which rows of streams came in which epoch |
| `expiry`        | time, and lifetimes: rows that expire |
| `silence`       | epochs without rows, which tell that time has passed |
| `deadlines`     | the thread that does what is due |
| `promise_guard` | enforces CHECK, ordered and closes |
| `horizons`      | what promises have established about rows to come |
| `watermarks`    | watermarks that move without rows |
| `pace`          | how long a busy writer waits for more before the next epoch |
| `kernels`       | the compiled part of the above |
"""
