"""What an experiment file says about the engines that write text, and about how they sample."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from prunebench.config.base import Strict
from prunebench.evaluation.setup import EngineSetup

Execution = Literal["padded", "deployed"]


class HfEngine(Strict):
    """Transformers' own generation, one prompt at a time: bits depend on the unit alone."""

    kind: Literal["hf"]
    max_model_len: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; what the model was made for by default."""

    def setup(self, base: Path) -> EngineSetup:
        """The engine as a worker wants it."""
        del base
        return EngineSetup(kind=self.kind, max_model_len=self.max_model_len)


class VllmEngine(Strict):
    """vLLM: one replica a worker, many prompts in flight."""

    kind: Literal["vllm"]
    execution: Execution = "padded"
    """padded: one engine of the dense shape takes every plan's tensors in turn. deployed: each plan is
    exported and gets an engine of its own, as do plans that the dense shape cannot hold."""
    max_model_len: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; what the model was made for by default."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that one replica is spread over."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of the memory of a GPU that weights and cache may take; not read on a CPU."""
    batch_invariant: bool = False
    """Rows that do not depend on what else is in flight; slower, and for recent GPUs only."""

    def agrees_with(self, gpus: float) -> bool:
        """Whether a worker of so many GPUs is what the engine takes: all of them, or its share of one."""
        return gpus == self.tensor_parallel or self.gpu_memory_utilization <= gpus < self.tensor_parallel == 1

    def setup(self, base: Path) -> EngineSetup:
        """The engine as a worker wants it."""
        del base
        return EngineSetup(**self.model_dump())


class FakeEngine(Strict):
    """Text that depends on plan, prompt and seed alone, without a model: for tests of everything else."""

    kind: Literal["fake"]
    execution: Execution = "padded"
    orders: Path | None = None
    """A folder in which it notes its calls, and finds what has to go wrong."""

    def setup(self, base: Path) -> EngineSetup:
        """The engine as a worker wants it."""
        orders = None if self.orders is None else str((base / self.orders).resolve())
        return EngineSetup(kind=self.kind, execution=self.execution, orders=orders)


EngineEntry = Annotated[HfEngine | VllmEngine | FakeEngine, Field(discriminator="kind")]


class Sampling(Strict):
    """How the next token is chosen, how many there may be, and how often each document is answered."""

    temperature: float = Field(0.6, gt=0)
    top_p: float = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(32_768, ge=1)
    """Most tokens of an answer; fewer where the context ends before."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """One answer to each document for each of them."""
    greedy: bool = False
    """Always the most probable token, once a document, in place of temperature, top_p and seeds."""

    @model_validator(mode="after")
    def is_one_or_the_other(self) -> "Sampling":
        """Refuse settings that greedy decoding does not read, and seeds that stand twice."""
        unread = sorted({"temperature", "top_p", "seeds"} & self.model_fields_set)
        if self.greedy and unread:
            raise ValueError(f"greedy decoding draws nothing: leave out {', '.join(unread)}")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds are different whole numbers from 0 on")
        return self

    @property
    def draws(self) -> tuple[int, ...]:
        """The seeds of a document's answers: 0 alone where nothing is drawn."""
        return (0,) if self.greedy else self.seeds


class Generative(Strict):
    """What every task has whose documents are answered in writing."""

    engine: str = "default"
    """Name of an entry of `engines`."""
    sampling: Sampling = Sampling()
