"""Pruned checkpoints: written, proven in a fresh process, and whole or not there."""

import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError, ResourceError
from prunebench.models.checkpoint import TOKENIZER_FILES, Checkpoint, check_out
from prunebench.models.load import FLOATS
from prunebench.models.proof import Export, prove
from prunebench.models.view import check_plan
from prunebench.models.vllm_proof import check_served, prove_in_vllm
from prunebench.models.widths import MODELING, check_vllm, deployed_config, layout_of, modeling_code
from prunebench.models.writer import PrunedTensors, write_json, write_shards

SHARD_BYTES: Final = 5_000_000_000
COPIED: Final = (
    *TOKENIZER_FILES,
    "generation_config.json",
    "*.jinja",
    "chat_template.json",
    "LICENSE*",
    "NOTICE*",
)


def export(
    checkpoint: Checkpoint,
    plan: PruningPlan,
    out: Path,
    *,
    layout: str = "auto",
    dtype: str | None = None,
    attention: str = "sdpa",
    shard_bytes: int = SHARD_BYTES,
    in_vllm: bool = False,
) -> Path:
    """Write the pruned checkpoint to the folder `out` and prove that it loads as what the plan says.

    Args:
        checkpoint: the dense model.
        plan: what to keep.
        out: a folder that does not exist, or is empty.
        layout: deployed (narrow MLPs), padded (the dense shape, with zeros), or auto: see `widths.layout_of`.
        dtype: float64, float32, float16 or bfloat16; None keeps each tensor's own.
        attention: the attention implementation of the proof.
        shard_bytes: largest size of one weight file.
        in_vllm: whether to prove it in vLLM too (a minute more).

    Raises:
        InputError: a folder that is not empty, an unknown dtype or layout, or a plan for another model.
        UnsupportedError: a layout that the plan cannot have, or a checkpoint that vLLM does not serve.
        ResourceError: the disk is full or the place cannot be written, or vLLM is not installed. Nothing is
            left behind.
        ExportError: the reloaded logits differ or are not finite. Nothing is left behind.
    """
    check_out(out)
    temporary = out.absolute().with_name(f".tmp-{uuid.uuid4().hex}")
    planned = _planned(checkpoint, plan, temporary, layout=layout, dtype=dtype, attention=attention)
    if in_vllm:
        check_vllm()
        check_served(planned)
    with _disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(planned, dtype, shard_bytes)
            prove([planned])
            if in_vllm:
                prove_in_vllm([planned])
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return out


def write(
    checkpoint: Checkpoint,
    plan: PruningPlan,
    folder: Path,
    *,
    layout: str = "auto",
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Export:
    """Write the pruned checkpoint to the new folder `folder` without proving it (see `export`)."""
    planned = _planned(checkpoint, plan, folder, layout=layout, dtype=dtype, attention="sdpa")
    _write(planned, dtype, shard_bytes)
    return planned


def _planned(
    checkpoint: Checkpoint, plan: PruningPlan, folder: Path, *, layout: str, dtype: str | None, attention: str
) -> Export:
    check_plan(plan, checkpoint.shape)
    if dtype is not None and dtype not in FLOATS:
        raise InputError(f"dtype '{dtype}' is not one of {', '.join(FLOATS)}")
    return Export(
        checkpoint=checkpoint,
        plan=plan,
        folder=folder,
        layout=layout_of(plan, checkpoint.shape, layout),
        dtype=dtype or checkpoint.dtype,
        attention=attention,
    )


def _write(planned: Export, dtype: str | None, shard_bytes: int) -> None:
    checkpoint, folder = planned.checkpoint, planned.folder
    tensors = PrunedTensors(checkpoint, planned.plan, layout=planned.layout, dtype=dtype)
    needed, free = sum(part.num_bytes for part in tensors.parts), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise ResourceError(f"the export needs {needed:,} bytes, but {free:,} are free at {folder.parent}")
    folder.mkdir()
    write_shards(tensors, folder, shard_bytes)
    family = checkpoint.family
    config = family.pruned_config(checkpoint.config, [spec.base for spec in planned.plan.layers])
    config = deployed_config(config, family, checkpoint.shape, planned.widths)
    if dtype is not None:
        config["torch_dtype" if "torch_dtype" in config else "dtype"] = dtype
    write_json(folder / "config.json", config)
    if planned.own_code:
        (folder / f"{MODELING}.py").write_text(modeling_code(family))
    for file in sorted(file for pattern in COPIED for file in checkpoint.path.glob(pattern)):
        shutil.copyfile(file, folder / file.name)


@contextmanager
def _disk_errors(out: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise ResourceError(f"'{out}' cannot be written: {error.strerror}; nothing was exported") from error
