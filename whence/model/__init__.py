"""Types, values and errors: what every other package builds on.

Every SQL value is one int64 code, so rows are rows of int64 and kernels compile once for all schemas.

| module     | what it is for |
|------------|-----------------|
| `types`    | SQL types, columns and schemas |
| `codes`    | values as int64 codes, and the dictionary of interned ones |
| `wide`     | codes of DECIMALs of 19 to 38 digits |
| `word_marks` | marks the words of a dictionary that are in use |
| `text`     | CAST to and from TEXT |
| `zones`    | time zones: local times and instants |
| `errors`   | the errors that users see |
| `paths`    | paths of files, distinguished from URLs |
| `progress` | the callback that reports progress |
| `sizes`    | sizes in bytes, as people read them |
| `budget`   | reports the progress of a long task, and ends it |
| `jit`      | compiles kernels, and caches them |
| `record`   | records of arrays that kernels take by address |
"""
