"""What only a GPU can tell, in one run of at most ten minutes: shapes, swaps, throughput and latency.

    python benchmarks/gpu_check.py                        # SmolLM2 on the first NVIDIA GPU
    python benchmarks/gpu_check.py --model random         # a random model: needs neither files nor network
    python benchmarks/gpu_check.py --device cpu --model random    # dry run, with reduced sizes

1. Padded against deployed shapes in bfloat16: logits of a depth plan are equal to the last bit; outputs of a
   trimmed MLP, given the same inputs, are no further apart than one unit in the last place of their token's
   largest (over many blocks such differences add up in the logits, which are printed).
2. Scoring in bfloat16: tokens a second of the dense model, and of eight depth plans that share beginnings.
3. LayerTrim's efficiency protocol on the dense model and both plans.
4. With two GPUs or more: the logits of the same plans from a model over two GPUs, and by teacher forcing from
   packed rows, against those from one; to the last bit where both GPUs are of one kind.
5. Weight swaps in one vLLM engine (`swap.py`): proven by function, and by checksums where the engine's
   tensors can be read, which they have to be on a GPU.

Prints the machine and every figure. Exit code 0 when all held, 1 when something did not or was not run, 4
without a GPU.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.data.protocols import efficiency_task
from prunebench.data.tasks import Workload
from prunebench.errors import ResourceError
from prunebench.evaluation.efficiency import Efficiency
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.hardware import hardware_name
from prunebench.models.load import DenseModel, load_model
from prunebench.models.scoring import Row, token_logprobs
from prunebench.models.view import ModelView
from prunebench.pipeline.provenance import provenance

DTYPE = "bfloat16"
SECONDS = 540
SPREAD_OVER = 2
"""GPUs that one model is spread over."""
SIZES = {
    "cuda": {"layers": 24, "hidden": 1024, "features": 5504, "heads": 16, "rows": 32, "tokens": 1024},
    "cpu": {"layers": 8, "hidden": 128, "features": 352, "heads": 4, "rows": 2, "tokens": 128},
}
REDUCED = {"prompt_tokens": 64, "steps": 4, "warmup": 1, "repeats": 2}
"""Of the efficiency protocol on a CPU."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check."""

    name: str
    held: bool
    words: str


@dataclass(frozen=True, slots=True)
class Bench:
    """One model on one device, and the plans that it is checked with."""

    dense: DenseModel
    plans: dict[str, PruningPlan]
    sizes: dict[str, int]

    @classmethod
    def open(cls, model: str, device: str) -> "Bench":
        """Load it in bfloat16."""
        dense = load_model(Checkpoint.open(model), dtype=DTYPE, device=device)
        shape = dense.checkpoint.shape
        depth = PruningPlan.without(range(2, shape.num_layers - 2, 3), shape.num_layers)
        third = Mask.keep(range(0, shape.intermediate_size, 3), shape.intermediate_size)
        trim = PruningPlan(
            num_layers=shape.num_layers,
            layers=tuple(
                LayerSpec(base=i, features=third if i % 2 else None) for i in range(shape.num_layers)
            ),
        )
        plans = {"dense": PruningPlan.dense(shape.num_layers), "depth": depth, "trim": trim}
        return cls(dense, plans, SIZES[device])

    def ids(self, rows: int) -> np.ndarray:
        """Random token ids of shape (rows, tokens)."""
        vocabulary = self.dense.checkpoint.vocab_size
        return np.random.default_rng(0).integers(0, vocabulary, (rows, self.sizes["tokens"]))

    def logits(self, plan: PruningPlan, *, deployed: bool) -> torch.Tensor:
        """Of one row, on the CPU."""
        ids = torch.from_numpy(self.ids(1)).to(self.dense.device)
        view = ModelView(self.dense)
        with torch.inference_mode(), view.applied(plan, deployed=deployed) as model:
            return model(input_ids=ids, use_cache=False).logits[0].float().cpu()


