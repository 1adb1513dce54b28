"""How a study asks: every setting of a small space, else a sampler of Optuna's."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import optuna
from optuna.pruners import BasePruner, NopPruner, WilcoxonPruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler

from prunebench.errors import InputError
from prunebench.search.spaces import Space

Sampler: TypeAlias = Literal["grid", "tpe", "random", "nsga2"]

GENERATIONS = 5
"""NSGA-II has at least so many generations in a study: smaller ones than Optuna's 50 in a short study."""
SMALLEST, LARGEST = 8, 50
"""Trials of a generation."""


def sampler_for(asked: Literal["auto"] | Sampler, space: Space, trials: int, objectives: int) -> Sampler:
    """The sampler of a new study.

    For `auto` every setting where that takes at most `trials`; else TPE, or NSGA-II for several objectives.

    Raises:
        InputError: a grid over a continuous range.
    """
    if asked == "auto":
        if space.size is not None and space.size <= trials:
            return "grid"
        return "tpe" if objectives == 1 else "nsga2"
    if asked == "grid" and space.size is None:
        raise InputError(f"a grid needs a finite space: list the values of {', '.join(space.endless())}")
    return asked


def make_sampler(sampler: Sampler, seed: int, space: Space, trials: int) -> BaseSampler:
    """Optuna's sampler of that name."""
    match sampler:
        case "tpe":
            with _experimental():
                # `group` models the parameters of each method on their own.
                return TPESampler(seed=seed, multivariate=True, group=len(space.branches) > 1)
        case "nsga2":
            size = min(max(trials // GENERATIONS, SMALLEST), LARGEST)
            return NSGAIISampler(population_size=size, seed=seed)
        case "grid" | "random":
            # A grid is queued setting by setting, and its sampler never asked.
            return RandomSampler(seed=seed)


def make_pruner(p: float | None) -> BasePruner:
    """Wilcoxon's signed-rank test on the documents of a trial and of the best one; None for no pruning."""
    if p is None:
        return NopPruner()
    with _experimental():
        return WilcoxonPruner(p_threshold=p)


@contextmanager
def _experimental() -> Iterator[None]:
    """Silence what Optuna says of its parts that are marked experimental."""
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        yield
