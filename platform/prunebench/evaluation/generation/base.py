"""What an engine is, and what it is asked: plain values without torch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from prunebench.core.fingerprint import canonical_json, sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation, Unit
from prunebench.errors import NonFiniteError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen, and when writing ends; part of the key of what is written."""

    context: int
    """Most tokens of prompt and answer together."""
    max_tokens: int
    """Most tokens of the answer."""
    temperature: float = 0.0
    """0: always the most probable token."""
    top_p: float = 1.0
    batch_invariant: bool = False

    def to_json(self) -> str:
        """Canonical JSON, for `Unit.generation`; what is not used is left out."""
        settings = asdict(self)
        if self.temperature == 0:
            settings = {"greedy": True, "context": self.context, "max_tokens": self.max_tokens}
        settings.pop("batch_invariant", None)
        return canonical_json({**settings, **({"batch_invariant": True} if self.batch_invariant else {})})

    @classmethod
    def from_json(cls, text: str) -> "Sampling":
        """Inverse of `to_json`."""
        settings = json.loads(text)
        settings.pop("greedy", None)
        return cls(**settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt to be continued."""

    prompt: tuple[int, ...]
    """Token ids, at least one and fewer than the context."""
    sampling: Sampling
    seed: int
    """Of this request's own random numbers; not read where nothing is drawn."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer, none of which is part of it."""

    @property
    def limit(self) -> int:
        """Most tokens that may be written."""
        return min(self.sampling.max_tokens, self.sampling.context - len(self.prompt))


class Engine(Protocol):
    """Writes with one model under any plan. It holds what it needs from the first call on."""

    def generate(
        self, plan: PruningPlan, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Yield the place of each request, as it is finished, with what was written or why nothing was.

        Raises:
            ResourceError: the engine cannot be started here.
            Exception: the engine is not to be trusted any more: it has to be closed, and what it did not
                yield is lost.
        """

    def close(self) -> None:
        """Give back memory and files; the engine may be asked again and starts anew."""


def request_seed(unit: Unit) -> int:
    """The seed of a unit's random numbers, in [0, 2^32): of its task, document and seed, and of no plan.

    So variants of a model draw alike, and equal seeds of two documents do not.
    """
    return int(sha256_json([unit.task, unit.document_hash, unit.seed])[:8], 16)
