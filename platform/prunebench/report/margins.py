"""Near ties in plans: how close the next layer was where a method cuts a ranking.

The rankings are recomputed from the statistics in the store with the methods' own functions. A plan that the
ranking does not give back is left out rather than explained wrongly.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from prunebench.config.params import parse_params
from prunebench.core.fingerprint import sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import Array, CalibrationStats, WeightStats
from prunebench.methods.alpha import Ranking, Scores, nearest_change
from prunebench.methods.clusters import redundancy
from prunebench.methods.depth import LastState, span_similarity
from prunebench.methods.simdiff import SimDiff, SimDiffMASD, SimDiffMSSD
from prunebench.methods.wrp import weight_similarity
from prunebench.report.board import Board, Record
from prunebench.report.source import Calibration, Source, parsed

NEAR = 0.01
"""Relative margin below which another calibration, dtype or processor may well choose otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The closest decision of one plan."""

    name: str
    budget: str
    what: str
    """The score that was cut."""
    taken: str
    left: str
    relative: float
    """Difference of the two scores in parts of the larger."""

    @property
    def near(self) -> bool:
        """Whether it is worth a warning."""
        return self.relative < NEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Scores, lower first, of what was taken and of what was left at one decision."""

    what: str
    scores: Array
    taken: Collection[int]
    left: Collection[int]
    unit: str = "layer"
    sign: float = 1.0
    """-1 where the scores were negated to have the lowest first."""
    names: Sequence[str] = ()
    """Of what was scored, where a number does not name it."""

    def told(self, place: int) -> str:
        """What lies at a place of the scores, with its score."""
        name = self.names[place] if self.names else f"{self.unit} {place}"
        return f"{name} ({self.sign * float(self.scores[place]):.4g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One plan with what its method saw."""

    params: Mapping[str, Any]
    chosen: Mapping[str, Any]
    plan: PruningPlan
    budget: int
    protected: frozenset[int]
    calibration: CalibrationStats | None
    weights: WeightStats | None

    @property
    def last_state(self) -> LastState:
        """Which last state was scored; what older runs did not record was the default."""
        return self.params.get("last_state", "prenorm")

    @property
    def removed(self) -> frozenset[int]:
        """Layers that are gone."""
        return frozenset(self.plan.removed_layers)

    @property
    def others(self) -> frozenset[int]:
        """Layers that might have gone instead."""
        return frozenset(range(self.plan.num_layers)) - self.removed - self.protected


def margins_of(
    board: Board, source: Source, calibrations: Sequence[Calibration], weights: WeightStats | None
) -> list[Margin]:
    """The closest decision of every plan whose ranking is known, the closest first."""
    by_source = {one.stats.source: one.stats for one in calibrations}
    found = []
    for table in board.tables:
        for row in table.rows:
            plan_id = row.variant["plan_id"]
            if plan_id is None or row.variant["method"] not in CUTS:
                continue
            seen = _planned(row.variant, source.plans[plan_id], by_source, weights)
            cuts = [cut for cut in CUTS[row.variant["method"]](seen) if cut.taken and cut.left]
            margins = [_margin(row.label.name, row.variant["budget"], cut) for cut in cuts]
            if margins and all(margin is not None for margin in margins):
                found.append(min((m for m in margins if m is not None), key=lambda m: m.relative))
    return sorted(found, key=lambda margin: margin.relative)


def _planned(
    variant: Record, plan: PruningPlan, by_source: Mapping[str, CalibrationStats], weights: WeightStats | None
) -> Planned:
    corpus = {"weights": variant["weights_id"], "dtype": variant["dtype"], "attention": variant["attention"]}
    params = parsed(variant["params_json"])
    protect = params.get("protect", [])
    return Planned(
        params=params,
        chosen=parsed(variant["chosen_json"]),
        plan=plan,
        budget=variant["budget_layers"],
        protected=frozenset(layer % plan.num_layers for layer in protect),
        calibration=by_source.get(sha256_json({**corpus, "corpus": variant["calibration_id"]})),
        weights=weights,
    )


def _margin(name: str, budget: str, cut: Cut) -> Margin | None:
    """How far the last that was taken is from the first that was left; None where the order is another."""
    taken = max(cut.taken, key=lambda i: (cut.scores[i], i))
    left = min(cut.left, key=lambda i: (cut.scores[i], i))
    last, first = float(cut.scores[taken]), float(cut.scores[left])
    if not last <= first or not math.isfinite(first - last):
        return None
    size = max(abs(last), abs(first))
    return Margin(
        name=name,
        budget=budget,
        what=cut.what,
        taken=cut.told(taken),
        left=cut.told(left),
        relative=(first - last) / size if size else 0.0,
    )


