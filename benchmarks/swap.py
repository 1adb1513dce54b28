"""One vLLM engine for every variant: equal tokens, proof of each swap, and what it saves.

Run by hand: OMP_NUM_THREADS=1 python benchmarks/swap.py [--model builtin:smollm2-135m] [--device cpu]
LoRP, LaCo and LayerTrim plan on the real model. For the first two the padded engine has to write the greedy
tokens of the exported smaller checkpoint, in Transformers and in stock vLLM. LayerTrim's trimmed sums round
otherwise, so it reads the narrow model's tokens with teacher forcing, and where its first choice is another
one, its two best have to be closer than rounding. Then twenty variants go through the one engine.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from prunebench.core.plan import PruningPlan
from prunebench.data.tasks import Question
from prunebench.evaluation.generation.base import Request, Sampling
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.hf import HfEngine
from prunebench.evaluation.generation.vllm import VllmEngine
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.evaluation.worker import Worker
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import write
from prunebench.models.load import DenseModel, load_model
from prunebench.models.view import ModelView
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.prune import prepare_prune, prune

CONTEXT, TOKENS = 1024, 40
BUDGET = "7"
CALIBRATION = "builtin:pydoc:calibration?samples=8&length=256"
METHODS: Mapping[str, dict[str, Any]] = {"lorp": {}, "laco": {}, "layertrim": {}}
PROMPTS = (
    "What is 12 times 7? Think step by step.",
    "Name three colours of the rainbow.",
    "Write a short story about a lighthouse.",
    "Explain why the sky is blue.",
)
ROUNDING = 1e-4
"""Nats between the two best tokens below which float32 may choose either."""


class RecordingCodec(Codec):
    """Keeps the token ids of what is written, in the order in which it is finished."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.ids: dict[tuple[int, ...], tuple[int, ...]] = {}

    def written(self, request: Request, ids: Sequence[int]) -> Any:  # noqa: ANN401
        """As the codec, and remembered by prompt."""
        self.ids[request.prompt] = tuple(ids)
        return super().written(request, ids)


@dataclass
class Bench:
    """One model with its engines."""

    setup: ModelSetup
    checkpoint: Checkpoint
    codec: RecordingCodec
    dense: DenseModel
    """On the CPU: what engines are compared with."""
    starts: list[float] = field(default_factory=list)
    """Seconds of each engine start."""

    @classmethod
    def open(cls, model: str, dtype: str, device: str, attention: str = "sdpa") -> "Bench":
        """Load the model."""
        checkpoint = Checkpoint.open(model)
        setup = ModelSetup(
            path=str(checkpoint.path),
            weights_id=checkpoint.weights_id,
            dtype=dtype,
            attention=attention,
            device=device,
        )
        dense = load_model(checkpoint, dtype=dtype, attention=attention)
        return cls(setup, checkpoint, RecordingCodec(checkpoint), dense)

    @property
    def requests(self) -> list[Request]:
        """The prompts in chat, to be answered greedily."""
        sampling = Sampling(context=CONTEXT, max_tokens=TOKENS)
        questions = [Question(prompt=text, raw=False, grader="", reference=None) for text in PROMPTS]
        return [Request(prompt=self.codec.encode(q), sampling=sampling, seed=0) for q in questions]

    @contextmanager
    def engine(self, execution: str) -> Iterator[VllmEngine]:
        """A vLLM engine, stopped afterwards."""
        settings = EngineSetup(kind="vllm", execution=execution, max_model_len=CONTEXT)
        engine = VllmEngine(settings, self.setup, self.checkpoint, self.codec, lambda: self.dense)
        try:
            yield engine
        finally:
            engine.close()

    def tokens(self, engine: VllmEngine | HfEngine, plan: PruningPlan) -> list[tuple[int, ...]]:
        """Greedy tokens after each prompt."""
        self.codec.ids.clear()
        for _ in engine.generate(plan, self.requests):
            pass
        return [self.codec.ids[request.prompt] for request in self.requests]

    def plans(self) -> dict[str, PruningPlan]:
        """What the methods choose on this model."""
        found = {}
        for method, params in METHODS.items():
            job = prepare_prune(
                model=self.setup.path,
                method=method,
                budget=BUDGET,
                params=params,
                calibration=CALIBRATION,
                probe=None,
                mirror=None,
                memory=None,
            )
            executor = LocalExecutor(lambda: Worker({"model": self.setup}, 1))
            found[method] = prune(job, dtype=self.setup.dtype, executor=executor, progress=Silent()).plan
        return found

    def twenty(self) -> list[PruningPlan]:
        """Twenty variants: five layers less from the second on, two apart, and fewer."""
        layers = self.checkpoint.shape.num_layers
        windows = [range(first, first + size) for size in (5, 3, 1) for first in range(2, layers - 6, 3)]
        return [PruningPlan.without(window, layers) for window in windows[:20]]


def swap_report(bench: Bench, plans: Mapping[str, PruningPlan]) -> dict[str, dict[str, float]]:
    """Each plan through one padded engine: seconds of the swap with its proof, difference, checksums.

    For `gpu_check.py`: where the engine's tensors can be read, `checksums` counts those that are compared.
    """
    found: dict[str, dict[str, float]] = {}
    with bench.engine("padded") as engine:
        began = time.perf_counter()
        engine.show(PruningPlan.dense(bench.checkpoint.shape.num_layers))
        bench.starts.append(time.perf_counter() - began)
        padded = engine.padded
        assert padded is not None
        for name, plan in plans.items():
            began = time.perf_counter()
            engine.show(plan)
            seconds = time.perf_counter() - began
            found[name] = {
                "seconds": seconds,
                "difference": padded.proof.difference(plan),
                "checksums": float(len(padded.checksums)),
            }
    return found


