"""Fixtures of the whole suite: tiny random models of every family, the real model, a cache of its own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ("experiments", "postgres", "searches")

# Other work on the machine may slow an example down, and a failure has to come back on the next run.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Before torch is imported anywhere: equal bits need equal thread counts, and test processes share few cores.
os.environ["OMP_NUM_THREADS"] = "1"

TINY_SIZES: dict[str, Any] = {
    "vocab_size": 272,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SLIDE, FULL = "sliding_attention", "full_attention"
TINY: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama_biased": {
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "mistral": {"model_type": "mistral", "head_dim": 12, "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
    "qwen3": {
        "model_type": "qwen3",
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 8,
        "layer_types": [FULL, SLIDE, SLIDE, FULL, SLIDE, FULL],
        "tie_word_embeddings": True,
    },
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {"model_type": "olmo3", "sliding_window": 8},
    "phi3": {"model_type": "phi3"},
    "gemma2": {"model_type": "gemma2", "head_dim": 16, "sliding_window": 8},
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": [SLIDE, SLIDE, FULL, SLIDE, SLIDE, FULL],
    },
}


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what tests remember out of the user's cache, but convert the real model only once."""
    from prunebench.models.cache import cache_folder

    cache = tmp_path_factory.mktemp("cache")
    (cache / "models").symlink_to(cache_folder("models"))
    os.environ["PRUNEBENCH_CACHE"] = str(cache)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of the converted SmolLM2-135M-Instruct (bfloat16)."""
    from prunebench.models import builtin

    return builtin.ensure(builtin.SMOLLM2)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder of a tiny random float32 model by its name in TINY, with a byte tokenizer."""
    folders: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("tiny") / name
            _save_model(TINY[name], folders[name])
            _save_tokenizer(folders[name])
        return folders[name]

    return build


@pytest.fixture(scope="session")
def write_tiny() -> Callable[..., Path]:
    """Writes a tiny random model of other settings than those in TINY, with a byte tokenizer."""

    def write(folder: Path, **settings: Any) -> Path:
        _save_model(settings, folder)
        _save_tokenizer(folder)
        return folder

    return write


@pytest.fixture(scope="session")
def save_tiny() -> Callable[[dict[str, Any], Path], None]:
    """Saves a tiny random float32 model whose config differs from TINY_SIZES; it has no tokenizer."""
    return _save_model


@pytest.fixture(scope="session")
def load_tiny(tiny: Callable[[str], Path]) -> Callable[[str], Any]:
    """Gives the DenseModel (float32, sdpa) of a tiny model by its name in TINY, loaded once."""
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model

    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            loaded[name] = load_model(Checkpoint.open(tiny(name)), dtype="float32")
        return loaded[name]

    return load


@pytest.fixture(scope="session", params=TINY)
def family_name(request: pytest.FixtureRequest) -> str:
    """Every name in TINY in turn."""
    return request.param


@pytest.fixture
def family_path(family_name: str, tiny: Callable[[str], Path]) -> Path:
    """The folder of a tiny model of every family in turn."""
    return tiny(family_name)


@pytest.fixture
def family_dense(family_name: str, load_tiny: Callable[[str], Any]) -> Any:
    """The DenseModel of every family in turn."""
    return load_tiny(family_name)


def _save_model(settings: dict[str, Any], folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    # A bar on standard error would be taken for the words of whatever test builds the model first.
    logging.disable_progress_bar()
    sizes = TINY_SIZES | settings
    config = AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            # Norms and biases too: what is left at ones and zeros hides which layer it was taken from.
            parameter += 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>"]
    vocabulary = {token: i for i, token in enumerate(special + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
