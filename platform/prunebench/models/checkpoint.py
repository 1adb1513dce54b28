"""Checkpoint: a folder with config.json and safetensors, checked and counted from its headers.

Neither torch nor transformers is imported: whatever is wrong with a model is said in milliseconds.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prunebench.core.fingerprint import sha256_json
from prunebench.core.shape import ModelShape
from prunebench.core.stats import PROJECTIONS
from prunebench.errors import InputError, ResourceError
from prunebench.models import builtin, remote_code
from prunebench.models.cache import cache_folder, write_atomically
from prunebench.models.family import BLOCKS, EMBEDDINGS, FINAL_NORM, HEAD, Config, Family, family_of, shape_of
from prunebench.models.safetensors_file import TensorEntry, read_header

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZER_FILES: Final = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
DTYPES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def tensor_name(layer: int, inside: str) -> str:
    """Name in the checkpoint of the tensor that a block calls `inside`, such as "mlp.down_proj.weight"."""
    return f"{BLOCKS}.{layer}.{inside}"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A dense model on disk. Make one with `Checkpoint.open`."""

    path: Path
    name: str
    """As it was asked for: a path, a hub id or builtin:NAME."""
    config: Config = field(repr=False)
    family: Family = field(repr=False)
    shape: ModelShape
    tensors: Mapping[str, TensorEntry] = field(repr=False)
    classes: Mapping[str, str] = field(default_factory=dict)
    """Classes of its own code, by Transformers' names, where that code is to run; else empty."""

    @classmethod
    def open(cls, model: str | Path, *, trust_remote_code: bool = False) -> "Checkpoint":
        """Find, check and count a checkpoint: a folder, `builtin:NAME`, or a hub id.

        Args:
            model: where it is.
            trust_remote_code: let the code run that it brings; without any it is refused.

        Raises:
            InputError: not there, without weights, pickled, truncated, or unlike its config.
            UnsupportedError: a model that prunebench refuses by name.
            ResourceError: it has to be fetched and cannot be.
        """
        path = find_folder(str(model), code=trust_remote_code)
        config = read_json(path / "config.json")
        classes = remote_code.classes_of(path, config) if trust_remote_code else {}
        family = family_of(config)
        tensors = _read_tensors(path)
        extra, other = _count(path, config, family, tensors)
        shape = shape_of(config, block_extra_params=extra, other_params=other)
        return cls(
            path=path,
            name=str(model),
            config=config,
            family=family,
            shape=shape,
            tensors=tensors,
            classes=classes,
        )

    @property
    def code(self) -> tuple[Path, ...]:
        """The files of its own code where that code is to run, ascending; else none."""
        return remote_code.files_of(self.path) if self.classes else ()

    @property
    def trusted(self) -> bool:
        """Whether code that it brings runs."""
        return bool(self.classes)

    @property
    def dtype(self) -> str:
        """The dtype of the projections, as torch spells it."""
        return DTYPES[self.tensors[tensor_name(0, "self_attn.o_proj.weight")].dtype]

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding matrix: token ids go from 0 to one less."""
        return self.tensors[EMBEDDINGS].shape[0]

    @functools.cached_property
    def weights_id(self) -> str:
        """sha256 over the sorted (name, shape, dtype, sha256 of bytes) of all tensors, 64 hex digits.

        Code that runs decides numbers as weights do: its classes follow, and its files as (name, sha256 of
        bytes). Remembered in the cache under the path, size and modification time of every file.
        """
        files = sorted({*self.code, *(entry.file for entry in self.tensors.values())})
        stamps: list[Any] = [
            [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files
        ]
        # Of code also the names: a link may lead to it.
        stamps += [[file.name, file.stat().st_size] for file in self.code]
        stamps += [[name, named] for name, named in sorted(self.classes.items())]
        remembered = cache_folder("weights") / f"{sha256_json(stamps)}.txt"
        if remembered.exists() and re.fullmatch(r"[0-9a-f]{64}", known := remembered.read_text()):
            return known
        rows = [
            [name, list(entry.shape), entry.dtype, _sha256_bytes(entry)]
            for name, entry in sorted(self.tensors.items())
        ]
        rows += [[name, named] for name, named in sorted(self.classes.items())]
        rows += [[file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in self.code]
        weights_id = sha256_json(rows)
        write_atomically(remembered, weights_id)
        return weights_id

    @functools.cached_property
    def tokenizer_hash(self) -> str:
        """sha256 over name and sha256 of every tokenizer file that exists, 64 hex digits."""
        present = [self.path / name for name in TOKENIZER_FILES if (self.path / name).exists()]
        return sha256_json([[file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in present])


def check_out(out: Path) -> None:
    """Refuse a place for a new checkpoint where something is; nothing is written.

    Raises:
        InputError: a file, or a folder that is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"'{out}' exists and is not an empty folder: give another --out")


