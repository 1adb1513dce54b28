"""Cost of the calibration pass with all statistics on, against plain forward passes.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/calibration.py [--model builtin:smollm2-135m] [--dtype D]

Both run the same batches in the same dtype and threads, and neither runs the LM head. Plain and measured
passes alternate; ratios are of CPU seconds, user and system.
The targets are a ratio of at most 1.20 and less than 200 MB of extra memory at 4 rows of 512 tokens.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from prunebench.models.calibrate import batches, calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model


def plain(dense: DenseModel, rows: list[np.ndarray]) -> None:
    """The same forward passes as `calibrate`, and nothing else."""
    with torch.inference_mode():
        for batch in batches([len(row) for row in rows]):
            ids = torch.from_numpy(np.stack([rows[i] for i in batch])).to(dense.device)
            dense.model.model(input_ids=ids, use_cache=False)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call, user and system."""
    began = time.process_time()
    work()
    return time.process_time() - began


def peak_mb(work: Callable[[], object]) -> float:
    """Resident memory of this process at its highest while `work` runs, in MB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    work()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    dense = load_model(Checkpoint.open(options.model), dtype=options.dtype)
    vocab_size = dense.model.config.vocab_size
    rows = list(np.random.default_rng(0).integers(0, vocab_size, (options.rows, options.length)))
    works = (lambda: plain(dense, rows), lambda: calibrate(dense, rows, "benchmark"))
    for work in works:
        work()
    plain_mb, measured_mb = (peak_mb(work) for work in works)
    pairs = [tuple(cpu_seconds(work) for work in works) for _ in range(options.repeats)]
    plains, measured = zip(*pairs, strict=True)
    print(f"machine: {processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"model: {dense.checkpoint.name}, {options.dtype}, {options.rows} x {options.length} tokens")
    for name, seconds in (("plain", plains), ("with all statistics", measured)):
        print(f"{name}: {min(seconds):.3f} CPU s at least, {statistics.median(seconds):.3f} median")
    ratio = statistics.median(after / before for before, after in pairs)
    print(f"ratio: {ratio:.3f} (median of pairs), {min(measured) / min(plains):.3f} (of the minima)")
    print(f"extra memory: {measured_mb - plain_mb:.0f} MB")


def processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