def check_shapes(bench: Bench) -> Iterator[Verdict]:
    """Padded against deployed logits."""
    layers, depth, trim = bench.dense.checkpoint.shape.num_layers, bench.plans["depth"], bench.plans["trim"]
    zeros = PruningPlan(
        num_layers=layers,
        layers=tuple(
            LayerSpec(base=i, drop=("attention", "mlp") if i in depth.removed_layers else ())
            for i in range(layers)
        ),
    )
    padded, deployed = bench.logits(zeros, deployed=False), bench.logits(depth, deployed=True)
    apart = float((padded - deployed).abs().max())
    words = f"{padded.numel()} logits of zeroed and of removed blocks, {apart:g} apart"
    yield Verdict("depth", torch.equal(padded, deployed), words)
    padded, deployed = bench.logits(trim, deployed=False), bench.logits(trim, deployed=True)
    worst = narrow_against_zeroed(bench, trim)
    same = float((padded.argmax(-1) == deployed.argmax(-1)).float().mean())
    words = (
        f"outputs of zeroed and narrow MLPs at most {worst:.2f} units in the last place apart; logits "
        f"{float((padded - deployed).abs().max()):g} (largest {float(padded.abs().max()):.3g}), "
        f"{100 * same:.2f} % equal first choices"
    )
    yield Verdict("trim", worst <= 1, words)


@torch.inference_mode()
def narrow_against_zeroed(bench: Bench, plan: PruningPlan) -> float:
    """The furthest that two outputs of one MLP are apart, in bfloat16 units of its token's largest."""
    view, inputs = ModelView(bench.dense), dict[int, torch.Tensor]()
    with view.applied(plan) as model, ExitStack() as hooks:
        for spec, block in zip(plan.layers, model.model.layers, strict=True):
            hook = block.mlp.register_forward_pre_hook(
                lambda _, given, base=spec.base: inputs.update({base: given[0]})
            )
            hooks.callback(hook.remove)
        model(input_ids=torch.from_numpy(bench.ids(1)).to(bench.dense.device), use_cache=False)
    worst = 0.0
    for spec in plan.layers:
        if spec.features is not None:
            zeroed, narrow = (
                view.block(spec, deployed=deployed).get_submodule("mlp")(inputs[spec.base]).float()
                for deployed in (False, True)
            )
            unit = torch.exp2(zeroed.abs().amax(-1).log2().floor() - 7)
            worst = max(worst, float(((zeroed - narrow).abs().amax(-1) / unit).max()))
    return worst


def check_throughput(bench: Bench) -> Iterator[Verdict]:
    """Tokens a second of scoring: the median of three."""
    layers = bench.dense.checkpoint.shape.num_layers
    rows = [Row(ids) for ids in bench.ids(bench.sizes["rows"])]
    eight = [PruningPlan.without(range(layers - 2 - n, layers - 2), layers) for n in range(8)]
    for name, plans in (("dense", eight[:1]), ("eight plans", eight)):
        seconds, finite = [], True
        for _ in range(3):
            began = time.perf_counter()
            for _, values in token_logprobs(bench.dense, plans, rows):
                finite &= all(np.isfinite(each).all() for each in values)
            seconds.append(time.perf_counter() - began)
        speed = len(plans) * len(rows) * bench.sizes["tokens"] / sorted(seconds)[1]
        yield Verdict(f"scoring {name}", finite, f"{speed:,.0f} tokens a second in {DTYPE}")


def check_efficiency(bench: Bench) -> Iterator[Verdict]:
    """LayerTrim's protocol; held when the plans have fewer parameters than the dense model."""
    device = bench.dense.device
    task = efficiency_task(
        "layertrim",
        name="check",
        vocab_size=bench.dense.checkpoint.vocab_size,
        hardware=hardware_name(device),
        threads=torch.get_num_threads(),
        sizes={} if device == "cuda" else REDUCED,
    )
    assert isinstance(task.documents[0].payload, Workload)
    shape = bench.dense.checkpoint.shape
    for plan, samples in Efficiency().evaluate(bench.dense, bench.plans.values(), task.documents):
        assert isinstance(samples, tuple)
        name = next(name for name, each in bench.plans.items() if each == plan)
        values = {sample.metric: sample.value for sample in samples}
        held = values["parameters"] == plan.total_params(shape)
        words = ", ".join(f"{metric} {value:.4g}" for metric, value in values.items())
        yield Verdict(f"latency {name}", held, words)


