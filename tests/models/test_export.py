"""Exports: they load in a plain process as what the plan says, or they are not there."""

import json
import math
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.errors import ExportError, InputError, ResourceError, UnsupportedError
from prunebench.models.checkpoint import INDEX, WEIGHTS, Checkpoint
from prunebench.models.export import export, write
from prunebench.models.family import EMBEDDINGS, HEAD
from prunebench.models.load import load_model
from prunebench.models.proof import MANIFEST, Export, prove
from prunebench.models.safetensors_file import read_header
from prunebench.models.view import ModelView

L, I = 6, 44  # noqa: E741
PROMPT = [(31 * i + 5) % 259 for i in range(24)]
DEPTH = PruningPlan.without([1, 4], L)
MERGED = PruningPlan(
    num_layers=L,
    layers=(
        LayerSpec(base=0, blend=((0, 0.3), (1, 0.7))),
        LayerSpec(base=2, blend=((4, 1.0),)),
        LayerSpec(base=5),
    ),
)
PADDED = PruningPlan(
    num_layers=L,
    layers=(
        LayerSpec(base=0, features=Mask.keep(range(0, I, 3), I)),
        LayerSpec(base=2, drop=("attention",)),
        LayerSpec(base=3, blend=((3, -1.0), (4, 2.0)), drop=("mlp",)),
        LayerSpec(base=5),
    ),
)
# Each MLP in its own width, or all in one.
UNEQUAL = PruningPlan(
    num_layers=L,
    layers=(
        LayerSpec(base=0),
        LayerSpec(base=1, features=Mask.keep(range(0, I, 3), I)),
        LayerSpec(base=3, blend=((3, 0.5), (4, 0.5)), features=Mask.keep(range(20), I)),
        LayerSpec(base=5, features=Mask.keep([43], I)),
    ),
)
EQUAL = PruningPlan(
    num_layers=L, layers=tuple(LayerSpec(base=i, features=Mask.keep(range(i, 33 + i), I)) for i in (0, 2, 5))
)
GENERATE = """
import json, sys, torch
sys.modules["prunebench"] = None  # importing it fails, wherever it is installed
from transformers import AutoModel, AutoModelForCausalLM
torch.set_num_threads(1)
row = torch.tensor([json.loads(sys.argv[1])])
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=True)
    if model.config.is_heterogeneous:
        # As one saves a fine-tuned model: the modelling file goes with it.
        model.save_pretrained(folder + "-again")
        model = AutoModelForCausalLM.from_pretrained(folder + "-again", trust_remote_code=True)
        body = AutoModel.from_pretrained(folder + "-again", trust_remote_code=True)
        assert [block.mlp.down_proj.in_features for block in body.layers] == [44, 15, 20, 1]
    tokens = model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=9, min_new_tokens=9,
                            do_sample=False, use_cache=True)
    print(json.dumps(tokens[0].tolist()))
"""


def generated(model) -> list[int]:
    row = torch.tensor([PROMPT])
    return model.generate(
        row,
        attention_mask=torch.ones_like(row),
        max_new_tokens=9,
        min_new_tokens=9,
        do_sample=False,
        use_cache=True,
    )[0].tolist()


