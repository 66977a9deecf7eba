"""Built-in scalar functions over columns of codes, one family per file.

| module       | what it is for |
|--------------|-----------------|
| `common`     | calling conventions |
| `arithmetic` | + - * / // % |
| `decimals`   | the same with wide DECIMALs |
| `numbers`    | ROUND, FLOOR, SQRT and others |
| `compare`    | comparison and logic |
| `choice`     | NULLIF, LEAST, GREATEST, IN |
| `text`       | text functions |
| `dates`      | dates, timestamps and intervals |
| `casts`      | CAST and TRY_CAST |
"""