def find_folder(model: str, *, code: bool = False) -> Path:
    """The folder of a model, fetched where the name says so, with or without its code.

    Raises:
        InputError: no such folder or builtin model.
        ResourceError: it has to be fetched and cannot be.
    """
    if model.startswith("builtin:"):
        return builtin.ensure(model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.exists():
        raise InputError(f"model '{model}' is a file: give the folder that holds config.json and {WEIGHTS}")
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model) and not folder.parent.exists():
        return _from_hub(model, code=code)
    raise InputError(
        f"model '{model}' does not exist: give a folder, a hub id such as org/name, or {builtin.SMOLLM2}"
    )


def _from_hub(model: str, *, code: bool) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.safetensors", INDEX, "config.json", "generation_config.json", "*.jinja", *TOKENIZER_FILES]
    wanted += [remote_code.FILES] if code else []
    try:
        return Path(snapshot_download(model, allow_patterns=wanted))
    except (OSError, ValueError) as error:
        raise ResourceError(
            f"model '{model}' is no folder here and cannot be fetched from the hub "
            f"({type(error).__name__}); give a folder with the checkpoint"
        ) from error


def read_json(file: Path) -> Config:
    """A JSON object of a model folder.

    Raises:
        InputError: it is missing, cannot be read or is no JSON object.
    """
    if not file.exists():
        raise InputError(f"{file.parent} holds no {file.name}: it is not a model folder")
    try:
        data = json.loads(file.read_text())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{file} is not a JSON object")
    return data


def _read_tensors(path: Path) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    for file in _weight_files(path):
        if twice := tensors.keys() & (found := read_header(file)).keys():
            raise InputError(f"{path}: tensor '{min(twice)}' is in two files")
        tensors |= found
    # Old checkpoints carry this buffer, which models compute themselves.
    return {name: entry for name, entry in tensors.items() if not name.endswith(".rotary_emb.inv_freq")}


def _weight_files(path: Path) -> list[Path]:
    if (path / WEIGHTS).exists():
        return [path / WEIGHTS]
    if (path / INDEX).exists():
        listed = read_json(path / INDEX).get("weight_map", {})
        if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
            raise InputError(f"{path / INDEX}: weight_map has to name a file for each tensor")
        names = sorted(set(listed.values()))
        # Transformers unpickles a listed file of another ending, and a path may lead anywhere.
        if strange := [name for name in names if not re.fullmatch(r"[^/\\\0]+\.safetensors", name)]:
            raise InputError(
                f"{path / INDEX} names {strange[0]!r}: only safetensors files of its own folder are read"
            )
        if missing := [name for name in names if not (path / name).exists()]:
            raise InputError(
                f"{path / INDEX} names {missing[0]}, which is missing ({len(missing)} of {len(names)} files)"
            )
        if names:
            return [path / name for name in names]
    if pickled := sorted(file.name for pattern in PICKLES for file in path.glob(pattern)):
        raise InputError(
            f"{path} holds pickled weights only ({pickled[0]}), which can run code when they are read: "
            "convert them to safetensors first"
        )
    raise InputError(f"{path} holds no weights: neither {WEIGHTS} nor {INDEX}")


def _count(path: Path, config: Config, family: Family, tensors: Mapping[str, TensorEntry]) -> tuple[int, int]:
    """Check all tensors against the config; parameters of a block besides projections, and outside blocks."""
    shape = shape_of(config)
    inside = family.block_tensors(config)
    if EMBEDDINGS not in tensors:
        raise InputError(
            f"{path}: tensor '{EMBEDDINGS}' is missing: these are not the weights of a language model"
        )
    vocabulary = config.get("vocab_size") or tensors[EMBEDDINGS].shape[0]
    outside = {EMBEDDINGS: (vocabulary, shape.hidden_size), FINAL_NORM: (shape.hidden_size,)}
    if not family.is_tied(config):
        outside[HEAD] = (vocabulary, shape.hidden_size)
    expected = outside | {
        tensor_name(i, name): size for i in range(shape.num_layers) for name, size in inside.items()
    }
    for name, size in expected.items():
        if name not in tensors:
            raise InputError(
                f"{path}: tensor '{name}' is missing, which a {family.name} model with this config has"
            )
        if tensors[name].shape != size:
            raise InputError(
                f"{path}: tensor '{name}' has shape {tensors[name].shape}, but config.json says {size}"
            )
    if unknown := sorted(tensors.keys() - expected.keys() - {HEAD}):
        raise InputError(
            f"{path}: tensor '{unknown[0]}' has no place in a {family.name} model with this config"
        )
    projections = {f"{family.projection(role).module}.weight" for role in PROJECTIONS}
    extra = sum(tensors[tensor_name(0, name)].numel for name in inside if name not in projections)
    return extra, sum(tensors[name].numel for name in outside)


def _sha256_bytes(entry: TensorEntry) -> str:
    digest = hashlib.sha256()
    for chunk in entry.chunks():
        digest.update(chunk)
    return digest.hexdigest()