def deployed_tokens(bench: Bench, plan: PruningPlan) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Greedy tokens of the exported smaller checkpoint, in Transformers and in stock vLLM."""
    with tempfile.TemporaryDirectory() as folder:
        smaller = Checkpoint.open(
            write(bench.checkpoint, plan, Path(folder) / "export", dtype=bench.setup.dtype).folder
        )
        model = load_model(smaller, dtype=bench.setup.dtype)
        hf = HfEngine(lambda: model, bench.codec)
        theirs = bench.tokens(hf, PruningPlan.dense(smaller.shape.num_layers))
    with bench.engine("deployed") as engine:
        began = time.perf_counter()
        engine.show(plan)
        bench.starts.append(time.perf_counter() - began)
        return theirs, bench.tokens(engine, plan)


def narrow_tokens(bench: Bench, plan: PruningPlan) -> list[tuple[int, ...]]:
    """Greedy tokens of the view with trimmed MLPs made smaller for real, in Transformers."""
    linears: list[tuple[torch.nn.Linear, torch.nn.Parameter]] = []
    with ModelView(bench.dense).applied(plan) as model:
        for spec, block in zip(plan.layers, model.model.layers, strict=True):
            if spec.features is None:
                continue
            kept = torch.from_numpy(spec.features.indices)
            for linear, axis in ((block.mlp.gate_proj, 0), (block.mlp.up_proj, 0), (block.mlp.down_proj, 1)):
                linears.append((linear, linear.weight))
                narrow = linear.weight.index_select(axis, kept)
                linear.weight = torch.nn.Parameter(narrow, requires_grad=False)
        try:
            return _greedy(bench, model)
        finally:
            for linear, weight in reversed(linears):
                linear.weight = weight


def _greedy(bench: Bench, model: Any) -> list[tuple[int, ...]]:  # noqa: ANN401
    found = []
    for request in bench.requests:
        row = torch.tensor([request.prompt])
        ids = model.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=request.limit,
            do_sample=False,
            eos_token_id=list(bench.codec.end_ids),
            pad_token_id=0,
        )
        found.append(tuple(ids[0, row.shape[1] :].tolist()))
    return found


def forced(engine: VllmEngine, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[int, int]:
    """Tokens that are not the engine's first choice when it reads them, and those beyond rounding."""
    import vllm

    assert engine.server is not None
    sampling = vllm.SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=2)
    ids = [*prompt, *tokens]
    (output,) = engine.server.llm.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
    others = beyond = 0
    for token, choices in zip(tokens, output.prompt_logprobs[len(prompt) :], strict=True):
        best = max(choices.values(), key=lambda choice: choice.logprob)
        others += choices[token].rank != 1
        beyond += best.logprob - choices[token].logprob > ROUNDING
    return others, beyond


def compare_tokens(bench: Bench, plans: Mapping[str, PruningPlan]) -> bool:
    """Print whether padded and deployed models write alike; False where they do not."""
    padded: dict[str, list[tuple[int, ...]]] = {}
    with bench.engine("padded") as engine:
        for name, plan in plans.items():
            padded[name] = bench.tokens(engine, plan)
        engine.show(plans["layertrim"])
        narrow = narrow_tokens(bench, plans["layertrim"])
        pairs = zip(bench.requests, narrow, strict=True)
        counts = [forced(engine, request.prompt, tokens) for request, tokens in pairs]
    others, beyond = (sum(column) for column in zip(*counts, strict=True))
    print(
        f"layertrim   {sum(map(len, narrow))} tokens of the narrow model, read with teacher forcing: "
        f"{others} are not the padded engine's first choice, {beyond} of them by more than {ROUNDING:g}"
    )
    alike = not beyond
    for name in ("lorp", "laco"):
        theirs, deployed = deployed_tokens(bench, plans[name])
        same = padded[name] == theirs == deployed
        alike &= same
        print(f"{name:<11} removes {list(plans[name].removed_layers)}, merges {plans[name].merged}")
        print(
            f"            {sum(map(len, theirs))} greedy tokens of the exported checkpoint are "
            f"{'equal' if same else 'DIFFERENT'} in Transformers, in stock vLLM and in the padded engine"
        )
    return alike


def compare_times(bench: Bench, plans: Mapping[str, PruningPlan]) -> None:
    """Print what twenty variants cost through one engine and through one each."""
    starts = list(bench.starts)
    variants = {plan.plan_id: plan for plan in bench.twenty()}
    report = swap_report(bench, {**plans, **variants})
    for name, row in report.items():
        print(
            f"{name:<17} swap and proof {row['seconds']:.2f} s, {row['difference']:.1e} nats from the view, "
            f"{row['checksums']:.0f} checksums"
        )
    swaps = sum(report[name]["seconds"] for name in variants)
    once, each = bench.starts[-1], sum(starts) / len(starts)
    print(f"one engine  {len(variants)} variants: {once:.1f} s to start and {swaps:.1f} s of swaps")
    whole = len(variants) * each
    print(f"one each    {whole:.0f} s: {each:.1f} s, the mean of {len(starts)} exports and starts")
    print(f"ratio       {(once + swaps) / whole:.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    machine = provenance()
    print(f"machine     {machine['processor']}, {machine['cores']} cores")
    print(f"packages    {machine['packages']}")
    bench = Bench.open(options.model, options.dtype, options.device)
    plans = bench.plans()
    alike = compare_tokens(bench, plans)
    compare_times(bench, plans)
    raise SystemExit(not alike)


if __name__ == "__main__":
    main()
