"""Synthetic measurements of one consistent random model, and the numbers recorded from the authors' code."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from prunebench.core.plan import PruningPlan
from prunebench.core.shape import ModelShape
from prunebench.core.stats import CalibrationStats, WeightStats
from prunebench.methods.base import Measurements

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class HashProbe:
    """A probe without a model: each answer is a hash of the question and the plan."""

    def _answer(self, question: str, plan: PruningPlan) -> float:
        digest = hashlib.sha256(f"{question} {plan.plan_id}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def loss(self, plan: PruningPlan) -> float:
        return 2 + self._answer("loss", plan)

    def output_similarity(self, plan: PruningPlan) -> float:
        return self._answer("output_similarity", plan)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def shape_with(num_layers: int) -> ModelShape:
    # 2·16·4·(4 + 2) + 3·16·96 = 768 + 4608 = 5376 parameters a layer, 48 a feature.
    return ModelShape(
        num_layers=num_layers,
        hidden_size=16,
        intermediate_size=96,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        block_extra_params=32,
        other_params=1000,
    )


def random_calibration(shape: ModelShape, rng: np.random.Generator, tokens: int = 20) -> CalibrationStats:
    """Statistics of a random walk of hidden states, so that all of them are of one possible model."""
    L, C, features = shape.num_layers, shape.hidden_size, shape.intermediate_size
    steps_TBC = rng.normal(size=(tokens, L + 1, C)) * rng.uniform(0.2, 1.0, size=(L + 1, 1))
    h_TBC = np.cumsum(steps_TBC, axis=1)
    mid_TLC = h_TBC[:, :-1] + 0.5 * rng.normal(size=(tokens, L, C))
    change_TLC = np.diff(h_TBC, axis=1)
    phi_TLI = rng.normal(size=(tokens, L, features)) ** 3
    o_TLA = rng.normal(size=(tokens, L, shape.num_heads * shape.head_dim))
    normed_TC = unit(h_TBC[:, -1] * rng.uniform(0.5, 2.0, size=C))
    return CalibrationStats(
        source="synthetic",
        tokens=tokens,
        cosine_BB=np.einsum("tic,tjc->ij", unit(h_TBC), unit(h_TBC)),
        cosine_normed_L=np.einsum("tic,tc->i", unit(h_TBC[:, :-1]), normed_TC),
        cosine_attention_L=np.einsum("tic,tic->i", unit(h_TBC[:, :-1]), unit(mid_TLC)),
        cosine_mlp_L=np.einsum("tic,tic->i", unit(mid_TLC), unit(h_TBC[:, 1:])),
        squared_change_L=(change_TLC**2).sum(axis=(0, 2)),
        absolute_change_L=np.abs(change_TLC).sum(axis=(0, 2)),
        feature_sum_LI=phi_TLI.sum(axis=0),
        feature_square_LI=(phi_TLI**2).sum(axis=0),
        attention_sum_LA=o_TLA.sum(axis=0),
        attention_square_LA=(o_TLA**2).sum(axis=0),
        hidden_size=C,
    )


def random_weights(shape: ModelShape, rng: np.random.Generator) -> WeightStats:
    L, C = shape.num_layers, shape.hidden_size

    def cka(width: int) -> np.ndarray:
        W = rng.normal(size=(L, C, width)) + rng.normal(size=(1, C, width))
        centred = W - W.mean(axis=1, keepdims=True)
        grams = unit(np.einsum("lcm,ldm->lcd", centred, centred).reshape(L, -1))
        return grams @ grams.T

    return WeightStats(
        source="synthetic",
        norm_L7=rng.uniform(1, 10, size=(L, 7)),
        column_square_LI=rng.uniform(0.1, 2, size=(L, shape.intermediate_size)),
        cka_o_LL=cka(16),
        cka_down_LL=cka(96),
    )


@pytest.fixture(scope="session")
def make_seen():
    """A function of (num_layers, seed): everything that any method may require."""

    def make(num_layers: int = 12, seed: int = 0) -> Measurements:
        shape, rng = shape_with(num_layers), np.random.default_rng(seed)
        return Measurements(
            shape=shape,
            calibration=random_calibration(shape, rng),
            weights=random_weights(shape, rng),
            probe=HashProbe(),
        )

    return make


@pytest.fixture(scope="session")
def seen(make_seen) -> Measurements:
    return make_seen()


@pytest.fixture(scope="session")
def seen_similarity():
    """A function of a (B, B) matrix of mean cosines: measurements that hold nothing else of interest."""

    def make(similarity_BB, normed_L=None, tokens: int = 1) -> Measurements:
        boundaries = np.asarray(similarity_BB, dtype=float)
        L = len(boundaries) - 1
        nothing_L, nothing_L1 = np.zeros(L), np.zeros((L, 1))
        calibration = CalibrationStats(
            source="by hand",
            tokens=tokens,
            cosine_BB=boundaries * tokens,
            cosine_normed_L=nothing_L if normed_L is None else np.asarray(normed_L) * tokens,
            cosine_attention_L=nothing_L,
            cosine_mlp_L=nothing_L,
            squared_change_L=nothing_L,
            absolute_change_L=nothing_L,
            feature_sum_LI=nothing_L1,
            feature_square_LI=nothing_L1,
            attention_sum_LA=nothing_L1,
            attention_square_LA=nothing_L1,
            hidden_size=16,
        )
        return Measurements(shape=shape_with(L), calibration=calibration)

    return make


@pytest.fixture(scope="session")
def golden():
    """A function of a file name: recorded numbers."""
    return lambda name: json.loads((GOLDEN / name).read_text())


@pytest.fixture(scope="session")
def symmetric():
    """A function of the rows of an upper triangle: the symmetric matrix."""

    def fill(rows) -> np.ndarray:
        matrix = np.zeros((len(rows), len(rows)))
        for i, row in enumerate(rows):
            matrix[i, i:] = row
            matrix[i:, i] = row
        return matrix

    return fill
