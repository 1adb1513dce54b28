"""Deployed checkpoints of a real model: greedy tokens in memory, reloaded, and served by vLLM.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/deployed.py [--model builtin:smollm2-135m]

A LoRP and a LaCo plan are served by stock vLLM, a LayerTrim plan (unequal MLP widths) by the plugin and by
vLLM's Transformers backend with the checkpoint's own code. All in float32; the target is that all tokens are
equal. Tokens after a first difference answer another prompt and are not counted.
"""

import argparse
import gc
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

import torch
from transformers import AutoModelForCausalLM

from prunebench.cli.executors import make_worker
from prunebench.core.plan import PruningPlan
from prunebench.evaluation.setup import ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import export
from prunebench.models.load import load_model, load_tokenizer
from prunebench.models.view import ModelView
from prunebench.models.vllm_plugin import register
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import progress_for
from prunebench.pipeline.prune import prepare_prune, prune

METHODS = ("lorp", "laco", "layertrim")
CALIBRATION = "builtin:pydoc:calibration?samples=4&length=256"
PROBE = "builtin:pydoc:probe?samples=2&length=128"
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "Once upon a time there was a small village",
)


def plans(checkpoint: Checkpoint, budget: int) -> dict[str, PruningPlan]:
    """A plan of each method, by its name."""
    setup = ModelSetup(
        path=str(checkpoint.path),
        weights_id=checkpoint.weights_id,
        dtype="float32",
        attention="sdpa",
        device="cpu",
    )
    found = {}
    with progress_for(quiet=True) as progress:
        executor = LocalExecutor(lambda: make_worker({"model": setup}, 1))
        for method in METHODS:
            job = prepare_prune(
                model=checkpoint.name,
                method=method,
                budget=str(budget),
                params={},
                calibration=CALIBRATION,
                probe=PROBE,
                mirror=None,
                memory=None,
            )
            found[method] = prune(job, dtype="float32", executor=executor, progress=progress).plan
    return found


def generated(model: Any, rows: Sequence[list[int]], steps: int) -> list[list[int]]:  # noqa: ANN401
    """Greedy tokens after each row."""
    found = []
    for row in rows:
        ids = torch.tensor([row])
        tokens = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
        )
        found.append(tokens[0, len(row) :].tolist())
    return found


def served(folder: Path, rows: Sequence[list[int]], steps: int, **settings: Any) -> list[list[int]]:  # noqa: ANN401
    """Greedy tokens of vLLM after each row."""
    from vllm import LLM, SamplingParams, TokensPrompt
    from vllm.distributed import cleanup_dist_env_and_memory

    engine = LLM(
        model=str(folder),
        dtype="float32",
        max_model_len=256,
        max_num_seqs=len(rows),
        enforce_eager=True,
        skip_tokenizer_init=True,
        seed=0,
        **settings,
    )
    greedy = SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True, detokenize=False)
    prompts = [TokensPrompt(prompt_token_ids=row) for row in rows]
    found = [list(done.outputs[0].token_ids) for done in engine.generate(prompts, greedy, use_tqdm=False)]
    del engine
    gc.collect()
    cleanup_dist_env_and_memory()
    return found


def everywhere(
    folder: Path, rows: Sequence[list[int]], steps: int, *, trimmed: bool
) -> Iterator[tuple[str, list[list[int]]]]:
    """The greedy tokens of each runtime that loads the checkpoint."""
    reloaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=True)
    yield "Transformers", generated(reloaded.eval(), rows, steps)
    yield "vLLM", served(folder, rows, steps)
    if trimmed:
        backend = served(folder, rows, steps, model_impl="transformers", trust_remote_code=True)
        yield "vLLM, Transformers backend", backend


def equal_tokens(here: list[list[int]], there: list[list[int]]) -> int:
    """Tokens that are equal up to each row's first difference."""
    counts = []
    for one, other in zip(here, there, strict=True):
        differ = [i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
        counts.append(differ[0] if differ else len(one))
    return sum(counts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--budget", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()

    torch.set_num_threads(1)
    checkpoint = Checkpoint.open(options.model)
    tokenizer = load_tokenizer(checkpoint)
    rows = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    total = len(rows) * options.tokens
    print(f"machine    {platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread")
    print(f"model      {checkpoint.name}, float32, {len(rows)} prompts x {options.tokens} greedy tokens")

    register()
    dense = load_model(checkpoint, dtype="float32")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for method, plan in plans(checkpoint, options.budget).items():
            out = export(checkpoint, plan, Path(folder) / method, dtype="float32")
            with ModelView(dense).applied(plan, deployed=True) as model:
                here = generated(model, rows, options.tokens)
            began = time.process_time()
            for runtime, there in everywhere(out, rows, options.tokens, trimmed=bool(plan.kept_features)):
                equal, seconds = equal_tokens(here, there), time.process_time() - began
                failed |= equal < total
                print(f"{method:10} {runtime:28} {equal}/{total} equal, {seconds:.0f} CPU s", flush=True)
                began = time.process_time()
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
