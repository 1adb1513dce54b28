"""How a generative task is answered: engine, sampling and template, resolved and refused before any work."""

from collections.abc import Mapping
from dataclasses import dataclass

from prunebench.config.engines import Generative
from prunebench.data.tasks import Document, Question, TaskData
from prunebench.errors import InputError
from prunebench.evaluation.generation.base import Sampling
from prunebench.evaluation.generation.template import template_hash
from prunebench.evaluation.setup import EngineSetup
from prunebench.evaluation.versions import backend_version
from prunebench.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What decides the text of a task's answers, besides the plan, the questions and the seed."""

    engine: str
    """Its name."""
    setup: EngineSetup
    sampling: Sampling
    seeds: tuple[int, ...]
    template_hash: str
    """Of the questions that are put in chat; empty where there are none."""
    backend_version: str


def answering(
    task: TaskData, setting: Generative, engines: Mapping[str, EngineSetup], checkpoint: Checkpoint
) -> Answering:
    """Resolve a generative task for one model.

    Raises:
        InputError: no such engine, no chat template for questions in chat, or a context that the model does
            not have.
        ResourceError: the engine's library is not installed.
    """
    if setting.engine not in engines:
        raise InputError(
            f"task {task.name} is answered in writing: it needs an entry '{setting.engine}' in engines"
        )
    engine = engines[setting.engine]
    in_chat = any(not question_of(document).raw for document in task.documents)
    return Answering(
        engine=setting.engine,
        setup=engine,
        sampling=_sampling(setting, engine, checkpoint),
        seeds=setting.sampling.draws,
        template_hash=template_hash(checkpoint) if in_chat else "",
        backend_version=backend_version(engine.kind),
    )


def question_of(document: Document) -> Question:
    """The question that a document of a generative task is."""
    assert isinstance(document.payload, Question)
    return document.payload


def _sampling(setting: Generative, engine: EngineSetup, checkpoint: Checkpoint) -> Sampling:
    made_for = checkpoint.config.get("max_position_embeddings")
    context = engine.max_model_len or made_for
    if context is None:
        raise InputError(
            f"config.json of {checkpoint.name} does not say max_position_embeddings: set max_model_len of "
            f"the engine '{setting.engine}'"
        )
    if made_for is not None and context > made_for:
        raise InputError(
            f"engine '{setting.engine}': max_model_len {context} is more than the {made_for} positions that "
            f"{checkpoint.name} was made for"
        )
    asked = setting.sampling
    drawn = {} if asked.greedy else {"temperature": asked.temperature, "top_p": asked.top_p}
    return Sampling(
        context=context, max_tokens=asked.max_tokens, batch_invariant=engine.batch_invariant, **drawn
    )
