"""Built-in scalar functions over columns of codes, one family per file."""
