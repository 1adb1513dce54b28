"""Efficiency as the papers time it: named protocols, each with the reading taken where its source is silent.

Prompts are random token ids, the same for every plan of a model. Every setting enters the key, and so do the
hardware, the threads and whether the step is compiled: a reduced protocol never shares a column with the
paper's, nor one machine with another.

- `layertrim` (section 4.4): one prompt of 2,048 tokens, then 128 greedy steps in a static cache; 2 warm-ups,
  10 timed, median. Read: the prefill computes the last position's logits alone, as generation does; a step's
  time is the mean over the 128.
- `lorp` (appendix A.1): one forward pass of 1 x 2,048 tokens with `use_cache=False`, and so all logits; 3
  warm-ups, 20 timed, mean and sd.
- `simdiff` (section 4.2.4): 16 prompts of 4 tokens, 2,048 tokens generated, 10 repeats, mean. Engine, dtype
  and warm-ups are not stated. Read: greedy steps of Transformers in its usual growing cache, 1 warm-up;
  tokens per second count those of all 16, the time of the prompt included.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from prunebench.core.fingerprint import Json, sha256_arrays, sha256_json
from prunebench.data.spec import nearest
from prunebench.data.tasks import Document, Protocol, Role, TaskData, Workload
from prunebench.errors import InputError

EFFICIENCY_VERSION = 1


PROTOCOLS: dict[str, Protocol] = {
    "layertrim": Protocol(
        steps=128,
        warmup=2,
        repeats=10,
        cache="static",
        last_logits=True,
        throughput="decode",
        statistic="median",
    ),
    "lorp": Protocol(
        steps=0,
        warmup=3,
        repeats=20,
        cache="none",
        last_logits=False,
        throughput="prefill",
        statistic="mean",
    ),
    "simdiff": Protocol(
        batch=16,
        prompt_tokens=4,
        steps=2048,
        warmup=1,
        repeats=10,
        cache="dynamic",
        last_logits=True,
        throughput="both",
        statistic="mean",
    ),
}


def protocol_named(name: str, sizes: Mapping[str, int]) -> Protocol:
    """A protocol with some of batch, prompt_tokens, steps, warmup and repeats replaced.

    Raises:
        InputError: unknown, or steps for a protocol that generates nothing.
    """
    if name not in PROTOCOLS:
        raise InputError(f"there is no efficiency protocol '{name}': {nearest(name, PROTOCOLS)}")
    protocol = PROTOCOLS[name]
    if protocol.cache == "none" and "steps" in sizes:
        raise InputError(f"protocol {name} times one forward pass and generates nothing: leave steps out")
    return replace(
        protocol,
        batch=sizes.get("batch", protocol.batch),
        prompt_tokens=sizes.get("prompt_tokens", protocol.prompt_tokens),
        steps=sizes.get("steps", protocol.steps),
        warmup=sizes.get("warmup", protocol.warmup),
        repeats=sizes.get("repeats", protocol.repeats),
    )


def efficiency_task(
    protocol_name: str,
    *,
    name: str,
    vocab_size: int,
    hardware: str,
    threads: int,
    sizes: Mapping[str, int],
    compiled: bool = False,
    role: Role = "test",
) -> TaskData:
    """A protocol as a task of one document, the workload.

    Args:
        protocol_name: a name of PROTOCOLS.
        name: the task's name in the store.
        vocab_size: token ids that the model has.
        hardware: the processor or GPU that it is to be timed on.
        threads: CPU threads of the worker.
        sizes: of batch, prompt_tokens, steps, warmup and repeats those that differ from the protocol's.
        compiled: whether what is repeated most goes through `torch.compile`.
        role: `test`, or `selection` where a search may look.

    Raises:
        InputError: as `protocol_named`.
    """
    protocol = protocol_named(protocol_name, sizes)
    ids = np.random.default_rng(0).integers(0, vocab_size, (protocol.batch, protocol.prompt_tokens))
    recipe: dict[str, Json] = {
        "protocol": protocol_name,
        **asdict(protocol),
        "compiled": compiled,
        "hardware": hardware,
        "threads": threads,
    }
    work = Workload(protocol=protocol, ids=ids, compiled=compiled, hardware=hardware, threads=threads)
    return TaskData(
        name=name,
        version=str(EFFICIENCY_VERSION),
        role=role,
        kind="efficiency",
        recipe=recipe,
        documents=(Document(doc_id=0, doc_hash=sha256_json([recipe, sha256_arrays(ids)]), payload=work),),
        texts=(),
    )
