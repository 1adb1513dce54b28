"""From recorded token ids to recorded plans on the real model, by the program's own calibration and probe."""

import base64
import functools
import json
import operator
from pathlib import Path

import numpy as np
import pytest

from prunebench.config.params import parse_params
from prunebench.core.budget import Budget
from prunebench.core.plan import Mask
from prunebench.methods import METHODS
from prunebench.methods.base import Measurements

GOLDEN = Path(__file__).parents[1] / "golden"
pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


def recorded(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def rows():
    return np.load(GOLDEN / "calibration_tokens_16x256.npy").astype(np.int64)


@pytest.fixture(scope="module")
def dense(smollm2):
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model

    return load_model(Checkpoint.open(smollm2), dtype="float32")


@pytest.fixture(scope="module")
def seen(dense, rows):
    from prunebench.models.calibrate import calibrate
    from prunebench.models.weights import weight_stats

    shards = [calibrate(dense, list(rows[i : i + 8]), "golden") for i in (0, 8)]
    return Measurements(
        shape=dense.checkpoint.shape,
        calibration=functools.reduce(operator.add, shards),
        weights=weight_stats(dense.checkpoint, cka=True),
    )


def planned(seen, name, budget, **params):
    method = METHODS[name]
    return method.plan(seen, Budget(budget), parse_params(method, params)).plan


def removed(seen, name, budget, **params):
    return list(planned(seen, name, budget, **params).removed_layers)


@pytest.mark.parametrize("budget", [5, 7, 9])
@pytest.mark.parametrize("state", ["prenorm", "hf"])
def test_shortgpt_and_streamline(seen, budget, state):
    golden = recorded("depth_cosine")
    assert removed(seen, "shortgpt", budget, last_state=state) == golden["shortgpt"]["removed"][str(budget)]
    window = golden["streamline"]["removed"][str(budget)]
    assert removed(seen, "llm_streamline", budget, last_state=state) == window


def test_lorp_by_rule_and_for_every_recorded_number_of_clusters(seen):
    for clusters, budget, layers in recorded("depth_lorp")["smollm2"]["runs"]:
        given = {} if clusters is None else {"clusters": clusters}
        assert removed(seen, "lorp", budget, **given) == sorted(layers), (clusters, budget)


def test_wrp(seen):
    golden = recorded("depth_wrp")
    wanted = [run for run in golden["runs"] if run[0] == golden["clusters"] and run[2]]
    assert wanted
    for _, budget, _, order in wanted:
        assert removed(seen, "wrp", budget) == sorted(order)


def test_simdiff_at_every_recorded_alpha(seen):
    for setting, budgets in recorded("simdiff")["removed"].items():
        metric, alpha = setting.split("|")
        if metric == "mssd" and float(alpha) == 1:
            # All 30 sigmoids saturate: the recording is a tie in layer order, ours follows L_diff.
            continue
        for budget, layers in budgets.items():
            got = removed(seen, f"simdiff_{metric}", int(budget), alpha=float(alpha))
            assert got == sorted(layers), setting


@pytest.mark.parametrize("budget", [3, 7])
def test_layertrim(seen, budget):
    golden, kept = recorded("layertrim"), recorded("layertrim_kept")["kept"]
    plan = planned(seen, "layertrim", budget)
    assert plan.kept_features == dict.fromkeys(golden["selected"][str(budget)], golden["m"])
    assert plan.removed_params(seen.shape) == golden["realised"][str(budget)]
    for spec in plan.layers:
        if spec.features is not None:
            reference = Mask(base64.b64decode(kept[str(spec.base)])).indices
            # float32 math against float64: the smallest relative gap at a cut is 6.6e-6.
            assert len(set(reference) - set(spec.features.indices)) <= 2, spec.base


def test_laco_for_every_recording_that_stops_at_a_budget(dense, rows, seen):
    from prunebench.models.probe import ModelProbe

    probe = ModelProbe(dense, list(rows[:10, :32]), "golden", {}, lambda answer: None)
    measured = Measurements(shape=seen.shape, probe=probe)
    for run in recorded("laco")["exact"]:
        plan = planned(
            measured, "laco", run["n"], threshold=run["T"], merge_layers=run["C"], interval=run["I"]
        )
        assert plan.merged == {group[0]: ((group[-1], 1.0),) for group in run["groups"]}
        assert len(plan.layers) == run["final_layers"]
