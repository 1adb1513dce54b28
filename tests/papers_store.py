"""A synthetic store of a model that the papers printed, with results in the shapes of their tables."""

import numpy as np

from prunebench.core.fingerprint import canonical_json, sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.unit import Sample

LLAMA = ModelShape(
    num_layers=32,
    hidden_size=8,
    intermediate_size=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    block_extra_params=16,
    other_params=200,
)
ACCURACY = {"dense": 0.75, "shortgpt": 0.55, "lorp": 0.6, "laco": 0.59, "random": 0.35}
COMMON_SENSE = (
    *("arc_easy", "arc_challenge", "hellaswag", "winogrande", "boolq", "openbookqa", "rte", "copa", "race"),
    *("piqa", "mathqa"),
)
SIZES = {
    "arc_easy": 2376,
    "arc_challenge": 1172,
    "hellaswag": 10042,
    "winogrande": 1267,
    "boolq": 3270,
    "openbookqa": 500,
    "rte": 277,
    "copa": 100,
    "race": 1045,
    "piqa": 1838,
    "mathqa": 2985,
}
WIKITEXT2 = {"task_version": "1-8a970098"}


def plans():
    """A plan for each method at 7 layers."""
    lorp = PruningPlan.without([10, *range(22, 28)], 32)
    return {
        "dense": PruningPlan.dense(32),
        "shortgpt": PruningPlan.without(range(21, 28), 32),
        "lorp": lorp,
        "laco": PruningPlan.without([9, *range(22, 28)], 32),
        "random": PruningPlan.without(range(1, 15, 2), 32),
    }


def ask(builder, budget=7):
    """Ask for the dense model and each method; returns the plans."""
    found = plans()
    builder.dense()
    for method, plan in found.items():
        if method != "dense":
            builder.variant(method, plan, budget, calibration="default", calibration_id="c" * 64)
    return found


def give(builder, plan, units, metrics):
    """Commit units with several metrics at once: name -> (values, weight)."""
    for unit in units:
        samples = tuple(
            Sample(
                doc_id=i,
                doc_hash=sha256_text(f"{unit.task} {i}"),
                metric=metric,
                value=float(values[i]),
                weight=weight,
            )
            for metric, (values, weight) in metrics.items()
            for i in range(unit.start, unit.stop)
        )
        builder.add(plan, unit, samples)


def zero_shot(builder, found, sizes):
    """Tasks of lm-eval with acc and acc_norm of so many documents each."""
    random = np.random.default_rng(0)
    for task, count in sizes.items():
        recipe = {"harness": "lm-eval 0.4.13", "harness_task": task, "shots": 0}
        units = builder.task(task, count, recipe, size=4096)
        hardness = random.random(count)
        for method, plan in found.items():
            right = (hardness + random.normal(0, 0.1, count) < ACCURACY[method]).astype(float)
            normed = (hardness + random.normal(0, 0.1, count) < ACCURACY[method] + 0.05).astype(float)
            give(builder, plan, units, {"acc": (right, 1.0), "acc_norm": (normed, 1.0)})


def perplexity(builder, found, windows=141):
    """LoRP's recipe of WikiText-2, the whole text."""
    recipe = {"recipe": "lorp_wikitext2", "windows": windows, "length": 2048}
    units = builder.task("wikitext2", windows, recipe, size=4096, **WIKITEXT2)
    random = np.random.default_rng(1)
    base = random.normal(1.8, 0.2, windows)
    for method, plan in found.items():
        worse = {"dense": 0.0, "shortgpt": 2.3, "lorp": 1.5, "laco": 2.5, "random": 4.0}[method]
        nats = base + worse + random.normal(0, 0.05, windows)
        give(builder, plan, units, {"perplexity": (-2047 * nats, 2047.0)})


def reasoning(builder, found, benchmarks=(("aime25", 30), ("gpqa_diamond", 198)), seeds=(0, 1, 2)):
    """Generated answers under several seeds."""
    random = np.random.default_rng(2)
    for name, count in benchmarks:
        hardness = random.random(count)
        for seed in seeds:
            units = builder.task(
                name,
                count,
                {"benchmark": name},
                size=count,
                seed=seed,
                generation=canonical_json({"temperature": 0.6}),
                backend="vllm",
            )
            for method, plan in found.items():
                right = hardness + random.normal(0, 0.15, count) < ACCURACY[method]
                give(builder, plan, units, {"acc": (right.astype(float), 1.0)})


def efficiency(builder, found):
    """LayerTrim's protocol; each value is one document's."""
    recipe = {"protocol": "layertrim", "hardware": "NVIDIA RTX 6000 Ada"}
    units = builder.task("cost", 1, recipe, execution="deployed")
    for method, plan in found.items():
        share = 1.0 if method == "dense" else 0.85
        metrics = {
            "prefill_ms": 588 * share,
            "decode_ms_per_token": 38 * share,
            "peak_memory_gib": 28.1 * share,
        }
        give(builder, plan, units, {name: ([value], 1.0) for name, value in metrics.items()})
