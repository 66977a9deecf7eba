"""Durability: what a coordinator writes, and how a database comes back.

| module           | what it is for |
|------------------|-----------------|
| `storage`        | what a coordinator asks of where its database is stored |
| `journal`        | makes epochs durable |
| `durable_epochs` | which epochs are stable, for those who may be told of no others |
| `images`         | an image of one epoch, written while later ones run |
| `snapshots`      | when images are taken |
| `recovery`       | the newest image, then the log |
| `follower`       | reads a folder that another process writes to |
| `uniting`        | images of partitions as those of one database |
| `checking`       | are files and views as they should be? |
| `copying`        | backups and exports |
| `importing`      | a database from an export |
| `upkeep`         | these as methods of a database |
"""