def set_config(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


@contextmanager
def largest_file(size: int):
    """Files of this process cannot grow past `size` bytes: what a full disk does, without filling one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="session")
def llama(tiny) -> Checkpoint:
    return Checkpoint.open(tiny("llama"))


def test_every_family_reloads_with_equal_logits_and_generation(tiny, load_tiny, llama, tmp_path):
    """One child process proves the logits of all exports, one more generates with the cache on."""
    names = (
        "llama",
        "llama_biased",
        "mistral",
        "qwen2",
        "qwen3",
        "olmo2",
        "olmo3",
        "phi3",
        "gemma2",
        "gemma3",
    )
    plans = {"depth": DEPTH, "merged": MERGED, "padded": PADDED, "unequal": UNEQUAL, "equal": EQUAL}
    exports = [
        write(Checkpoint.open(tiny(name)), plan, tmp_path / f"{name}-{kind}")
        for name in names
        for kind, plan in plans.items()
    ]
    sharded = write(llama, MERGED, tmp_path / "sharded", dtype="bfloat16", shard_bytes=20_000)
    mixed = write(save_mixed(llama, tmp_path / "mixed-dense"), MERGED, tmp_path / "mixed")
    prove([*exports, sharded, mixed])
    check_shards(sharded.folder, llama)
    entries = sorted(read_header(mixed.folder / WEIGHTS).values(), key=lambda entry: entry.begin)
    assert [entry.dtype for entry in entries] == ["F32"] * 3 + ["BF16"] * (len(entries) - 3)
    child = subprocess.run(
        [sys.executable, "-c", GENERATE, json.dumps(PROMPT), *(str(export.folder) for export in exports)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")},
    )
    for written, tokens in zip(exports, child.stdout.splitlines(), strict=True):
        dense = load_tiny(written.checkpoint.path.name)
        with ModelView(dense).applied(written.plan, deployed=written.layout == "deployed") as model:
            assert json.loads(tokens) == generated(model), written.folder.name
            held = sum(parameter.numel() for parameter in model.parameters())
        header = read_header(written.folder / WEIGHTS)
        assert sum(entry.numel for entry in header.values()) == held
        check_folder(written)


def check_folder(written: Export) -> None:
    manifest = json.loads((written.folder / MANIFEST).read_text())
    assert manifest["layout"] == ("padded" if written.plan == PADDED else "deployed")
    runtimes = manifest["runtimes"]
    if written.plan == UNEQUAL:
        assert runtimes["transformers"]["needs"] == "trust_remote_code=True"
        with pytest.raises(UnsupportedError, match=r"per_layer_config .*layers of unequal sizes"):
            Checkpoint.open(written.folder)
    else:
        assert runtimes["transformers"]["needs"] == runtimes["vllm"]["needs"] == "nothing"
        pruned = Checkpoint.open(written.folder)
        assert pruned.shape.num_layers == len(written.plan.layers)
        assert pruned.shape.intermediate_size == (33 if written.plan == EQUAL else I)
        assert pruned.tokenizer_hash == written.checkpoint.tokenizer_hash


def test_stock_classes_do_not_load_unequal_widths(llama, tmp_path):
    out = write(llama, UNEQUAL, tmp_path / "out").folder
    assert {file.name for file in out.iterdir()} >= {"config.json", "modeling_prunebench.py"}
    with pytest.raises(RuntimeError, match=r"size mismatch|mismatched"):
        AutoModelForCausalLM.from_pretrained(out, trust_remote_code=False)


def test_a_trimmed_plan_is_padded_on_demand(llama, tmp_path):
    written = write(llama, UNEQUAL, tmp_path / "out", layout="padded")
    out = written.folder
    assert written.layout == "padded"
    assert Checkpoint.open(out).shape.intermediate_size == I
    down = load_file(out / WEIGHTS)["model.layers.1.mlp.down_proj.weight"]
    assert not down[:, [i for i in range(I) if i % 3]].any()


def test_an_export_is_a_whole_folder_with_a_manifest(llama, tmp_path):
    out = export(llama, DEPTH, tmp_path / "new" / "out")
    assert {file.name for file in out.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "prunebench.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [file.name for file in out.parent.iterdir()] == ["out"]
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in out.iterdir())
    manifest = json.loads((out / MANIFEST).read_text())
    assert PruningPlan.from_json(json.dumps(manifest["plan"])) == DEPTH
    assert manifest["plan_id"] == DEPTH.plan_id
    assert manifest["weights_id"] == llama.weights_id
    assert manifest["dtype"] == "float32"
    assert len(manifest["proven"]["logits_sha256"]) == 64
    with safe_open(out / WEIGHTS, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        export(llama, DEPTH, out)


def check_shards(out: Path, llama: Checkpoint) -> None:
    index = json.loads((out / INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2
    assert not (out / WEIGHTS).exists()
    assert {name for file in files for name in read_header(out / file)} == index["weight_map"].keys()
    pruned = Checkpoint.open(out)
    assert pruned.dtype == pruned.config["dtype"] == "bfloat16"
    with ModelView(load_model(llama, dtype="bfloat16")).applied(MERGED) as model:
        blended = model.model.layers[0].mlp.up_proj.weight
    entry = pruned.tensors["model.layers.0.mlp.up_proj.weight"]
    assert b"".join(entry.chunks()) == blended.view(torch.uint8).numpy().tobytes()


def save_mixed(llama: Checkpoint, folder: Path) -> Checkpoint:
    """The tiny Llama with matrices in bfloat16 and one norm of each block in float32."""
    model = load_model(llama, dtype="bfloat16").model
    for block in model.model.layers:
        block.input_layernorm.float()
    model.save_pretrained(folder)
    return Checkpoint.open(folder)


def test_an_export_that_computes_something_else_is_refused(llama, tmp_path):
    written = write(llama, DEPTH, tmp_path / "out")
    entry = read_header(written.folder / WEIGHTS)["model.layers.2.mlp.up_proj.weight"]
    with (written.folder / WEIGHTS).open("r+b") as stream:
        stream.seek(entry.begin)
        stream.write(bytes(4))
    with pytest.raises(ExportError, match=f"plan {DEPTH.plan_id} computes other logits"):
        prove([written])


def test_an_export_that_does_not_load_is_refused(llama, tmp_path):
    written = write(llama, DEPTH, tmp_path / "out")
    (written.folder / WEIGHTS).write_bytes(b"")
    with pytest.raises(ExportError, match="does not load in a fresh process"):
        prove([written])


def test_a_full_disk_leaves_nothing_behind(llama, tmp_path):
    with (
        largest_file(100_000),
        pytest.raises(ResourceError, match=r"cannot be written: .*nothing was exported"),
    ):
        export(llama, DEPTH, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_model_larger_than_the_disk_is_refused_before_it_is_written(llama, tmp_path):
    """A sparse file stands for the large model: 8.8 TB of zeros that occupy nothing."""
    folder = Path(shutil.copytree(llama.path, tmp_path / "large"))
    vocabulary = 2**36
    set_config(folder, vocab_size=vocabulary, tie_word_embeddings=True)
    header, end = {}, 0
    for name, entry in llama.tensors.items():
        if name != HEAD:
            shape = (vocabulary, 32) if name == EMBEDDINGS else entry.shape
            begin, end = end, end + 4 * math.prod(shape)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(folder / WEIGHTS, 8 + len(text) + end)
    with pytest.raises(ResourceError, match=r"needs [0-9,]+ bytes, but [0-9,]+ are free"):
        export(Checkpoint.open(folder), DEPTH, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["large"]


@pytest.mark.parametrize(
    ("plan", "settings", "sentence"),
    [
        (PruningPlan.without([1], 7), {}, "for 7 layers, but the model has 6"),
        (DEPTH, {"dtype": "int8"}, "'int8' is not one of"),
        (DEPTH, {"layout": "dense"}, "'dense' is not one of auto, deployed, padded"),
        (PADDED, {"layout": "deployed"}, "drops a whole sublayer of layer 2"),
    ],
)
def test_bad_requests_leave_nothing_behind(llama, tmp_path, plan, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        export(llama, plan, tmp_path / "out", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file/out", "/proc/none/out"])
def test_a_place_that_cannot_be_written_is_a_sentence(llama, tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match=r"cannot be written: .*nothing was exported"):
        export(llama, DEPTH, tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_logits_that_are_not_numbers_prove_nothing(llama, tmp_path):
    """Equal NaNs are equal bytes."""
    folder = Path(shutil.copytree(llama.path, tmp_path / "broken"))
    tensors = load_file(folder / WEIGHTS)
    tensors["model.layers.0.mlp.up_proj.weight"][:] = float("nan")
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ExportError, match="not finite in float32"):
        export(Checkpoint.open(folder), DEPTH, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


@pytest.mark.real
def test_a_real_model_is_exported(smollm2, tmp_path):
    checkpoint = Checkpoint.open(smollm2)
    merged = tuple(
        LayerSpec(base=i, blend=((i, 0.5), (i + 1, 0.5)) if i == 9 else ()) for i in range(30) if i != 10
    )
    out = export(checkpoint, PruningPlan(num_layers=30, layers=merged), tmp_path / "out")
    assert Checkpoint.open(out).shape.num_layers == 29
    assert (out / "chat_template.jinja").read_bytes() == (smollm2 / "chat_template.jinja").read_bytes()
