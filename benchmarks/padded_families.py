"""Which families may be padded: tiny random models of each, greedy tokens in vLLM against Transformers.

Run by hand: OMP_NUM_THREADS=1 python benchmarks/padded_families.py [FAMILY ...]
Every plan goes through one padded engine in float32: blocks removed, merged, without a sublayer, trimmed.
What passes may stand in `models.padding.PADDED_FAMILIES`.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from prunebench.core.plan import LayerSpec, Mask, PruningPlan
from prunebench.evaluation.generation.base import Request, Sampling
from prunebench.evaluation.generation.hf import HfEngine
from prunebench.models.family import FAMILIES
from prunebench.models.padding import PADDED_FAMILIES
from prunebench.pipeline.provenance import provenance
from swap import Bench

L, I = 6, 96  # noqa: E741
SIZES: dict[str, Any] = {
    "vocab_size": 272,
    "hidden_size": 64,
    "intermediate_size": I,
    "num_hidden_layers": L,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SLIDE, FULL = "sliding_attention", "full_attention"
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {},
    "qwen3": {},
    "olmo2": {},
    "olmo3": {"sliding_window": 16},
    "phi3": {},
    "gemma2": {"sliding_window": 16},
    "gemma3_text": {"sliding_window": 16, "layer_types": [SLIDE, SLIDE, FULL, SLIDE, SLIDE, FULL]},
}
PLANS = {
    "dense": PruningPlan.dense(L),
    "depth": PruningPlan.without([1, 3, 4], L),
    "merged": PruningPlan(
        num_layers=L,
        layers=(
            LayerSpec(base=0, drop=("attention",)),
            LayerSpec(base=1, blend=((1, 1.0), (2, 0.5), (3, -0.5))),
            LayerSpec(base=4, drop=("mlp",)),
            LayerSpec(base=5),
        ),
    ),
    "trimmed": PruningPlan(
        num_layers=L, layers=tuple(LayerSpec(base=i, features=Mask.keep(range(0, I, 2), I)) for i in range(L))
    ),
}


def write_model(model_type: str, folder: Path) -> Path:
    """A random model of the family with a byte tokenizer."""
    config = AutoConfig.for_model(model_type, **SIZES, **SETTINGS.get(model_type, {}))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    special = ["<pad>", "<s>", "</s>"]
    alphabet = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    return folder


def requests() -> list[Request]:
    """Prompts of random tokens, longer than the sliding window."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(3, 259, (3, 40), generator=generator).tolist()
    sampling = Sampling(context=256, max_tokens=24)
    return [Request(prompt=tuple(row), sampling=sampling, seed=0) for row in rows]


def check(model_type: str) -> str:
    """What came of one family in one word or sentence."""
    with tempfile.TemporaryDirectory() as folder:
        # Transformers leaves Gemma-2's bent attention logits out of every implementation but this one.
        model = write_model(model_type, Path(folder) / model_type)
        bench = Bench.open(str(model), "float32", "cpu", attention="eager")
        hf = HfEngine(lambda: bench.dense, bench.codec)
        body = type(bench.dense.model.model)
        before = dict(vars(body)), body.__bases__
        different = []
        try:
            with bench.engine("padded") as engine:
                for name, plan in PLANS.items():
                    if dict(engine.generate(plan, requests())) != dict(hf.generate(plan, requests())):
                        different.append(name)
                    assert engine.padded is not None, f"{model_type} was not padded"
            for name in ("__init__", "__call__", "do_not_compile"):
                assert vars(body).get(name) is before[0].get(name), f"{name} of Transformers was changed"
            assert body.__bases__ == before[1]
        except Exception as error:  # noqa: BLE001 (a family that does not run here is a line of the table)
            return f"does not run: {type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return f"DIFFERENT: {', '.join(different)}" if different else "equal"


def main() -> None:
    """Check and print."""
    known = [model_type for family in FAMILIES for model_type in family.model_types]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", default=known, metavar="FAMILY")
    machine = provenance()
    print(f"{machine['processor']}; {json.dumps(machine['packages'])}")
    names = {model_type: family.name for family in FAMILIES for model_type in family.model_types}
    wrong = 0
    for model_type in parser.parse_args().families:
        found = check(model_type)
        wrong += found != "equal" and names[model_type] in PADDED_FAMILIES
        print(f"{names[model_type]:<10} {found}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
