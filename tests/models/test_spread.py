"""A model over two devices answers as on one, and what does not fit is refused with the numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from prunebench.errors import ResourceError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.footprint import weight_bytes, work_bytes
from prunebench.models.load import load_model
from prunebench.models.spread import gpu_map

# Attention over sequences of another stride is summed in another order; calibration adds up squares near 1e3.
TOLERANCE = {"calibration": 5e-3, "representation": 5e-3}


@pytest.mark.timeout(300)
def test_over_two_devices_every_kind_of_work_has_the_answers_of_one(tiny):
    """A tied head is on the first device, after the last block; Gemma-2 has windows and caps its logits."""
    folders = [str(tiny("llama_biased")), str(tiny("gemma2"))]
    path = os.pathsep.join(filter(None, sys.path))
    script = Path(__file__).parents[1] / "toy_devices.py"
    done = subprocess.run(
        [sys.executable, str(script), *folders],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    apart = json.loads(done.stdout.splitlines()[-1])
    assert set(apart) == set(folders)
    for answers in apart.values():
        assert set(answers) == {"scores", "packed", "calibration", "probe", "representation", "writing"}
        assert [name for name, by in answers.items() if by > TOLERANCE.get(name, 1e-4)] == []


def test_blocks_stay_whole_and_in_order_and_a_tied_head_stays_with_the_embeddings(tiny):
    checkpoint = Checkpoint.open(tiny("llama_biased"))
    room = weight_bytes(checkpoint.shape, "float32") + work_bytes(checkpoint, "float32", "sdpa")
    placed = gpu_map(checkpoint, dtype="float32", attention="sdpa", free=(room, room, room))
    blocks = [placed[f"model.layers.{i}"] for i in range(checkpoint.shape.num_layers)]
    assert blocks == sorted(blocks)
    assert set(blocks) == {0, 1, 2}
    assert placed["lm_head"] == placed["model.embed_tokens"] == 0


def test_what_does_not_fit_is_never_offloaded_but_refused_with_the_numbers(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    third = weight_bytes(checkpoint.shape, "float32") // 3 + work_bytes(checkpoint, "float32", "sdpa")
    with pytest.raises(ResourceError, match=r"2 GPUs have .* GiB free: no room for .*docs/large-models\.md"):
        gpu_map(checkpoint, dtype="float32", attention="sdpa", free=(third, third))


def test_more_gpus_than_there_are_is_a_sentence(tiny):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match="shows 0 CUDA devices"):
        load_model(Checkpoint.open(tiny("llama")), dtype="float32", device="cuda", gpus=2)
