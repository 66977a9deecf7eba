"""The files of a database, and the one interface to where they are.

A database is a folder: a log of epochs, images to start from, and a manifest that names both. One process writes; any
number read.

| module      | what it is for |
|-------------|-----------------|
| `disk`      | the file system: every change of a file goes through it |
| `lock`      | at most one writer |
| `manifest`  | the list of a database's files |
| `folder`    | the folder for readers |
| `store`     | the folder for its writer |
| `log`       | the write-ahead log |
| `segment`   | one file of the log |
| `codec`     | epochs, dictionary values and statements as bytes |
| `inputs`    | files of rows as sources gave them |
| `chain`     | images as a chain of files: a base and patches |
| `directory` | where each block of a chain is |
| `check`     | are the files as they were written? |
| `backup`    | copies of a database in use |
| `info`      | facts that need no loading |
| `kernels`   | the compiled part of the above |
"""