def _shortgpt(seen: Planned) -> Iterator[Cut]:
    if seen.calibration is not None:
        scores = 1 - span_similarity(seen.calibration, 1, seen.last_state)
        yield Cut(what="Block Influence", scores=scores, taken=seen.removed, left=seen.others)


def _streamline(seen: Planned) -> Iterator[Cut]:
    if seen.calibration is not None and "start" in seen.chosen:
        similarity = span_similarity(seen.calibration, seen.budget, seen.last_state)
        free = [j for j in range(len(similarity)) if seen.protected.isdisjoint(range(j, j + seen.budget))]
        start = seen.chosen["start"]
        others = [j for j in free if j != start]
        what = "similarity across the window"
        yield Cut(what=what, scores=-similarity, taken=[start], left=others, unit="start", sign=-1.0)


def _layertrim(seen: Planned) -> Iterator[Cut]:
    changed = [spec.base for spec in seen.plan.layers if spec.features is not None or spec.drop]
    if seen.calibration is not None and seen.params.get("layer_choice") == "block_bi":
        scores = 1 - span_similarity(seen.calibration, 1, "prenorm")
        others = frozenset(range(seen.plan.num_layers)) - set(changed) - seen.protected
        yield Cut(what="Block Influence", scores=scores, taken=changed, left=others)


def _simdiff(method: SimDiff[Any], seen: Planned) -> Iterator[Cut]:
    """The cut at the alpha that was given or found."""
    alpha = seen.chosen.get("alpha", seen.params.get("alpha"))
    if seen.calibration is not None and isinstance(alpha, int | float):
        # A row states its probe corpus beside the method's own parameters.
        own = {
            field.name: seen.params[field.name]
            for field in fields(method.params)
            if field.name in seen.params
        }
        similarity_L, difference_L = method.scores(seen.calibration, parse_params(method, own))
        scores = (1 - alpha) * similarity_L - alpha * expit(-difference_L)
        ranking = Ranking(Scores(similarity_L, difference_L), sorted(seen.removed | seen.others))
        end = nearest_change(ranking, Fraction(alpha), len(seen.removed))
        others = "no other alpha removes other layers" if end is None else f"others from {float(end):.4g}"
        what = f"importance less alpha at alpha {alpha:.4g} ({others})"
        yield Cut(what=what, scores=scores, taken=seen.removed, left=seen.others)


def _laco(seen: Planned) -> Iterator[Cut]:
    """The merges on either side of T, and the best plan of other windows and steps."""
    chosen = seen.chosen
    if "threshold_below" not in chosen:
        return
    sides = np.array([chosen["threshold_below"], chosen["threshold"]])
    # Where no merge was refused, T is the number just below the least similar of all.
    if np.nextafter(sides[0], -math.inf) != sides[1] and np.isfinite(sides).all():
        names = ("least similar merge accepted", "most similar merge refused")
        what = "similarity of the output to the dense model's"
        yield Cut(what=what, scores=-sides, taken=[0], left=[1], sign=-1.0, names=names)
    if second := chosen.get("runner_up"):
        names = [f"C={one['merge_layers']}, I={one['interval']}" for one in (chosen, second)]
        scores = -np.array([one["output_similarity"] for one in (chosen, second)])
        what = "output similarity among windows and steps"
        yield Cut(what=what, scores=scores, taken=[0], left=[1], sign=-1.0, names=names)


def _lorp(seen: Planned) -> Iterator[Cut]:
    if seen.calibration is not None:
        yield from _clusters(seen, seen.calibration.similarity_BB[:-1, :-1])


def _wrp(seen: Planned) -> Iterator[Cut]:
    if seen.weights is not None:
        yield from _clusters(seen, weight_similarity(seen.weights))


def _clusters(seen: Planned, S_LL: Array) -> Iterator[Cut]:
    """The cut in each cluster. How many a cluster loses is another decision, and is not looked at."""
    members = seen.chosen.get("members", [])
    scores = np.where(np.isfinite(r_L := redundancy(S_LL, members)), -r_L, np.inf)
    for cluster in members:
        own = frozenset(cluster)
        what = "redundancy within a cluster"
        yield Cut(what=what, scores=scores, taken=seen.removed & own, left=seen.others & own, sign=-1.0)


CUTS: Mapping[str, Callable[[Planned], Iterator[Cut]]] = {
    "shortgpt": _shortgpt,
    "llm_streamline": _streamline,
    "layertrim": _layertrim,
    "simdiff_mssd": partial(_simdiff, SimDiffMSSD()),
    "simdiff_masd": partial(_simdiff, SimDiffMASD()),
    "laco": _laco,
    "lorp": _lorp,
    "wrp": _wrp,
}
"""Methods that cut rankings which the store gives back."""
