"""What travels to workers is small: weights never do."""

import pickle
from functools import cache

import numpy as np

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import CalibrateItem, PlanItem
from prunebench.evaluation.setup import ModelSetup
from prunebench.methods import method_named
from prunebench.pipeline.measure import SHARD_TOKENS

MEGABYTE = 1_000_000


@cache
def rows(count, tokens):
    return tuple(np.random.default_rng(0).integers(0, 128_000, (count, tokens), dtype=np.int64))


def test_an_actor_is_given_paths_and_no_weights(tiny):
    setup = ModelSetup(
        path=str(tiny("llama")),
        weights_id="0" * 64,
        dtype="bfloat16",
        attention="sdpa",
        device="cuda",
        gpus=2,
    )
    assert len(pickle.dumps(("prunebench.evaluation.worker:Worker", ({"m": setup}, 1)))) < 1000


def test_a_calibration_item_of_full_size_is_far_below_a_megabyte():
    shard = CalibrateItem(key="k" * 64, model="m", source="s" * 64, rows=rows(1, SHARD_TOKENS))
    assert len(pickle.dumps(shard)) < MEGABYTE // 10


def test_plans_of_a_model_of_eighty_layers_are_kilobytes():
    plans = tuple(PruningPlan.without(range(n, n + 20), 80) for n in range(50))
    assert len(pickle.dumps(plans)) < MEGABYTE


def test_a_probe_corpus_of_paper_size_is_a_few_megabytes():
    """LaCo and SLEB's 128 samples of 2,048 tokens, the largest item there is."""
    item = PlanItem(
        key="k",
        model="m",
        method="laco",
        params=method_named("laco").params(),
        budget=7,
        calibration=None,
        weights=None,
        corpus_id="c",
        rows=rows(128, 2048),
    )
    assert len(pickle.dumps(item)) < 3 * MEGABYTE
