"""What an experiment file says about its tasks."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from prunebench.config.base import Strict
from prunebench.config.engines import Generative, Sampling
from prunebench.data.benchmarks import benchmark_named
from prunebench.data.protocols import protocol_named
from prunebench.data.recipes import recipe_named


class PerplexityTask(Strict):
    """Perplexity over windows of a text, or as a paper prints it; the whole recipe is in the key."""

    kind: Literal["perplexity"]
    text: str | None = None
    """A corpus SPEC; its options give the windows (length, samples, bos, join)."""
    recipe: str | None = None
    """A name of `data.recipes.RECIPES`, in place of a text."""
    windows: int | None = Field(None, ge=1)
    """With a recipe: only its first windows."""
    stride: int | None = Field(None, ge=1)
    """With a text: tokens from one window to the next; the length by default."""
    role: Literal["test", "selection"] = "test"

    @field_validator("recipe")
    @classmethod
    def recipe_is_known(cls, name: str | None) -> str | None:
        """Refuse unknown recipes."""
        if name is not None:
            recipe_named(name)
        return name

    @model_validator(mode="after")
    def is_text_or_recipe(self) -> "PerplexityTask":
        """Refuse neither, both, and settings of the other."""
        if (self.text is None) == (self.recipe is None):
            raise ValueError("a perplexity task takes either text (a SPEC) or recipe (a name), exactly one")
        if self.recipe is None and self.windows is not None:
            raise ValueError("windows goes with a recipe; write ?samples=N into the text's SPEC")
        if self.recipe is not None and self.stride is not None:
            raise ValueError("stride goes with a text; a recipe has its own")
        return self


class ChoiceTask(Strict):
    """Pick the true continuation of a passage among four."""

    kind: Literal["choice"]
    text: str
    """A corpus SPEC."""
    items: int = Field(32, ge=1)
    role: Literal["test", "selection"] = "test"


class ReasoningTask(Generative):
    """Questions that are answered in a chat and graded: mathematics, science, code."""

    kind: Literal["reasoning"]
    benchmark: str
    """A name of `data.benchmarks.BENCHMARKS`."""
    limit: int | None = Field(None, ge=1)
    """Only the first questions."""
    role: Literal["test", "selection"] = "test"

    @field_validator("benchmark")
    @classmethod
    def benchmark_is_known(cls, name: str) -> str:
        """Refuse unknown benchmarks."""
        return benchmark_named(name).name

    @property
    def runs_code(self) -> bool:
        """Whether grading executes what a model wrote."""
        return benchmark_named(self.benchmark).runs_code


class HarnessTask(Generative):
    """A task of lm-eval: its prompts, filters and metrics, on the dataset of the mirror."""

    kind: Literal["harness"]
    task: str
    """lm-eval's name of it."""
    shots: int | None = Field(None, ge=0)
    """Examples in front of each question; as many as lm-eval's definition says by default, mostly 0."""
    sampling: Sampling = Sampling(greedy=True, max_tokens=256)
    """Of a task that is answered in writing, as `engine`; lm-eval's own defaults."""
    limit: int | None = Field(None, ge=1)
    """Only the first documents."""
    role: Literal["test", "selection"] = "test"


class RepresentationTask(Strict):
    """How far states and attention are from the dense model's on held-out rows (LayerTrim, appendix D)."""

    kind: Literal["representation"]
    text: str
    """A corpus SPEC; of traces, the generation is measured."""
    positions: int = Field(256, ge=1)
    """Measured positions of a row."""
    tokens: int = Field(2048, ge=2)
    """Leading tokens of a row that are run; the paper takes 32,768 for attention."""
    seed: int = Field(0, ge=0)
    """Of the draw of positions."""
    role: Literal["test", "selection"] = "test"


class EfficiencyTask(Strict):
    """Latency, throughput and memory of the deployed shape by a paper's protocol.

    Sizes that are given replace the protocol's, and make another column.
    """

    kind: Literal["efficiency"]
    protocol: str
    """A name of `data.protocols.PROTOCOLS`."""
    batch: int | None = Field(None, ge=1)
    prompt_tokens: int | None = Field(None, ge=2)
    steps: int | None = Field(None, ge=1)
    warmup: int | None = Field(None, ge=0)
    repeats: int | None = Field(None, ge=1)
    compiled: bool = False
    """Whether the step that is repeated goes through torch.compile."""
    hardware: str | None = None
    """The processor or GPU of the workers, where it is not this machine's."""
    role: Literal["test", "selection"] = "test"

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that replace the protocol's."""
        names = ("batch", "prompt_tokens", "steps", "warmup", "repeats")
        return {name: size for name in names if (size := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def protocol_is_known(self) -> "EfficiencyTask":
        """Refuse unknown protocols, and sizes that a protocol has not."""
        protocol_named(self.protocol, self.sizes)
        return self


Task = Annotated[
    PerplexityTask | ChoiceTask | HarnessTask | ReasoningTask | RepresentationTask | EfficiencyTask,
    Field(discriminator="kind"),
]
