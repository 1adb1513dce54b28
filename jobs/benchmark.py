"""What `ray job submit` runs: python jobs/benchmark.py CONFIG [--store DIR] [--set a.b=c]."""

import sys

from prunebench.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:], "--executor", "ray"])
