"""Checkpoints on disk: counted right, identified by their bytes, refused with a sentence where broken."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from prunebench.errors import InputError, ResourceError, UnsupportedError
from prunebench.models.checkpoint import INDEX, WEIGHTS, Checkpoint
from prunebench.models.load import load_model, load_tokenizer
from prunebench.models.safetensors_file import read_header
from prunebench.models.tokenizer import Encoder


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    """A copy of the tiny Llama that a test may break."""
    return Path(shutil.copytree(tiny("llama"), tmp_path / "model"))


def rewrite(folder: Path, **changes) -> None:
    """Save the weights again with some tensors replaced, added, or left out (None)."""
    tensors = load_file(folder / WEIGHTS) | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / WEIGHTS)


def set_config(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def shard(folder: Path) -> None:
    """Split the one weight file in two with an index, as large models come."""
    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / WEIGHTS).unlink()


def test_parameters_are_counted_as_in_the_real_model(family_path):
    model = AutoModelForCausalLM.from_pretrained(family_path)
    shape = Checkpoint.open(family_path).shape
    assert shape.total_params == sum(parameter.numel() for parameter in model.parameters())
    block = sum(parameter.numel() for parameter in model.model.layers[0].parameters())
    assert shape.params_per_layer + shape.block_extra_params == block


@pytest.mark.real
def test_smollm2_is_the_checkpoint_that_recorded_numbers_were_made_on(smollm2):
    checkpoint = Checkpoint.open("builtin:smollm2-135m")
    assert checkpoint.path == smollm2
    assert checkpoint.shape.total_params == 134_515_008
    assert checkpoint.shape.params_per_layer == 2 * 576 * 64 * (9 + 3) + 3 * 576 * 1536
    assert checkpoint.dtype == "bfloat16"
    assert checkpoint.weights_id == "97742c8f320ba0f20ff4c0a8efc369d16f94d848044054bec4e1509725a072d0"
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in smollm2.iterdir())


def test_entries_say_where_the_bytes_lie(folder):
    checkpoint = Checkpoint.open(folder)
    name = "model.layers.3.mlp.down_proj.weight"
    entry = checkpoint.tensors[name]
    values = np.frombuffer(b"".join(entry.chunks()), dtype=np.float32).reshape(entry.shape)
    np.testing.assert_array_equal(values, load_file(folder / WEIGHTS)[name])
    assert (entry.dtype, entry.num_bytes) == ("F32", values.nbytes)


def test_shards_are_the_same_weights(folder):
    whole = Checkpoint.open(folder)
    whole_id = whole.weights_id
    shard(folder)
    sharded = Checkpoint.open(folder)
    assert sharded.shape == whole.shape
    assert sharded.weights_id == whole_id
    assert len({entry.file for entry in sharded.tensors.values()}) == 2


def test_the_weights_id_depends_on_every_byte_and_is_remembered(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PRUNEBENCH_CACHE", str(tmp_path / "cache"))
    first = Checkpoint.open(folder).weights_id
    (remembered,) = (tmp_path / "cache" / "weights").iterdir()
    assert remembered.read_text() == first
    remembered.write_text("f" * 64)
    assert Checkpoint.open(folder).weights_id == "f" * 64
    remembered.write_text("torn")
    assert Checkpoint.open(folder).weights_id == first
    last = "model.norm.weight"
    tensor = load_file(folder / WEIGHTS)[last]
    tensor[-1] = np.nextafter(tensor[-1], np.float32(2))
    rewrite(folder, **{last: tensor})
    assert Checkpoint.open(folder).weights_id != first


def test_the_tokenizer_hash_depends_on_tokenizer_files_alone(folder):
    first = Checkpoint.open(folder).tokenizer_hash
    (folder / "README.md").write_text("nothing")
    assert Checkpoint.open(folder).tokenizer_hash == first
    (folder / "added_tokens.json").write_text("{}")
    assert Checkpoint.open(folder).tokenizer_hash != first


def test_the_tokenizer_is_the_checkpoints_own(folder):
    tokenizer = load_tokenizer(Checkpoint.open(folder))
    assert tokenizer.decode(tokenizer("pruned é").input_ids) == "pruned é"
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match="holds no tokenizer that can be read"):
        load_tokenizer(Checkpoint.open(folder))


def test_nothing_heavy_is_imported_to_open_a_checkpoint(folder):
    code = (
        "import sys; from prunebench.models.checkpoint import Checkpoint\n"
        "Checkpoint.open(sys.argv[1]).weights_id\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def without_folder(folder):
    shutil.rmtree(folder)


def without_config(folder):
    (folder / "config.json").unlink()


def broken_config(folder):
    (folder / "config.json").write_text('{"model_type":')


def listed_config(folder):
    (folder / "config.json").write_text("[]")


def without_weights(folder):
    (folder / WEIGHTS).unlink()


def only_pickle(folder):
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def truncated(folder):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-5])


def truncated_header(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:50])


def empty_file(folder):
    (folder / WEIGHTS).write_bytes(b"")


def garbage_header(folder):
    (folder / WEIGHTS).write_bytes((4).to_bytes(8, "little") + b"abcd")


def longer(folder):
    with (folder / WEIGHTS).open("ab") as stream:
        stream.write(b"0000")


def missing_shard(folder):
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def doubled_tensor(folder):
    shard(folder)
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors")


def missing_tensor(folder):
    rewrite(folder, **{"model.layers.2.mlp.up_proj.weight": None})


def no_embeddings(folder):
    rewrite(folder, **{"model.embed_tokens.weight": None})


def unknown_tensor(folder):
    rewrite(folder, **{"model.layers.6.mlp.up_proj.weight": np.zeros((44, 32), np.float32)})


def other_shape(folder):
    rewrite(folder, **{"model.layers.2.mlp.down_proj.weight": np.zeros((32, 40), np.float32)})


def integer_weights(folder):
    rewrite(folder, **{"model.layers.2.mlp.down_proj.weight": np.zeros((32, 44), np.int8)})


def undeclared_bias(folder):
    set_config(folder, attention_bias=True)


def quantised(folder):
    set_config(folder, quantization_config={"bits": 4})


def folder_of_weights(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def listed_index(folder):
    shard(folder)
    (folder / INDEX).write_text('{"weight_map": ["model-00001-of-00002.safetensors"]}')


def listed_type(folder):
    set_config(folder, model_type=["llama"])


@pytest.mark.parametrize(
    ("spoil", "error", "sentence"),
    [
        (without_folder, InputError, "does not exist: give a folder, a hub id such as org/name, or builtin:"),
        (without_config, InputError, "holds no config.json"),
        (broken_config, InputError, "config.json is not valid JSON"),
        (listed_config, InputError, "not a JSON object"),
        (without_weights, InputError, "holds no weights: neither model.safetensors nor"),
        (only_pickle, InputError, r"pickled weights only \(pytorch_model.bin\).*safetensors first"),
        (truncated, InputError, r"truncated: \d+ bytes instead of \d+"),
        (truncated_header, InputError, "truncated or not a safetensors file: 50 bytes"),
        (empty_file, InputError, "truncated or not a safetensors file: 0 bytes"),
        (garbage_header, InputError, "its header cannot be read"),
        (longer, InputError, "longer than its header says"),
        (
            missing_shard,
            InputError,
            r"names model-00002-of-00002.safetensors, which is missing \(1 of 2 files\)",
        ),
        (doubled_tensor, InputError, "is in two files"),
        (missing_tensor, InputError, "'model.layers.2.mlp.up_proj.weight' is missing, which a Llama model"),
        (no_embeddings, InputError, "not the weights of a language model"),
        (unknown_tensor, InputError, "'model.layers.6.mlp.up_proj.weight' has no place in a Llama model"),
        (other_shape, InputError, r"has shape \(32, 40\), but config.json says \(32, 44\)"),
        (integer_weights, UnsupportedError, "dtype I8: quantised weights are refused"),
        (undeclared_bias, InputError, "q_proj.bias' is missing"),
        (quantised, UnsupportedError, "quantised weights"),
        (folder_of_weights, InputError, "model.safetensors cannot be read: Is a directory"),
        (listed_index, InputError, "weight_map has to name a file for each tensor"),
        (listed_type, InputError, r"model_type has to be a name, not \['llama'\]"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_checkpoint_is_refused_with_a_sentence(folder, spoil, error, sentence):
    spoil(folder)
    with pytest.raises(error, match=sentence):
        Checkpoint.open(folder)


def test_a_file_instead_of_a_folder_is_refused(folder):
    with pytest.raises(InputError, match="is a file: give the folder"):
        Checkpoint.open(folder / WEIGHTS)


def test_a_hub_model_that_cannot_be_fetched_says_so(tmp_path):
    code = (
        "from prunebench.models.checkpoint import Checkpoint\n"
        "from prunebench.errors import ResourceError\n"
        "try: Checkpoint.open('nobody/nothing')\n"
        "except ResourceError as error: print(error)"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=offline, check=True
    )
    assert "'nobody/nothing' is no folder here and cannot be fetched from the hub" in done.stdout


def test_a_cache_that_cannot_be_written_is_named(folder, monkeypatch):
    monkeypatch.setenv("PRUNEBENCH_CACHE", str(folder / WEIGHTS / "below"))
    with pytest.raises(ResourceError, match="set PRUNEBENCH_CACHE"):
        Checkpoint.open(folder).weights_id  # noqa: B018


def test_old_rotary_buffers_are_no_parameters(folder):
    total = Checkpoint.open(folder).shape.total_params
    rewrite(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)})
    assert Checkpoint.open(folder).shape.total_params == total


def test_a_tied_head_in_the_file_is_counted_once(tiny, tmp_path):
    folder = Path(shutil.copytree(tiny("llama_biased"), tmp_path / "model"))
    total = Checkpoint.open(folder).shape.total_params
    rewrite(folder, **{"lm_head.weight": load_file(folder / WEIGHTS)["model.embed_tokens.weight"]})
    assert Checkpoint.open(folder).shape.total_params == total
    load_model(Checkpoint.open(folder), dtype="float32")


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"dtype": "int4"}, InputError, "'int4' is not one of float64, float32"),
        ({"dtype": "float32", "device": "tpu9"}, InputError, "'tpu9' is not a device"),
        ({"dtype": "float32", "device": "cuda:99"}, ResourceError, "shows . CUDA devices"),
        ({"dtype": "float32", "attention": "magic"}, InputError, "cannot be loaded with attention 'magic'"),
    ],
)
def test_what_cannot_be_loaded_is_said_before_loading(folder, settings, error, sentence):
    with pytest.raises(error, match=sentence):
        load_model(Checkpoint.open(folder), **settings)


def test_headers_without_tensors_are_read(tmp_path):
    save_file({}, tmp_path / "empty.safetensors")
    assert read_header(tmp_path / "empty.safetensors") == {}


@pytest.mark.parametrize("setting", [{"hidden_act": "magic"}, {"rope_scaling": {"rope_type": "magic"}}])
def test_a_config_that_names_what_no_model_has_is_refused(folder, setting):
    set_config(folder, **setting)
    with pytest.raises(InputError, match=r"'magic'; check its config.json"):
        load_model(Checkpoint.open(folder), dtype="float32")


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("tokenizer.json", "{", "is no tokenizer that can be read"),
        ("tokenizer_config.json", "{", "is not valid JSON"),
        ("tokenizer_config.json", "[]", "is not a JSON object"),
        ("tokenizer_config.json", '{"bos_token": 5}', "bos_token has to be text, not 5"),
    ],
)
def test_a_broken_tokenizer_is_named(folder, file, text, sentence):
    (folder / file).write_text(text)
    with pytest.raises(InputError, match=f"{file}.*{sentence}"):
        Encoder(Checkpoint.open(folder)).bos_id  # noqa: B018


def test_without_a_tokenizer_only_text_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    encoder = Encoder(Checkpoint.open(folder))
    assert (encoder.bos_id, encoder.vocab_size, encoder.decode([5, 6])) == (None, 272, "5 6")
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        encoder("text")
