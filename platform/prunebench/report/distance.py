"""Mean similarity against the distance between layers (LoRP, figure 2): how local redundancy is."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from prunebench.core.stats import Array, WeightStats
from prunebench.methods.lorp import locality_score
from prunebench.methods.wrp import weight_similarity
from prunebench.report.plot import Axis, Line, plot
from prunebench.report.source import Calibration
from prunebench.report.svg import style_of


def distance_plot(calibrations: Sequence[Calibration], weights: WeightStats | None) -> Markup:
    """One line for the hidden states of each calibration, one for the weights; empty without any."""
    lines = []
    for number, one in enumerate(calibrations):
        inputs_LL = one.stats.similarity_BB[:-1, :-1]
        points = by_distance(inputs_LL)
        name = f"{one.name[:14]} (RLS {locality_score(inputs_LL):.2f})"
        if points:
            lines.append(Line(name, style_of(number), points))
    if weights is not None and (points := by_distance(weight_similarity(weights))):
        lines.append(Line("weights (WRP)", style_of(len(calibrations)), points))
    if not lines:
        return Markup("")
    low = min(y for line in lines for _, y in line.points)
    title = "Mean similarity of layers against their distance"
    return plot(
        title,
        Axis("distance between layers, as a share of the depth", 0.0, 1.0),
        Axis("mean similarity of all pairs at this distance", min(low, 0.9), 1.0),
        lines,
    )


def by_distance(similarity_LL: Array) -> list[tuple[float, float]]:
    """(distance as a share of L - 1, mean similarity of all pairs of layers at it), where that is finite."""
    layers = len(similarity_LL)
    found = [
        (distance / (layers - 1), float(np.diagonal(similarity_LL, offset=distance).mean()))
        for distance in range(1, layers)
    ]
    return [(x, y) for x, y in found if np.isfinite(y)]
