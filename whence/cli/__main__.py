"""`python -m whence.cli` is the `whence` command."""

from whence.cli import main

if __name__ == "__main__":
    main()
