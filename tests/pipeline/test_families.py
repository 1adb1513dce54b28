"""Every method on every family: it plans, and each plan applies, exports and reloads with equal logits."""

import numpy as np
import pytest

from prunebench.config.params import parse_params
from prunebench.core.budget import Budget
from prunebench.errors import UnreachableError
from prunebench.methods import METHODS
from prunebench.methods.base import Measurements
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import write
from prunebench.models.probe import ModelProbe
from prunebench.models.proof import prove
from prunebench.models.weights import weight_stats

ROWS = list(np.random.default_rng(0).integers(3, 259, (4, 32)))
BUDGET = Budget(2)


def plans_of(dense):
    """The plan of every method, by name."""
    seen = Measurements(
        shape=dense.checkpoint.shape,
        calibration=calibrate(dense, ROWS, "families"),
        weights=weight_stats(dense.checkpoint, cka=True),
        probe=ModelProbe(dense, ROWS[:2], "families", {}, lambda answer: None),
    )
    plans = {}
    for name, method in METHODS.items():
        try:
            # 2N MLPs of these small blocks hold less than the budget where heads are wide.
            given = {"k": "3N"} if name == "layertrim" else {}
            plans[name] = method.plan(seen, BUDGET, parse_params(method, given)).plan
        except UnreachableError:
            assert name == "laco"
    return plans


@pytest.mark.timeout(900)
def test_every_method_plans_and_every_plan_reloads_as_what_it_says(tiny, load_tiny, tmp_path):
    """One child process proves all exports: logits without and with the cache, bit for bit."""
    exports = []
    for name in ("llama", "mistral", "qwen2", "qwen3", "olmo2", "olmo3", "phi3", "gemma2", "gemma3"):
        plans = plans_of(load_tiny(name))
        assert set(METHODS) - set(plans) <= {"laco"}
        shape = Checkpoint.open(tiny(name)).shape
        for method, plan in plans.items():
            # Half a feature a trimmed layer: LayerTrim rounds its width.
            rounding = shape.params_per_feature * len(plan.kept_features) / 2
            assert abs(plan.removed_params(shape) - BUDGET.params(shape)) <= rounding, (name, method)
        exports += [
            write(Checkpoint.open(tiny(name)), plan, tmp_path / f"{name}-{plan.plan_id}")
            for plan in {plan.plan_id: plan for plan in plans.values()}.values()
        ]
    prove(exports)
    assert len(exports) >= 9 * 5
    assert all((export.folder / "prunebench.json").is_file() for export in exports)
