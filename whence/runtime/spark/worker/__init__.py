"""The worker's side of a database in partitions.

| module              | what it is for |
|---------------------|-----------------|
| `worker`            | partitions kept in a Python worker between jobs |
| `exchange`          | a task of an epoch that is one job, and what it says to others |
| `peers`             | messages between tasks: who listens, and who has called |
| `replica`           | a copy of a partition that follows the command log |
| `commands`          | commands that change a partition |
| `spill`             | large batches as files |
| `dictionary_server` | the driver's dictionary, served to workers |
| `connections`       | connections whose both sides know a secret, and frames on them |
"""
