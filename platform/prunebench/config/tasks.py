"""What an experiment file says about its tasks."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from prunebench.config.base import Strict
from prunebench.data.benchmarks import benchmark_named
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


class ReasoningTask(Strict):
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


Task = Annotated[PerplexityTask | ChoiceTask | ReasoningTask, Field(discriminator="kind")]
