"""Script: what exported checkpoints compute when vLLM serves them in a fresh process.

Standard input is JSON: `{"answer": FILE, "greedy_tokens": N, "exports": [{"folder", "ids"}, ...]}`. The file
gets `{"version", "exports": [{"tokens", "logprobs"}, ...]}`: the N greedy tokens after `ids`, and the
log-probability of each token of both but the first.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import vllm
from vllm import LLM, ModelRegistry, SamplingParams, TokensPrompt
from vllm.distributed import cleanup_dist_env_and_memory

from prunebench.models.vllm_plugin import ARCHITECTURES, register


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    register()
    for name in ARCHITECTURES:
        # As classes: of a name, vLLM asks a process of its own what the class can do, for 20 seconds.
        ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    # Each engine's end collects garbage several times, which takes long where so much is imported.
    gc.freeze()
    answers = [_answer(export, request["greedy_tokens"]) for export in request["exports"]]
    Path(request["answer"]).write_text(json.dumps({"version": vllm.__version__, "exports": answers}))


def _answer(export: dict[str, Any], steps: int) -> dict[str, Any]:
    ids = export["ids"]
    engine = LLM(
        model=export["folder"],
        dtype="float32",
        max_model_len=len(ids) + steps,
        max_num_seqs=1,
        enforce_eager=True,
        skip_tokenizer_init=True,
        seed=0,
    )
    settings = SamplingParams(
        temperature=0, max_tokens=steps, ignore_eos=True, logprobs=0, prompt_logprobs=0, detokenize=False
    )
    (done,) = engine.generate([TokensPrompt(prompt_token_ids=ids)], settings, use_tqdm=False)
    tokens = list(done.outputs[0].token_ids)
    given, chosen = done.prompt_logprobs, done.outputs[0].logprobs
    assert given is not None
    assert chosen is not None
    # Nothing comes before the first token.
    told = [each for each in (*given, *chosen) if each is not None]
    logprobs = [each[token].logprob for each, token in zip(told, [*ids[1:], *tokens], strict=True)]
    del engine
    gc.collect()
    cleanup_dist_env_and_memory()
    return {"tokens": tokens, "logprobs": logprobs}


if __name__ == "__main__":
    main()
