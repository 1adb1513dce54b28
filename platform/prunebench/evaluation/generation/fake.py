"""An engine without a model: text from a hash of plan, prompt and seed, and faults on order.

What a prompt says decides what happens: `[loop]` is repeated up to the limit, `[limit]` fills it, `[raise]`
is an engine that dies in the middle, `[lack]` one that the machine has no room for, `[nan]` has no finite
logits, and `[kill]` ends the process as often as the file `kill` in the folder of orders says. Each call
appends a line to the file `calls` there.
"""

import hashlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from prunebench.core.fingerprint import sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation
from prunebench.errors import NonFiniteError, ResourceError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.codec import Codec, prompt_hash

WORDS: Final = ("the", "sum", "of", "both", "is", "then", "half", "as", "large", "again", "so", "we")
ANSWERS: Final = 5


class FakeEngine:
    """Writes a few words and a boxed answer from 0 to 4."""

    def __init__(self, codec: Codec, orders: str | None) -> None:
        self._codec = codec
        self._orders = None if orders is None else Path(orders)

    def generate(
        self, plan: PruningPlan, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Yield each request in order."""
        if self._orders is not None:
            with (self._orders / "calls").open("a") as calls:
                calls.write(f"{plan.plan_id} {len(requests)}\n")
        for place, request in enumerate(requests):
            prompt = self._codec.decode(request.prompt)
            if "[raise]" in prompt:
                raise RuntimeError("the engine died as ordered")
            if "[lack]" in prompt:
                raise ResourceError("the machine has no room for this engine, as ordered")
            if "[kill]" in prompt:
                self._die()
            if "[nan]" in prompt:
                yield place, NonFiniteError(f"logits of plan {plan.plan_id} are not finite")
                continue
            yield place, _written(plan, request, prompt)

    def close(self) -> None:
        """Nothing is held."""

    def _die(self) -> None:
        order = None if self._orders is None else self._orders / "kill"
        if order is not None and order.exists():
            left = int(order.read_text()) - 1
            order.write_text(str(left)) if left else order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _written(plan: PruningPlan, request: Request, prompt: str) -> Generation:
    seed = request.seed if request.sampling.temperature else 0
    digest = hashlib.sha256(sha256_json([plan.plan_id, list(request.prompt), seed]).encode()).digest()
    words = [WORDS[byte % len(WORDS)] for byte in digest]
    if "[loop]" in prompt:
        words = (words[:8] * request.limit)[: request.limit]
    elif "[limit]" in prompt:
        words = [WORDS[(digest[i % 32] + i) % len(WORDS)] for i in range(request.limit)]
    cut = len(words) >= request.limit
    text = " ".join(words[: request.limit])
    return Generation(
        prompt_hash=prompt_hash(request.prompt),
        text=text if cut else f"{text} \\boxed{{{digest[0] % ANSWERS}}}",
        num_prompt_tokens=len(request.prompt),
        num_tokens=min(len(words) + 1, request.limit),
        finish_reason="length" if cut else "stop",
    )
