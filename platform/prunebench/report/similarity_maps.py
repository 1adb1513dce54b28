"""Similarity matrices as LoRP and WRP see them, side by side, with the borders of the clusters they made."""

import json
import string
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from prunebench.core.stats import WeightStats
from prunebench.methods.wrp import weight_similarity
from prunebench.report.board import Board, Record
from prunebench.report.heatmap import Borders, heatmap
from prunebench.report.source import Calibration


class Clustered(NamedTuple):
    """The clusters of one plan."""

    members: Sequence[Sequence[int]]
    name: str
    """Of the row that made them."""


def similarity_maps(
    board: Board, calibrations: Sequence[Calibration], weights: WeightStats | None
) -> list[Markup]:
    """A map for each calibration with LoRP's clusters, and one of the weights with WRP's."""
    maps = [
        calibration_map(one, _clusters(board, "lorp", one.name or None, one.stats.similarity_BB.shape[0] - 1))
        for one in calibrations
    ]
    if weights is not None:
        found = _clusters(board, "wrp", None, len(weights.norm_L7))
        title = _titled("Weights of layers (WRP)", found)
        maps.append(heatmap(weight_similarity(weights), title, "layer", _borders(found)))
    return maps


def calibration_map(one: Calibration, found: Clustered | None = None) -> Markup:
    """Mean cosines between block boundaries, of which LoRP clusters all but the last."""
    told = ", ".join(part for part in (f"{one.stats.tokens:,} tokens", one.setting) if part)
    title = _titled(f"Calibration {one.name} ({told})", found)
    axis = "block boundary: 0 is the embedding, the last before the norm"
    return heatmap(one.stats.similarity_BB, title, axis, _borders(found))


def _titled(title: str, found: Clustered | None) -> str:
    return title if found is None else f"{title}; {len(found.members)} clusters of {found.name}"


def _borders(found: Clustered | None) -> Borders | None:
    """Runs of layers of one cluster, each with the cluster's letter."""
    if found is None:
        return None
    letters = string.ascii_uppercase
    names = [letters[i % 26] * (1 + i // 26) for i in range(len(found.members))]
    letter = {layer: name for name, cluster in zip(names, found.members, strict=True) for layer in cluster}
    runs: list[tuple[int, int, str]] = []
    for layer in sorted(letter):
        if runs and runs[-1][1] == layer and runs[-1][2] == letter[layer]:
            runs[-1] = (runs[-1][0], layer + 1, letter[layer])
        else:
            runs.append((layer, layer + 1, letter[layer]))
    return Borders(tuple(runs))


def _clusters(board: Board, method: str, calibration: str | None, layers: int) -> Clustered | None:
    """The clusters of the method's first row; of the calibration, where one is named."""
    for row in (row for table in board.tables for row in table.rows):
        variant = row.variant
        if variant["method"] != method or variant["status"] != "ok":
            continue
        if calibration is not None and variant["calibration"] != calibration:
            continue
        if found := _members(variant, layers):
            return Clustered(found, row.label.name)
    return None


def _members(variant: Record, layers: int) -> list[list[int]]:
    """The clusters that a variant's method noted; empty where it noted none of this model's layers."""
    noted = json.loads(variant["chosen_json"] or "{}").get("members") or []
    return noted if sorted(layer for cluster in noted for layer in cluster) == list(range(layers)) else []
