"""What can be listed of a space once the model is measured: the pieces of continuous parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.methods.base import Measurements
from prunebench.methods.space import Choices, Piece
from prunebench.pipeline.measure import Seen
from prunebench.pipeline.prepare import Request
from prunebench.pipeline.quest import Quest
from prunebench.search.spaces import Branch


def pieces_of(quest: Quest, seen: Seen, branch: Branch) -> Mapping[str, tuple[Piece, ...]]:
    """The pieces of the branch's continuous parameters, where its method can list them."""
    rule = quest.rules[branch.label]
    if not isinstance(rule, Request):
        return {}
    calibration = None if rule.calibration is None else seen.calibrations[rule.calibration]
    measured = Measurements(
        shape=quest.subject.checkpoint.shape,
        calibration=None if calibration is None else CalibrationStats.from_bytes(calibration),
        weights=None if seen.weights is None else WeightStats.from_bytes(seen.weights),
    )
    return rule.method.distinct(measured, rule.budget, rule.params, branch.space)


def listed_branch(branch: Branch, pieces: Mapping[str, Sequence[Piece]]) -> Branch:
    """The branch with a number for each piece in place of a continuous range."""
    numbers = {
        name: Choices(tuple(dict.fromkeys(piece.value for piece in own if piece.value is not None)))
        for name, own in pieces.items()
    }
    return replace(branch, space={**branch.space, **numbers})
