"""SimDiff's alpha: does the ternary search of Algorithm 1 find the best set that any alpha removes?

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/exact.py [--model DIR] [--budgets 3 5 6 7 9]

Both policies are asked the program's own way, on one calibration and one probe corpus: `ternary` hopes for a
loss with one minimum over alpha, `exact` scores every distinct set once. Printed are, for each metric and
budget, the number of distinct sets, how many sets each policy scored, and the loss of each: the ternary
search missed the optimum where its loss is higher. A set that both ask for is scored once.
"""

import argparse
import platform
import time
from pathlib import Path

import torch

from prunebench.core.budget import Budget
from prunebench.data.corpus import load_corpus
from prunebench.data.spec import parse_spec
from prunebench.methods.base import Measurements, Planned
from prunebench.methods.simdiff import SimDiff, SimDiffMASD, SimDiffMSSD, SimDiffMSSDParams, SimDiffParams
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.probe import ModelProbe
from prunebench.pipeline.prepare import text_codec

POLICIES = ("ternary", "exact")


def measured(model: str, calibration: str, probe: str) -> Measurements:
    """The model's statistics on one text, and a probe on another."""
    dense = load_model(Checkpoint.open(model), dtype="float32")
    codec = text_codec(dense.checkpoint)
    seen, asked = (load_corpus(parse_spec(spec, Path.cwd()), codec) for spec in (calibration, probe))
    return Measurements(
        shape=dense.checkpoint.shape,
        calibration=calibrate(dense, seen.rows, "exact"),
        probe=ModelProbe(dense, asked.rows, asked.corpus_id, {}, lambda answer: None),
    )


def settings() -> list[tuple[str, SimDiff, dict[str, SimDiffParams]]]:
    """Each metric with its parameters under either policy."""
    return [
        ("MASD", SimDiffMASD(), {policy: SimDiffParams(alpha=policy) for policy in POLICIES}),
        ("MSSD", SimDiffMSSD(), {policy: SimDiffMSSDParams(alpha=policy) for policy in POLICIES}),
        (
            "MSSD, mean",
            SimDiffMSSD(),
            {policy: SimDiffMSSDParams(alpha=policy, mssd_reduction="mean") for policy in POLICIES},
        ),
    ]


def line(name: str, budget: int, ternary: Planned, exact: Planned) -> str:
    """One setting in numbers."""
    told = [f"{one.chosen['loss']:.4f} at {one.chosen['alpha']:.6g}" for one in (ternary, exact)]
    missed = "  MISSED" if ternary.chosen["loss"] > exact.chosen["loss"] else ""
    counts = (
        f"{exact.chosen['distinct_sets']:>5}{ternary.chosen['evaluated']:>9}{exact.chosen['evaluated']:>7}"
    )
    return f"{name:<11}{budget:>3}{counts}  {told[0]:<22}{told[1]:<22}{missed}"


def main() -> None:
    """Ask both policies and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--calibration", default="builtin:pydoc:calibration?samples=8&length=256")
    parser.add_argument("--probe", default="builtin:pydoc:alpha?samples=8&length=32")
    parser.add_argument("--budgets", type=int, nargs="+", default=[3, 5, 6, 7, 9])
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    seen = measured(options.model, options.calibration, options.probe)
    print(f"machine  {platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread")
    print("metric    N  sets  ternary  exact  loss by ternary       loss by exact")
    missed = asked = 0
    for name, method, params in settings():
        for layers in options.budgets:
            ternary, exact = (method.plan(seen, Budget(layers), params[policy]) for policy in POLICIES)
            print(line(name, layers, ternary, exact), flush=True)
            asked += 1
            missed += ternary.chosen["loss"] > exact.chosen["loss"]
            assert ternary.chosen["loss"] >= exact.chosen["loss"], "the exact search is not exact"
    print(f"the ternary search missed the optimum in {missed} of {asked} settings")
    print(f"CPU seconds {time.process_time() - began:.0f}")


if __name__ == "__main__":
    main()
