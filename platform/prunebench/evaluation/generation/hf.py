"""Transformers' own generation under a view of the dense model, one prompt at a time."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation
from prunebench.errors import NonFiniteError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.codec import Codec
from prunebench.models.load import DenseModel
from prunebench.models.view import ModelView


class HfEngine:
    """Holds no model of its own: the dense one is its worker's."""

    def __init__(self, dense: Callable[[], DenseModel], codec: Codec) -> None:
        self._dense = dense
        self._codec = codec

    def generate(
        self, plan: PruningPlan, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Yield each request in order."""
        dense = self._dense()
        with ModelView(dense).applied(plan) as model, _own_settings_only(model):
            for place, request in enumerate(requests):
                try:
                    yield place, self._codec.written(request, self._continued(model, request))
                except NonFiniteError as error:
                    yield place, NonFiniteError(f"plan {plan.plan_id}: {error}")

    def close(self) -> None:
        """Nothing is held."""

    @torch.no_grad()
    def _continued(self, model: Any, request: Request) -> list[int]:  # noqa: ANN401
        prompt = torch.tensor([request.prompt], device=model.device)
        with torch.random.fork_rng():
            torch.manual_seed(request.seed)
            ids = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=_config(request, self._codec.end_ids),
                logits_processor=[_FiniteLogits()],
                stopping_criteria=[_StopStrings(self._codec, request)],
            )
        return ids[0, prompt.shape[1] :].tolist()


def _config(request: Request, end_ids: Sequence[int]) -> GenerationConfig:
    sampling = request.sampling
    draws: dict[str, Any] = {"do_sample": False}
    if sampling.temperature:
        draws = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,
        }
    ends = list(end_ids)
    return GenerationConfig(
        max_new_tokens=request.limit, eos_token_id=ends or None, pad_token_id=ends[0] if ends else 0, **draws
    )


@contextmanager
def _own_settings_only(model: Any) -> Generator[None, None, None]:  # noqa: ANN401
    """Hide what the checkpoint recommends: Transformers takes from there whatever a request leaves open."""
    recommended, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = recommended


class _FiniteLogits(LogitsProcessor):
    """Ends the writing where a logit is not finite."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not torch.isfinite(scores).all():
            raise NonFiniteError(f"a logit after {input_ids.shape[1]} tokens is not finite")
        return scores


class _StopStrings(StoppingCriteria):
    """Ends the writing at a stop string."""

    def __init__(self, codec: Codec, request: Request) -> None:
        self._codec, self._stop, self._start = codec, request.stop, len(request.prompt)

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:  # noqa: ANN401
        done = self._codec.stopped(input_ids[0, self._start :].tolist(), self._stop)
        return torch.full((1,), done, dtype=torch.bool, device=input_ids.device)
