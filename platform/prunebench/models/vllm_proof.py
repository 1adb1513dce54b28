"""Exports proven in vLLM: greedy tokens and log-probabilities are those of plain Transformers, in float32."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from prunebench.errors import ExportError, UnsupportedError
from prunebench.models.checkpoint import read_json
from prunebench.models.proof import MANIFEST, Export, reload_logits, run_child
from prunebench.models.widths import vllm_refusal
from prunebench.models.writer import write_json

GREEDY_TOKENS: Final = 16
# Float32 sums in another order, by other kernels, through all layers.
TOLERANCE: Final = 1e-3
_SETTINGS: Final = {
    # One process: what vLLM's own would leave behind if this one were killed is not ours to find.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
# Of the CPU backend: the smallest cache, and threads that are not bound to processors others may use.
_CPU_DEFAULTS: Final = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def check_served(export: Export) -> None:
    """Refuse what vLLM does not serve, before anything is written.

    Raises:
        UnsupportedError: unequal widths of a family that is not served.
    """
    if refusal := vllm_refusal(export.checkpoint.family, export.widths):
        raise UnsupportedError(f"vLLM: {refusal}")


def prove_in_vllm(exports: Sequence[Export]) -> None:
    """Serve all exports in one fresh process, and add to their manifests which vLLM they were proven in.

    Both sides compute in float32, whatever the checkpoint's dtype: in lower precision, tokens of equal models
    differ. Transformers gets vLLM's tokens, and each has to be its own greedy choice after those before it.

    Raises:
        UnsupportedError: unequal widths of a family that is not served.
        ExportError: an export does not load in vLLM, or computes something else there.
    """
    for export in exports:
        check_served(export)
    answers, version = _serve(exports)
    rows = [export.probe_ids + answer["tokens"] for export, answer in zip(exports, answers, strict=True)]
    logits = reload_logits(exports, rows, ["float32"] * len(exports))
    for export, row, answer, here in zip(exports, rows, answers, logits, strict=True):
        distance = compare(export, row, answer["logprobs"], here[: len(row)])
        manifest = read_json(export.folder / MANIFEST)
        manifest["runtimes"]["vllm"] |= {
            "proven": version,
            "greedy_tokens": len(answer["tokens"]),
            "largest_logprob_difference": distance,
        }
        write_json(export.folder / MANIFEST, manifest)


def _serve(exports: Sequence[Export]) -> tuple[list[dict[str, Any]], str]:
    """vLLM's greedy tokens and the log-probabilities of all but the first token, and its version."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "answer": str(answer),
            "greedy_tokens": GREEDY_TOKENS,
            "exports": [{"folder": str(export.folder), "ids": export.probe_ids} for export in exports],
        }
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        defaults = {name: value for name, value in _CPU_DEFAULTS.items() if name not in os.environ}
        threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        command = [sys.executable, "-m", "prunebench.models.vllm_child"]
        run_child(command, request, {**defaults, **threads, **_SETTINGS, "PYTHONPATH": path})
        found = json.loads(answer.read_text())
        return found["exports"], found["version"]


def compare(export: Export, row: Sequence[int], there: Sequence[float], logits: np.ndarray) -> float:
    """Check what vLLM computed against Transformers, T tokens and a vocabulary of V.

    Args:
        export: what was served.
        row: the probe and the tokens that vLLM chose after it, (T,).
        there: vLLM's log-probability of each but the first, (T - 1,).
        logits: of Transformers, (T, V).

    Returns:
        The largest difference of the log-probabilities.

    Raises:
        ExportError: that is more than rounding, or a chosen token is not Transformers' greedy choice.
    """
    plan = export.plan.plan_id
    shifted_TV = logits - logits.max(axis=1, keepdims=True)
    logprobs_TV = shifted_TV - np.log(np.exp(shifted_TV).sum(axis=1, keepdims=True))
    here = logprobs_TV[np.arange(len(row) - 1), row[1:]]
    distance = float(np.abs(here - np.asarray(there)).max())
    if not distance <= TOLERANCE:
        raise ExportError(
            f"the exported checkpoint of plan {plan} computes other log-probabilities in vLLM than in "
            f"Transformers (largest difference {distance:g}): nothing was exported"
        )
    greedy = logits[len(export.probe_ids) - 1 : -1].argmax(axis=1)
    if (equal := int((greedy == row[len(export.probe_ids) :]).sum())) < len(greedy):
        raise ExportError(
            f"the exported checkpoint of plan {plan} chooses other tokens in vLLM than in Transformers "
            f"({equal} of {len(greedy)} greedy tokens are equal): nothing was exported"
        )
    return distance
