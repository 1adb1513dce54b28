"""Script: what exported checkpoints compute when plain Transformers loads them in a fresh process.

Nothing of prunebench is imported, so an export that needs it cannot pass. Standard input is JSON:
`{"threads": N, "exports": [{"folder", "dtype", "attention", "own_code", "ids", "logits"}, ...]}`; the logits
of each export are written to the file `logits` (numpy). `own_code` says whether the checkpoint brings a
modelling file, which then is trusted: prunebench has just written it.
"""

import json
import sys
from typing import Any, Final

import numpy as np
import torch

CACHED_STEPS: Final = 4


@torch.no_grad()
def probe_logits(model: Any, ids: list[int]) -> np.ndarray:  # noqa: ANN401
    """Float32 logits of `ids` without a cache, then of the last tokens again, one by one, with the cache."""
    row = torch.tensor([ids])
    logits = [model(input_ids=row, use_cache=False).logits]
    split = len(ids) - CACHED_STEPS
    step = model(input_ids=row[:, :split], use_cache=True)
    for position in range(split, len(ids)):
        step = model(
            input_ids=row[:, position : position + 1], past_key_values=step.past_key_values, use_cache=True
        )
        logits.append(step.logits)
    return torch.cat(logits, dim=1)[0].float().numpy()


def main() -> None:
    """Answer the request on standard input."""
    from transformers import AutoModelForCausalLM

    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    for export in request["exports"]:
        model = AutoModelForCausalLM.from_pretrained(
            export["folder"],
            dtype=getattr(torch, export["dtype"]),
            attn_implementation=export["attention"],
            trust_remote_code=export["own_code"],
        )
        np.save(export["logits"], probe_logits(model.eval(), export["ids"]))


if __name__ == "__main__":
    main()
