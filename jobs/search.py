"""What `ray job submit` runs: python jobs/search.py CONFIG [--store DIR] [--set a.b=c]."""

import sys

from prunebench.cli import main

if __name__ == "__main__":
    main(["search", *sys.argv[1:], "--executor", "ray"])
