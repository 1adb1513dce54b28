"""Cost of many depth plans run as one trie: blocks run, CPU seconds against the prediction, equal bits.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/variants.py [--model builtin:smollm2-135m]

The prediction is (nodes of the trie) x (seconds a block) + (plans) x (seconds a head), both taken from
evaluating each plan by itself with the model's own forward pass under its view. The target is a ratio of at
most 1.15.
"""

import argparse
import platform
import time

import numpy as np
import torch

from prunebench.core.plan import PruningPlan
from prunebench.core.trie import count_nodes
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel, load_model
from prunebench.models.scoring import Row, Scorer
from prunebench.models.trie import walk
from prunebench.models.view import ModelView

BUDGETS = (3, 5, 7, 9)
# What the authors' own code removes from the 30 layers of SmolLM2-135M-Instruct, in order.
ORDERS = {
    "ShortGPT": (25, 14, 26, 13, 17, 15, 16, 12, 3),
    "LLM-Streamline": (16, 15, 17, 14, 18, 13, 12, 11, 10),
    "Shortened-LLaMA Mag+": (18, 17, 14, 15, 20, 19, 5, 7, 8),
    "Shortened-LLaMA PPL": (5, 12, 25, 14, 4, 17, 13, 7, 16),
    "SLEB": (25, 5, 17, 4, 26, 3, 6, 7, 14),
}


def separate(
    dense: DenseModel, plans: list[PruningPlan], ids: torch.Tensor
) -> tuple[dict[PruningPlan, list[np.ndarray]], float, float]:
    """Each plan by itself: its log-probabilities, and the CPU seconds of all bodies and all heads."""
    values, body_seconds, head_seconds = {}, 0.0, 0.0
    for plan in plans:
        with ModelView(dense).applied(plan) as model, torch.no_grad():
            began = time.process_time()
            states = model.model(input_ids=ids, use_cache=False).last_hidden_state
            middle = time.process_time()
            logprobs = model.lm_head(states[:, :-1]).float().log_softmax(-1)
            picked = logprobs.gather(-1, ids[:, 1:, None])[..., 0].double()
            ended = time.process_time()
        values[plan] = list(picked.numpy())
        body_seconds += middle - began
        head_seconds += ended - middle
    return values, body_seconds, head_seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin:smollm2-135m", help="a 30-layer model")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()

    torch.set_num_threads(1)
    dense = load_model(Checkpoint.open(options.model), dtype="float32")
    shape = dense.checkpoint.shape
    plans = [
        PruningPlan.without(order[:budget], shape.num_layers)
        for order in ORDERS.values()
        for budget in BUDGETS
    ]
    vocabulary = dense.model.get_input_embeddings().num_embeddings
    ids = np.random.default_rng(0).integers(0, vocabulary, (options.rows, options.length))

    separate(dense, plans[:1], torch.from_numpy(ids))  # the first pass also pays for memory
    began = time.process_time()
    scorer = Scorer(dense, [Row(row) for row in ids])
    together = {plan: scorer.logprobs(normed) for plan, normed in walk(scorer.runner, plans)}
    shared_seconds = time.process_time() - began

    alone, body_seconds, head_seconds = separate(dense, plans, torch.from_numpy(ids))
    blocks, nodes = sum(len(plan.layers) for plan in plans), count_nodes(plans)
    predicted = nodes * body_seconds / blocks + head_seconds
    equal = all(
        np.array_equal(one, other)
        for plan in plans
        for one, other in zip(together[plan], alone[plan], strict=True)
    )

    print(
        f"machine           {platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread"
    )
    print(f"model             {dense.checkpoint.name}, {options.rows} x {options.length} tokens, float32")
    print(f"plans             {len(plans)} ({len(set(plans))} distinct)")
    print(f"blocks            {blocks} separately, {nodes} nodes of the trie, {scorer.runner.forwards} run")
    print(f"CPU seconds       {body_seconds + head_seconds:.2f} separately, {shared_seconds:.2f} as a trie")
    print(f"predicted         {predicted:.2f} ({head_seconds:.2f} of it in the heads, which share nothing)")
    print(f"ratio             {shared_seconds / predicted:.3f} of the prediction (target: at most 1.15)")
    print(f"saved             {1 - shared_seconds / (body_seconds + head_seconds):.1%}")
    print(f"values            {'equal to the last bit' if equal else 'DIFFERENT'}")
    if scorer.runner.forwards != nodes or not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
