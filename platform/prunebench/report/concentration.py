"""How concentrated the importance E[phi^2]·||w||^2 of MLP features is (LayerTrim, figure 2c)."""

import numpy as np
from markupsafe import Markup

from prunebench.core.stats import Array, CalibrationStats
from prunebench.report.plot import Axis, Line, plot
from prunebench.report.svg import SANITY_COLOUR, Style, style_of

SHARES = (0.1, 0.25, 0.5)
POINTS = 51


def concentration_plots(stats: CalibrationStats, column_square_LI: Array | None, name: str) -> list[Markup]:
    """Importance held by the largest features: over all shares of them, and of every layer at three shares.

    Args:
        stats: of one calibration.
        column_square_LI: ||w||^2 of the columns of down_proj; without it the score is E[phi^2] alone.
        name: of the calibration.
    """
    score_LI = stats.feature_square_LI
    if column_square_LI is not None:
        score_LI = score_LI * column_square_LI
    held_LP = held_by_largest(score_LI)
    layers = np.flatnonzero(np.isfinite(held_LP).all(axis=1))
    if not len(layers):
        return []
    score = "E[φ²]·‖w‖²" if column_square_LI is not None else "E[φ²]"
    return [
        _over_shares(held_LP, layers, f"Importance {score} of MLP features ({name})"),
        _over_layers(held_LP, layers, f"Importance held by the largest features ({name})"),
    ]


def held_by_largest(score_LI: Array) -> Array:
    """Share of each layer's sum of scores that its largest features hold, at `POINTS` shares of the features.

    Shape (L, POINTS), from 0 to 1; NaN for a layer whose scores are not finite or sum to 0.
    """
    sorted_LI = -np.sort(-score_LI, axis=1)
    total_L1 = sorted_LI.sum(axis=1, keepdims=True)
    total_L1[~(np.isfinite(total_L1) & (total_L1 > 0))] = np.nan
    cumulative = np.pad(np.cumsum(sorted_LI, axis=1) / total_L1, ((0, 0), (1, 0)))
    places = np.linspace(0, score_LI.shape[1], POINTS)
    below = np.floor(places).astype(int)
    above = np.minimum(below + 1, score_LI.shape[1])
    part = places - below
    held_LP = cumulative[:, below] * (1 - part) + cumulative[:, above] * part
    held_LP[np.isnan(total_L1[:, 0])] = np.nan
    return held_LP


def _over_shares(held_LP: Array, layers: np.ndarray, title: str) -> Markup:
    half = held_LP[layers, (POINTS - 1) // 4]
    shares = np.linspace(0, 100, POINTS)
    told = {
        f"most: layer {layers[int(half.argmax())]}": held_LP[layers[int(half.argmax())]],
        "median of layers": np.median(held_LP[layers], axis=0),
        f"least: layer {layers[int(half.argmin())]}": held_LP[layers[int(half.argmin())]],
    }
    lines = [
        Line(name, style_of(number), list(zip(shares.tolist(), (100 * held).tolist(), strict=True)))
        for number, (name, held) in enumerate(told.items())
    ]
    even = Line("all alike", Style(SANITY_COLOUR, "2 4", "circle"), [(0.0, 0.0), (100.0, 100.0)])
    return plot(
        title,
        Axis("largest features of a layer, %", 0, 100),
        Axis("their share of the importance, %", 0, 100),
        [*lines, even],
    )


def _over_layers(held_LP: Array, layers: np.ndarray, title: str) -> Markup:
    lines = [
        Line(
            f"largest {share:.0%} of them",
            style_of(number),
            [(float(layer), 100 * float(held_LP[layer, round(share * (POINTS - 1))])) for layer in layers],
        )
        for number, share in enumerate(SHARES)
    ]
    return plot(
        title,
        Axis("layer", 0, float(max(len(held_LP) - 1, 1))),
        Axis("share of the layer's importance, %", 0, 100),
        lines,
    )
