"""Two devices that are none: tensors of a `toy` backend, computed on the CPU, that refuse to meet each other.

As on two GPUs an operation on tensors of both raises, and values are real. Registering the backend is for the
whole process, so tests run this in one of their own:

    python tests/toy_devices.py FOLDER...

loads each checkpoint over both by accelerate's device map, and prints how far its answers are from those of
the same model on the CPU, as JSON: {folder: {question: difference}}.
"""

import json
import os
import sys
from pathlib import Path

# Threads, in which Transformers loads tensors otherwise, do not see the mode.
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend
from transformers import AutoModelForCausalLM

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.core.stats import CalibrationStats
from prunebench.core.unit import Generation
from prunebench.data.tasks import Document, Measured
from prunebench.evaluation.generation.base import Request, Sampling
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.hf import HfEngine
from prunebench.evaluation.representation import Representation
from prunebench.models.calibrate import calibrate
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.footprint import weight_bytes, work_bytes
from prunebench.models.load import DenseModel, load_model
from prunebench.models.packing import packed_scores
from prunebench.models.probe import ModelProbe
from prunebench.models.scoring import Row, token_logprobs
from prunebench.models.spread import follow_devices, gpu_map

aten = torch.ops.aten
CROSSING = (aten._to_copy.default, aten.copy_.default)


class Backend(_DummyBackendModule):
    """What torch asks of a kind of device."""

    def device_count(self):
        return 2

    def get_rng_state(self, device=0):
        return torch.zeros(1, dtype=torch.uint8)

    def set_rng_state(self, state, device=0):
        pass