def check_spread(bench: Bench) -> Iterator[Verdict]:
    """One GPU against two; held when not a bit differs. Without a second GPU it says so and holds."""
    if torch.cuda.device_count() < SPREAD_OVER:
        yield Verdict("spread", True, f"skipped: it needs {SPREAD_OVER} GPUs")
        return
    over = load_model(bench.dense.checkpoint, dtype=DTYPE, device="cuda", gpus=SPREAD_OVER)
    two = Bench(over, bench.plans, bench.sizes)
    rows = [Row(ids) for ids in bench.ids(4)]
    for name, plan in bench.plans.items():
        apart = float((bench.logits(plan, deployed=False) - two.logits(plan, deployed=False)).abs().max())
        ((_, one),) = token_logprobs(bench.dense, [plan], rows)
        ((_, both),) = token_logprobs(over, [plan], rows)
        worst = max(float(np.abs(a - b).max()) for a, b in zip(one, both, strict=True))
        words = f"logits {apart:g} apart, log-probabilities {worst:g}"
        yield Verdict(f"spread {name}", apart == worst == 0, words)


def check_swaps(model: str, bench: Bench) -> Iterator[Verdict]:
    """Depth and trim through one padded vLLM engine and back to dense."""
    import swap

    device, plans = bench.dense.device, bench.plans
    order = {"depth": plans["depth"], "trim": plans["trim"], "dense": plans["dense"]}
    for name, row in swap.swap_report(swap.Bench.open(model, DTYPE, device), order).items():
        words = (
            f"{row['seconds']:.2f} s with its proof, {row['difference']:.2g} nats a token from the view, "
            f"{row['checksums']:.0f} checksums"
        )
        yield Verdict(f"swap {name}", device == "cpu" or row["checksums"] > 0, words)


def write_random(folder: Path, sizes: dict[str, int]) -> str:
    """A random Llama with a tokenizer of bytes and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["features"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["heads"] // 2,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
        # Blocks that matter: with the usual 0.02 a swap changes less than bfloat16 rounds.
        initializer_range=0.08,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    special = ["<pad>", "<s>", "</s>"]
    alphabet = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    fast.save_pretrained(folder)
    return str(folder)


def checks_of(model: str, device: str, seconds: float) -> Iterator[Verdict]:
    """Every check, as far as the time reaches; one that raises is one that did not hold."""
    began = time.monotonic()
    bench = Bench.open(model, device)
    stages: dict[str, Callable[[], Iterator[Verdict]]] = {
        "shapes": lambda: check_shapes(bench),
        "spread": lambda: check_spread(bench),
        "throughput": lambda: check_throughput(bench),
        "efficiency": lambda: check_efficiency(bench),
        "swaps": lambda: check_swaps(model, bench),
    }
    for name, stage in stages.items():
        if time.monotonic() - began > seconds:
            yield Verdict(name, False, f"not run: {seconds:.0f} s are over")
            continue
        try:
            yield from stage()
        except Exception as error:  # noqa: BLE001 (the other checks' figures are wanted all the same)
            yield Verdict(name, False, f"not run: {type(error).__name__}: {error}")


def main() -> None:
    """Check and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m", help="a model, or `random`")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="start no check after so many")
    options = parser.parse_args()
    try:
        hardware = hardware_name(options.device)
    except ResourceError as error:
        print(f"error: {error}: this check needs one; --device cpu is a dry run", file=sys.stderr)
        sys.exit(ResourceError.exit_code)
    machine = provenance()
    print(f"machine  {hardware}, {machine['processor']}, {machine['cores']} cores, {machine['system']}")
    print(f"packages {json.dumps(machine['packages'])}, CUDA {torch.version.cuda}")
    held = True
    with tempfile.TemporaryDirectory(prefix="prunebench-check-") as folder:
        random = options.model == "random"
        model = write_random(Path(folder) / "random", SIZES[options.device]) if random else options.model
        for verdict in checks_of(model, options.device, options.seconds):
            held &= verdict.held
            mark = "ok" if verdict.held else "MISSED"
            print(f"{mark:<9}{verdict.name:<22}{verdict.words}", flush=True)
    dry = " (a dry run on a CPU says nothing of GPUs)" if options.device == "cpu" else ""
    print(("all checks held" if held else "CHECKS MISSED") + dry)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
