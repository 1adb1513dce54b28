"""What an experiment file says about its tasks."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from prunebench.config.base import Strict
from prunebench.config.engines import Generative, Sampling
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
    """Questions that the model answers in writing."""

    kind: Literal["reasoning"]
    benchmark: str
    limit: int | None = Field(None, ge=1)
    """Only the first documents."""
    role: Literal["test", "selection"] = "test"


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


Task = Annotated[PerplexityTask | ChoiceTask | ReasoningTask | HarnessTask, Field(discriminator="kind")]
