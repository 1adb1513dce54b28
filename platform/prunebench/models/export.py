"""Pruned checkpoints: written, proven in a fresh process, and whole or not there."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import transformers

from prunebench.core.plan import PruningPlan
from prunebench.errors import ExportError, InputError, ResourceError
from prunebench.models.checkpoint import TOKENIZER_FILES, Checkpoint, check_out
from prunebench.models.load import FLOATS, load_model
from prunebench.models.reload import probe_logits
from prunebench.models.view import ModelView, check_plan
from prunebench.models.writer import PrunedTensors, write_json, write_shards

SHARD_BYTES: Final = 5_000_000_000
MANIFEST: Final = "prunebench.json"
MANIFEST_VERSION: Final = 1
COPIED: Final = (
    *TOKENIZER_FILES,
    "generation_config.json",
    "*.jinja",
    "chat_template.json",
    "LICENSE*",
    "NOTICE*",
)
PROBE_TOKENS: Final = 48


@dataclass(frozen=True, kw_only=True)
class Export:
    """A pruned checkpoint on its way: what was written where, not yet proven."""

    checkpoint: Checkpoint
    plan: PruningPlan
    folder: Path
    dtype: str
    attention: str = "sdpa"

    @property
    def probe_ids(self) -> list[int]:
        """The fixed token row that the proof is made on, spread over the vocabulary."""
        return [(7919 * i + 13) % self.checkpoint.vocab_size for i in range(PROBE_TOKENS)]


def export(
    checkpoint: Checkpoint,
    plan: PruningPlan,
    out: Path,
    *,
    dtype: str | None = None,
    attention: str = "sdpa",
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write the pruned checkpoint to the folder `out` and prove that it loads as what the plan says.

    Args:
        checkpoint: the dense model.
        plan: what to keep.
        out: a folder that does not exist, or is empty.
        dtype: float64, float32, float16 or bfloat16; None keeps each tensor's own.
        attention: the attention implementation of the proof.
        shard_bytes: largest size of one weight file.

    Raises:
        InputError: a folder that is not empty, an unknown dtype, or a plan for another model.
        ResourceError: the disk is full or the place cannot be written. Nothing is left behind.
        ExportError: the reloaded logits differ or are not finite. Nothing is left behind.
    """
    check_out(out)
    with _disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.absolute().with_name(f".tmp-{uuid.uuid4().hex}")
        try:
            written = write(
                checkpoint, plan, temporary, dtype=dtype, attention=attention, shard_bytes=shard_bytes
            )
            prove([written])
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return out


def write(
    checkpoint: Checkpoint,
    plan: PruningPlan,
    folder: Path,
    *,
    dtype: str | None = None,
    attention: str = "sdpa",
    shard_bytes: int = SHARD_BYTES,
) -> Export:
    """Write the pruned checkpoint to the new folder `folder` without proving it (see `export`)."""
    check_plan(plan, checkpoint.shape)
    if dtype is not None and dtype not in FLOATS:
        raise InputError(f"dtype '{dtype}' is not one of {', '.join(FLOATS)}")
    tensors = PrunedTensors(checkpoint, plan, dtype)
    needed, free = sum(part.num_bytes for part in tensors.parts), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise ResourceError(f"the export needs {needed:,} bytes, but {free:,} are free at {folder.parent}")
    folder.mkdir()
    write_shards(tensors, folder, shard_bytes)
    config = checkpoint.family.pruned_config(checkpoint.config, [spec.base for spec in plan.layers])
    if dtype is not None:
        config["torch_dtype" if "torch_dtype" in config else "dtype"] = dtype
    write_json(folder / "config.json", config)
    for file in sorted(file for pattern in COPIED for file in checkpoint.path.glob(pattern)):
        shutil.copyfile(file, folder / file.name)
    return Export(
        checkpoint=checkpoint, plan=plan, folder=folder, dtype=dtype or checkpoint.dtype, attention=attention
    )


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
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.npy" for i in range(len(exports))]
        _reload(exports, files)
        for export, here, file in zip(exports, expected, files, strict=True):
            there = np.load(file)
            if here.tobytes() != there.tobytes():
                distance = float(np.abs(here - there).max()) if here.shape == there.shape else float("inf")
                raise ExportError(
                    f"the exported checkpoint of plan {export.plan.plan_id} computes other logits than the "
                    f"plan in memory (largest difference {distance:g}): nothing was exported"
                )
            _write_manifest(export, here)


def _view_logits(export: Export) -> np.ndarray:
    dense = load_model(export.checkpoint, dtype=export.dtype, attention=export.attention)
    with ModelView(dense).applied(export.plan) as model:
        return probe_logits(model, export.probe_ids)


def _reload(exports: Sequence[Export], files: Sequence[Path]) -> None:
    request = {
        "threads": torch.get_num_threads(),
        "exports": [
            {
                "folder": str(export.folder),
                "dtype": export.dtype,
                "attention": export.attention,
                "ids": export.probe_ids,
                "logits": str(file),
            }
            for export, file in zip(exports, files, strict=True)
        ],
    }
    # -P keeps the script's own folder off the import path: the child sees only installed libraries.
    child = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("reload.py"))],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    if child.returncode:
        said = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
        raise ExportError(f"the exported checkpoint does not load in a fresh process: {said[-1]}")


def _write_manifest(export: Export, logits: np.ndarray) -> None:
    deployed = all(spec.features is None and not spec.drop for spec in export.plan.layers)
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "plan": export.plan.to_json(),
        "plan_id": export.plan.plan_id,
        "weights_id": export.checkpoint.weights_id,
        "dtype": export.dtype,
        "layout": "deployed" if deployed else "padded",
        "proven": {
            "token_ids": export.probe_ids,
            "logits_sha256": hashlib.sha256(logits.tobytes()).hexdigest(),
            "attention": export.attention,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    write_json(export.folder / MANIFEST, manifest)


@contextmanager
def _disk_errors(out: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise ResourceError(f"'{out}' cannot be written: {error.strerror}; nothing was exported") from error
