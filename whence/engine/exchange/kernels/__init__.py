"""The compiled part of the exchange.

| module       | what it is for |
|--------------|-----------------|
| `routing`    | the partition that a row lives in |
| `wire`       | integers in as few bytes as they need |
| `heavy_keys` | keys that many rows have |
"""
