"""Asking a method, on the driver or on a worker: every answer is a `PlanDone`."""

import time

from prunebench.core.budget import Budget
from prunebench.core.fingerprint import canonical_json
from prunebench.core.unit import PlanDone
from prunebench.errors import UnreachableError
from prunebench.methods import METHODS
from prunebench.methods.base import Measurements, Params


def ask_method(key: str, name: str, seen: Measurements, budget: Budget, params: Params) -> PlanDone:
    """Plan, and say what was chosen, what was warned of, and how long it took.

    An unreachable budget is an answer; every other exception is the caller's.
    """
    started = time.perf_counter()
    try:
        planned = METHODS[name].plan(seen, budget, params)
    except UnreachableError as error:
        seconds = time.perf_counter() - started
        return PlanDone(key=key, plan=None, chosen="{}", warnings=(), seconds=seconds, unreachable=str(error))
    return PlanDone(
        key=key,
        plan=planned.plan.canonical,
        chosen=canonical_json(dict(planned.chosen)),
        warnings=planned.warnings,
        seconds=time.perf_counter() - started,
        others=tuple(plan.canonical for plan in planned.others),
    )
