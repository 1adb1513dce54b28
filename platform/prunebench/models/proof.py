"""Exports proven in fresh processes: what they compute there is what the plan computes in memory."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import transformers

from prunebench.core.fingerprint import Json
from prunebench.core.plan import PruningPlan
from prunebench.errors import ExportError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import load_model
from prunebench.models.reload import probe_logits
from prunebench.models.view import ModelView
from prunebench.models.widths import Layout, checkpoint_widths, is_unequal, vllm_refusal
from prunebench.models.writer import write_json

MANIFEST: Final = "prunebench.json"
MANIFEST_VERSION: Final = 1
PROBE_TOKENS: Final = 48


@dataclass(frozen=True, kw_only=True)
class Export:
    """A pruned checkpoint on its way: what was written where, not yet proven."""

    checkpoint: Checkpoint
    plan: PruningPlan
    folder: Path
    layout: Layout
    dtype: str
    attention: str = "sdpa"

    @property
    def probe_ids(self) -> list[int]:
        """The fixed token row that the proof is made on, spread over the vocabulary."""
        return [(7919 * i + 13) % self.checkpoint.vocab_size for i in range(PROBE_TOKENS)]

    @property
    def widths(self) -> tuple[int, ...]:
        """MLP features of each block of the checkpoint."""
        return checkpoint_widths(self.plan, self.checkpoint.shape, self.layout)

    @property
    def own_code(self) -> bool:
        """Whether a modelling file lies beside the weights."""
        return is_unequal(self.widths)


def prove(exports: Sequence[Export]) -> None:
    """Reload all exports in one fresh process, compare their logits with the views', write the manifests.

    Raises:
        ExportError: an export does not load, its logits are not finite, or not the view's bit for bit.
    """
    expected = [_view_logits(export) for export in exports]
    for export, here in zip(exports, expected, strict=True):
        if not np.isfinite(here).all():
            raise ExportError(
                f"the logits of plan {export.plan.plan_id} are not finite in {export.dtype}, which proves "
                "nothing: check the checkpoint's weights; nothing was exported"
            )
    rows = [export.probe_ids for export in exports]
    found = reload_logits(exports, rows, [export.dtype for export in exports])
    for export, here, there in zip(exports, expected, found, strict=True):
        if here.tobytes() != there.tobytes():
            distance = float(np.abs(here - there).max()) if here.shape == there.shape else float("inf")
            raise ExportError(
                f"the exported checkpoint of plan {export.plan.plan_id} computes other logits than the "
                f"plan in memory (largest difference {distance:g}): nothing was exported"
            )
        write_json(export.folder / MANIFEST, _manifest(export, here))


def _view_logits(export: Export) -> np.ndarray:
    dense = load_model(export.checkpoint, dtype=export.dtype, attention=export.attention)
    with ModelView(dense).applied(export.plan, deployed=export.layout == "deployed") as model:
        return probe_logits(model, export.probe_ids)


def reload_logits(
    exports: Sequence[Export], rows: Sequence[Sequence[int]], dtypes: Sequence[str]
) -> list[np.ndarray]:
    """What `reload.probe_logits` gives for each export, loaded by plain Transformers in one fresh process.

    Raises:
        ExportError: an export does not load.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.npy" for i in range(len(exports))]
        request = {
            "threads": torch.get_num_threads(),
            "exports": [
                {
                    "folder": str(export.folder),
                    "dtype": dtype,
                    "attention": export.attention,
                    "own_code": export.own_code,
                    "ids": list(row),
                    "logits": str(file),
                }
                for export, row, dtype, file in zip(exports, rows, dtypes, files, strict=True)
            ],
        }
        # -P keeps the script's own folder off the import path: the child sees only installed libraries.
        script = [sys.executable, "-P", str(Path(__file__).with_name("reload.py"))]
        # Transformers copies modelling files into a cache, where nothing should stay of what is not proven.
        run_child(script, request, {"HF_MODULES_CACHE": f"{folder}/modules"})
        return [np.load(file) for file in files]


def run_child(command: Sequence[str], request: Json, environment: dict[str, str]) -> None:
    """Run a script that reads its request as JSON from standard input.

    Raises:
        ExportError: it failed, with the last line that it said.
    """
    child = subprocess.run(
        command,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )
    if child.returncode:
        said = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
        raise ExportError(f"the exported checkpoint does not load in a fresh process: {said[-1]}")


def _manifest(export: Export, logits: np.ndarray) -> dict[str, Json]:
    own_code = export.own_code
    refusal = vllm_refusal(export.checkpoint.family, export.widths)
    plugin = "prunebench installed beside vLLM, which finds its plugin" if own_code else "nothing"
    return {
        "manifest_version": MANIFEST_VERSION,
        "plan": export.plan.to_json(),
        "plan_id": export.plan.plan_id,
        "weights_id": export.checkpoint.weights_id,
        "dtype": export.dtype,
        "layout": export.layout,
        "runtimes": {
            "transformers": {
                "needs": "trust_remote_code=True" if own_code else "nothing",
                "proven": transformers.__version__,
            },
            "vllm": {"refused": refusal} if refusal else {"needs": plugin, "proven": None},
        },
        "proven": {
            "token_ids": export.probe_ids,
            "logits_sha256": hashlib.sha256(logits.tobytes()).hexdigest(),
            "attention": export.attention,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
