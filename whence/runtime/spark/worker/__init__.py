"""The worker's side of a database in partitions.

| module              | what it is for |
|---------------------|-----------------|
| `worker`            | partitions kept in a Python worker between jobs |
| `replica`           | a copy of a partition that follows the command log |
| `commands`          | commands that change a partition |
| `spill`             | large batches as files |
| `dictionary_server` | the driver's dictionary, served to workers |
"""