class Toy(torch.Tensor):
    """A tensor of the CPU that says it is elsewhere."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw, device):
        toy = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=device,
        )
        toy.raw = raw
        return toy

    def data_ptr(self):
        # accelerate tells tied parameters by it.
        return self.raw.data_ptr()

    def tolist(self):
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # pyrefly: ignore[bad-override]
        return run(func, args, kwargs or {})


class Toys(TorchDispatchMode):
    """Lets tensors be made on the devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class FromLists(TorchFunctionMode):
    """`torch.tensor` fills its tensor where no mode of the other kind looks."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.tensor and (place := kwargs.pop("device", None)) is not None:
            return func(*args, **kwargs).to(place)
        return func(*args, **kwargs)


def run(func, args, kwargs):
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    toys = [tensor for tensor in tensors if isinstance(tensor, Toy)]
    # A number on the CPU may meet anything, as with GPUs.
    places = {tensor.device for tensor in tensors if tensor.dim() or isinstance(tensor, Toy)}
    if toys and len(places) > 1 and func not in CROSSING:
        raise RuntimeError(f"{func}: tensors on {sorted(map(str, places))}")
    asked = kwargs.get("device")
    place = torch.device(asked) if asked is not None else toys[0].device if toys else None
    bare = {**tree_map(raw_of, kwargs), **({} if asked is None else {"device": "cpu"})}
    out = func(*tree_map(raw_of, args), **bare)
    if func is aten.copy_.default:
        return args[0]
    if place is None or place.type != "toy":
        return out
    known = {id(toy.raw): toy for toy in toys}

    def placed(leaf):
        if isinstance(leaf, torch.Tensor):
            return known[id(leaf)] if id(leaf) in known else Toy(leaf, place)
        return leaf

    return tree_map(placed, out)


def raw_of(leaf):
    return leaf.raw if isinstance(leaf, Toy) else leaf


def over_two(whole):
    """The model `whole` over both devices, as `load_model` puts it over GPUs."""
    checkpoint = whole.checkpoint
    room = weight_bytes(checkpoint.shape, "float32") + work_bytes(checkpoint, "float32", "sdpa")
    places = gpu_map(checkpoint, dtype="float32", attention="sdpa", free=(room, room))
    assert set(places.values()) == {0, 1}
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint.path,
        dtype=torch.float32,
        attn_implementation="sdpa",
        device_map={name: f"toy:{place}" for name, place in places.items()},
    )
    follow_devices(model)
    # Buffers that Transformers computes at load and keeps in no file reach a toy without their values.
    for name, buffer in whole.model.named_buffers():
        path, _, last = name.rpartition(".")
        place = model.get_buffer(name).device
        model.get_submodule(path).register_buffer(last, buffer.to(place), persistent=False)
    assert {str(tensor.device) for tensor in model.parameters()} == {"toy:0", "toy:1"}
    return DenseModel(model.eval().requires_grad_(False), checkpoint, "float32", "sdpa", "toy:0")


def plans_of(shape):
    """Plans that drop, move, blend over both devices, trim, repeat and empty blocks."""
    layers, width = shape.num_layers, shape.intermediate_size
    half = Mask.keep(range(0, width, 2), width)
    whole = [LayerSpec(base=i) for i in range(layers)]

    def changed(**specs):
        return PruningPlan(
            num_layers=layers, layers=tuple(specs.get(f"at{i}", whole[i]) for i in range(layers))
        )

    return (
        PruningPlan.dense(layers),
        PruningPlan.without([1, 3], layers),
        changed(at1=LayerSpec(base=1, blend=((1, 0.5), (layers - 1, 0.5)))),
        changed(at4=LayerSpec(base=4, blend=((0, 1.0),))),
        changed(at0=LayerSpec(base=0, features=half), at5=LayerSpec(base=5, features=half)),
        changed(at2=LayerSpec(base=2, drop=("mlp",)), at3=LayerSpec(base=3, drop=("attention",))),
    )


def answers(dense, codec):
    """Every kind of work, as arrays."""
    rng = np.random.default_rng(0)
    rows = [Row(rng.integers(3, 250, length, dtype=np.int64)) for length in (24, 24, 17)]
    beginning = rng.integers(3, 250, 9)
    groups = [[Row(np.concatenate([beginning, rng.integers(3, 250, 4)]), 9) for _ in range(3)]]
    plans = plans_of(dense.checkpoint.shape)
    yield "scores", [np.concatenate(values) for _, values in token_logprobs(dense, plans, rows)]
    packed = [[score.logprobs for score in scores] for _, scores in packed_scores(dense, plans, groups)]
    yield "packed", [np.concatenate(values) for values in packed]
    stats = calibrate(dense, [row.ids for row in rows], "source")
    assert isinstance(stats, CalibrationStats)
    yield "calibration", [np.ravel(stats.cosine_BB), np.ravel(stats.feature_square_LI), stats.cosine_mlp_L]
    probe = ModelProbe(dense, [row.ids for row in rows], "corpus", {}, lambda _: None)
    yield "probe", [np.array([probe.loss(plan), probe.output_similarity(plan)]) for plan in plans]
    measured = Measured(ids=rows[0].ids.astype(np.int64), positions=np.arange(4, 20))
    documents = [Document(doc_id=0, doc_hash="0", payload=measured)]
    distances = list(Representation().evaluate(dense, plans, documents))
    samples = [outcome for _, outcome in distances if isinstance(outcome, tuple)]
    yield "representation", [np.array([sample.value for sample in of_plan]) for of_plan in samples]
    request = Request(prompt=tuple(rows[0].ids.tolist()), sampling=Sampling(context=64, max_tokens=6), seed=0)
    engine = HfEngine(lambda: dense, codec)
    outcomes = [outcome for plan in plans for _, outcome in engine.generate(plan, [request])]
    texts = [outcome.text for outcome in outcomes if isinstance(outcome, Generation)]
    yield "writing", [np.frombuffer(text.encode(), dtype=np.uint8).astype(float) for text in texts]


def main():
    _setup_privateuseone_for_python_backend("toy", Backend())
    # Under it tensors of a class of one's own cannot be written to.
    vars(torch)["inference_mode"] = torch.no_grad
    apart = {}
    for folder in sys.argv[1:]:
        checkpoint = Checkpoint.open(Path(folder))
        codec = Codec(checkpoint)
        whole = load_model(checkpoint, dtype="float32")
        wanted = dict(answers(whole, codec))
        with Toys(), FromLists(), torch.no_grad():
            found = dict(answers(over_two(whole), codec))
        apart[folder] = {
            name: max(
                float(np.abs(a - b).max(initial=0)) for a, b in zip(wanted[name], found[name], strict=True)
            )
            for name in wanted
        }
    sys.stdout.write(json.dumps(apart))


if __name__ == "__main__":
    main()
