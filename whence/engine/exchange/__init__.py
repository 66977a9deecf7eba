"""Rows on their way between partitions.

| module       | what it is for |
|--------------|-----------------|
| `messages`   | a batch for one partition, or for all |
| `ship`       | Ship and LocalFilter: rows in the partitions where the plan needs them |
| `heavy_keys` | counts of the keys that many rows have |
| `wire`       | the wire format of messages that carry more than rows |
| `traffic`    | counts of messages, rows and bytes |
| `kernels`    | the compiled part of the above |
"""
