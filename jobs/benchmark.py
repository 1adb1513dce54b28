"""What `ray job submit` runs: python jobs/benchmark.py CONFIG [--store DIR] [--set a.b=c]."""

import sys

from prunebench.cluster.pins import check_environment

if __name__ == "__main__":
    check_environment()
    from prunebench.cli import main

    main(["run", *sys.argv[1:], "--executor", "ray", "--set", "executor.address=null"])
