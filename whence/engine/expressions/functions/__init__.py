"""Built-in scalar functions over columns of codes, one family a file; `common.py` has their calling conventions."""
