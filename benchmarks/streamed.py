"""Memory and time of a model read block by block, against the whole model in memory.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/streamed.py [--model builtin:smollm2-135m] [--dtype D]

Each of four jobs (calibration, and perplexity of three plans; whole and streamed) runs in a fresh process.
Memory is the peak of resident memory above what it was with the libraries imported; the time is CPU seconds,
user and system, of loading and work. Both ways have to give the same bits.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers

from prunebench.core.plan import LayerSpec, PruningPlan
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model
from prunebench.models.scoring import Row, token_logprobs
from prunebench.models.streamed import stream_model

JOBS = ("calibration", "perplexity")


def three_plans(layers: int) -> list[PruningPlan]:
    """A depth plan, a merge, and the dense model."""
    cut = layers // 2
    merged = LayerSpec(base=cut, blend=((cut, -1.0), (cut + 1, 1.0), (cut + 2, 1.0)))
    kept = [LayerSpec(base=i) for i in range(layers) if not cut <= i <= cut + 2]
    return [
        PruningPlan.dense(layers),
        PruningPlan.without(range(cut, cut + 4), layers),
        PruningPlan(num_layers=layers, layers=(*kept[:cut], merged, *kept[cut:])),
    ]


def run_job(job: str, dense: DenseModel, rows: list[np.ndarray]) -> bytes:
    """The bytes of a job's result."""
    if job == "calibration":
        return calibrate(dense, rows, "benchmark").to_bytes()
    plans = three_plans(dense.checkpoint.shape.num_layers)
    found = dict(token_logprobs(dense, plans, [Row(row) for row in rows]))
    return b"".join(values.tobytes() for plan in plans for values in found[plan])


def resident(field: str) -> float:
    """VmRSS or VmHWM of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1000


def measure(options: argparse.Namespace) -> None:
    """One job in this process; prints its figures as JSON."""
    checkpoint = Checkpoint.open(options.model)
    size = (options.rows, options.length)
    rows = list(np.random.default_rng(0).integers(0, checkpoint.vocab_size, size))
    # The model's own code is imported when it is first asked for.
    config = transformers.AutoConfig.from_pretrained(checkpoint.path)
    assert transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    Path("/proc/self/clear_refs").write_text("5")
    before, began = resident("VmRSS"), time.process_time()
    load = stream_model if options.streamed else load_model
    dense = load(checkpoint, dtype=options.dtype)
    found = run_job(options.job, dense, rows)
    figures = {
        "mb": resident("VmHWM") - before,
        "cpu_s": time.process_time() - began,
        "sha": hashlib.sha256(found).hexdigest(),
    }
    print(json.dumps(figures))


def in_fresh_process(options: argparse.Namespace, job: str, streamed: bool) -> dict[str, float | str]:
    """The figures of one job."""
    words = [sys.executable, __file__, "--job", job, "--model", options.model, "--dtype", options.dtype]
    words += ["--rows", str(options.rows), "--length", str(options.length), *["--streamed"] * streamed]
    done = subprocess.run(words, env=os.environ, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--streamed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        measure(options)
        return
    print(f"machine: {platform.processor() or platform.machine()}, torch {torch.__version__}")
    print(f"model: {options.model}, {options.dtype}, {options.rows} x {options.length} tokens")
    for job in JOBS:
        whole, streamed = (in_fresh_process(options, job, way) for way in (False, True))
        for name, figures in (("whole", whole), ("streamed", streamed)):
            print(f"{job}, {name}: peak {figures['mb']:.0f} MB over imports, {figures['cpu_s']:.1f} CPU s")
        time_ratio = float(streamed["cpu_s"]) / float(whole["cpu_s"])
        memory_ratio = float(streamed["mb"]) / float(whole["mb"])
        same = "equal bits" if whole["sha"] == streamed["sha"] else "OTHER BITS"
        print(f"{job}: memory x {memory_ratio:.2f}, CPU time x {time_ratio:.2f}, {same}")


if __name__ == "__main__":
    main()
