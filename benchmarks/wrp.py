"""Memory and reads of WRP's weight statistics, on the real model and on a wide one under a memory bound.

Run by hand: OMP_NUM_THREADS=1 python benchmarks/wrp.py [--model PATH] [--memory 2GB] [--layers 40]
Each measurement is a fresh process, and its memory is what it peaks at above the interpreter with torch
imported. The wide checkpoint has d = 4096, one small head and thin MLPs, so that it fits on a disk.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from prunebench.config.params import parse_size
from prunebench.core.stats import WeightStats
from prunebench.methods.wrp import weight_similarity
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.provenance import provenance

REAL_LIMIT = parse_size("200MB")
WIDTH, HEAD, FEATURES = 4096, 64, 1024
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of `weight_stats`."""

    stats: bytes
    reads: Counter[str]
    peak_bytes: int
    cpu_s: float
    wall_s: float


def measure(model: str, memory: int | None) -> Measured:
    """Run in a fresh process."""
    import torch

    before = memory_status("VmRSS")
    from prunebench.models.weights import weight_stats

    checkpoint = Checkpoint.open(model)
    reads: Counter[str] = Counter()
    wall, cpu = time.perf_counter(), time.process_time()
    stats = weight_stats(checkpoint, cka=True, memory=memory, reads=reads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert "transformers" not in sys.modules, f"torch {torch.__version__} alone was to be imported"
    return Measured(stats.to_bytes(), reads, memory_status("VmHWM") - before, cpu, wall)


def memory_status(field: str) -> int:
    """Bytes of this process now (VmRSS) or at its peak (VmHWM).

    Not getrusage, whose peak a process takes over from the one that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def write_wide(folder: str, layers: int) -> None:
    """A random Llama of d = 4096 in bfloat16."""
    import torch
    from safetensors.torch import save_file

    sizes = {
        **{f"self_attn.{role}_proj": (HEAD, WIDTH) for role in "qkv"},
        "self_attn.o_proj": (WIDTH, HEAD),
        "mlp.gate_proj": (FEATURES, WIDTH),
        "mlp.up_proj": (FEATURES, WIDTH),
        "mlp.down_proj": (WIDTH, FEATURES),
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
    }
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"model.layers.{i}.{name}.weight": torch.randn(size, generator=generator).bfloat16()
        for i in range(layers)
        for name, size in sizes.items()
    }
    tensors["model.embed_tokens.weight"] = torch.zeros(16, WIDTH, dtype=torch.bfloat16)
    tensors["model.norm.weight"] = torch.ones(WIDTH, dtype=torch.bfloat16)
    save_file(tensors, Path(folder) / "model.safetensors")
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": WIDTH,
        "intermediate_size": FEATURES,
        "num_attention_heads": 1,
        "head_dim": HEAD,
        "vocab_size": 16,
        "tie_word_embeddings": True,
    }
    (Path(folder) / "config.json").write_text(json.dumps(config))


def in_fresh_process(function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call in a new interpreter."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def show(title: str, measured: Measured) -> None:
    """Print one measurement."""
    by_module: dict[str, list[int]] = {}
    for name, count in measured.reads.items():
        by_module.setdefault(name.split(".", 3)[3].removesuffix(".weight"), []).append(count)
    print(f"{title}")
    print(f"  peak above torch    {measured.peak_bytes / 1e6:.0f} MB")
    print(f"  seconds             {measured.cpu_s:.1f} CPU, {measured.wall_s:.1f} wall")
    print(f"  reads               {measured.reads.total()} of {len(measured.reads)} tensors")
    for module, counts in by_module.items():
        times = ", ".join(f"{many} x {count}" for count, many in sorted(Counter(counts).items()))
        print(f"    {module:<20}{times}" + (" (tensors x reads)" if max(counts) > 1 else ""))
    sys.stdout.flush()


def main() -> None:
    """Measure and print; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--memory", type=parse_size, default=parse_size("2GB"))
    parser.add_argument("--layers", type=int, default=40, help="layers of the wide checkpoint")
    options = parser.parse_args()
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}")

    real = in_fresh_process(measure, options.model, None)
    show(f"{options.model}, no bound (target: under {REAL_LIMIT / 1e6:.0f} MB, every tensor once)", real)
    met = real.peak_bytes < REAL_LIMIT and set(real.reads.values()) == {1}

    with tempfile.TemporaryDirectory(prefix="prunebench-wrp-") as folder:
        in_fresh_process(write_wide, folder, options.layers)
        free = in_fresh_process(measure, folder, None)
        show(f"d = {WIDTH}, {options.layers} layers, no bound", free)
        bound = in_fresh_process(measure, folder, options.memory)
        show(f"d = {WIDTH}, {options.layers} layers, --memory {options.memory / 1e9:g}GB", bound)
    similarities = [weight_similarity(WeightStats.from_bytes(each.stats)).tobytes() for each in (free, bound)]
    equal = similarities[0] == similarities[1] and free.stats == bound.stats
    print(f"S under the bound {'equal to the last bit' if equal else 'DIFFERENT'}")
    met = met and equal and bound.peak_bytes < options.memory
    print("targets met" if met else "TARGETS MISSED")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
