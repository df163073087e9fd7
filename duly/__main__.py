"""`python -m duly`: the same as the `duly` command."""

import sys

from duly.nodes.cli import main

if __name__ == "__main__":
    sys.exit(main())
