"""Reasoning traces of the dense model, which LayerTrim calibrates with (section 4.1, appendix B).

24 problems of AIME 2024 at temperature 0.6, top-p 0.95, seed 0 and at most 16K tokens. Which 24 of the 30 is
not stated; here the first. They are asked as the benchmark's test task asks them, in the model's own chat
template with reasoning on.

Each trace is a file of its own as soon as it is written, under a key of all that decides its text; the same
command makes only what is missing, and folds all into one file of JSON lines in the end.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from prunebench.config.base import explain
from prunebench.config.engines import EngineEntry, Generative, Sampling
from prunebench.core.fingerprint import Json, sha256_json
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation
from prunebench.data.questions import question_task
from prunebench.data.tasks import TaskData
from prunebench.errors import IncompleteError, InputError, PrunebenchError
from prunebench.evaluation.generation.base import Engine, Request
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.trace_file import TraceFile
from prunebench.pipeline.writing import Answering, answering, question_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be written, checked before anything is loaded."""

    checkpoint: Checkpoint
    model: ModelSetup
    task: TaskData
    answering: Answering
    threads: int
    out: Path

    def key(self, request: Request) -> str:
        """64 hex digits: all that decides the text of a trace."""
        how = self.answering
        return sha256_json(
            {
                "weights_id": self.checkpoint.weights_id,
                "tokenizer_hash": self.checkpoint.tokenizer_hash,
                "dtype": self.model.dtype,
                "attention": self.model.attention,
                "prompt": list(request.prompt),
                "sampling": how.sampling.to_json(),
                "seed": request.seed,
                "stop": list(request.stop),
                "engine": how.setup.kind,
                "engine_version": how.backend_version,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What there is now."""

    out: Path
    kept: int
    """Traces that were there before."""
    written: int
    limit_hits: int
    """Traces that the limit on tokens cut."""


def model_setup(checkpoint: Checkpoint, *, dtype: str, attention: str, device: str) -> ModelSetup:
    """How the model is loaded; dtype auto is float32 on a CPU, else the file's."""
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else checkpoint.dtype
    return ModelSetup(
        path=str(checkpoint.path),
        weights_id=checkpoint.weights_id,
        dtype=dtype,
        attention=attention,
        device=device,
    )


def engine_setup(kind: str, settings: Mapping[str, Any]) -> EngineSetup:
    """An engine from the command line; relative paths start at the working directory.

    Raises:
        InputError: unknown, or a setting that a file could not hold either.
    """
    try:
        entry: EngineEntry = TypeAdapter(EngineEntry).validate_python({"kind": kind, **settings})
    except ValidationError as error:
        raise explain(error, "traces") from error
    return entry.setup(Path.cwd())


def sampling_of(temperature: float, top_p: float, max_tokens: int, seed: int) -> Sampling:
    """How traces are sampled; a temperature of 0 is greedy.

    Raises:
        InputError: a number out of range.
    """
    draws: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seeds": (seed,)}
    try:
        return Sampling.model_validate(
            {"max_tokens": max_tokens, **(draws if temperature else {"greedy": True})}
        )
    except ValidationError as error:
        raise explain(error, "traces") from error


def prepare_traces(
    checkpoint: Checkpoint,
    model: ModelSetup,
    *,
    engine: EngineSetup,
    sampling: Sampling,
    benchmark: str,
    count: int,
    mirror: Path | None,
    threads: int,
    out: Path,
) -> Job:
    """Resolve everything.

    Raises:
        InputError: a benchmark that is unknown, not here or too short, a model without chat template, or a
            context that the model does not have.
        ResourceError: the engine's library is not installed.
    """
    task = question_task(benchmark, name="traces", limit=count, mirror=mirror)
    setting = Generative(engine="traces", sampling=sampling)
    how = answering(task, setting, {"traces": engine}, checkpoint)
    return Job(checkpoint=checkpoint, model=model, task=task, answering=how, threads=threads, out=out)


def write_traces(job: Job, progress: Progress) -> Traced:
    """Write what is missing, and then the file.

    Raises:
        InputError: the file holds other traces, or a prompt leaves no room for an answer.
        IncompleteError: the engine died, or some have logits that are not finite; the others are kept.
        ResourceError: the engine cannot be started here.
    """
    from prunebench.evaluation.generation.codec import Codec

    codec, file = Codec(job.checkpoint), TraceFile(job.out)
    wanted = _requests(job, codec)
    there = file.there(wanted)
    missing = {key: asked for key, asked in wanted.items() if key not in there}
    if missing:
        progress.start("traces", len(missing))
        for trace in _written(job, codec, missing):
            file.add(trace)
            there[trace["key"]] = trace
            progress.advance()
        progress.finish()
    if lacking := len(wanted) - len(there):
        raise IncompleteError(
            f"{lacking} of {len(wanted)} traces could not be written, because logits are not finite; the "
            f"others are in {file.parts}"
        )
    file.fold([there[key] for key in wanted])
    cut = sum(trace["finish_reason"] == "length" for trace in there.values())
    return Traced(out=file.path, kept=len(wanted) - len(missing), written=len(missing), limit_hits=cut)


def _requests(job: Job, codec: Any) -> dict[str, tuple[int, Request]]:  # noqa: ANN401 (its type needs torch)
    """Key -> the problem's number and what the engine is asked."""
    wanted = {}
    for document in job.task.documents:
        question, how = question_of(document), job.answering
        prompt = codec.encode(question)
        request = Request(prompt=prompt, sampling=how.sampling, seed=how.seeds[0], stop=question.stop)
        if request.limit < 1:
            raise InputError(
                f"problem {document.doc_id} has {len(prompt)} tokens, and the context of "
                f"{how.sampling.context} has to hold it and an answer: raise max_model_len"
            )
        wanted[job.key(request)] = document.doc_id, request
    return wanted


def _written(
    job: Job,
    codec: Any,  # noqa: ANN401 (its type needs torch)
    missing: Mapping[str, tuple[int, Request]],
) -> Iterator[dict[str, Any]]:
    """Each trace as it is finished; a prompt whose logits are not finite gives none."""
    engine, keys = _engine(job, codec), list(missing)
    plan = PruningPlan.dense(job.checkpoint.shape.num_layers)
    try:
        for place, outcome in engine.generate(plan, [request for _, request in missing.values()]):
            if isinstance(outcome, Generation):
                number, request = missing[keys[place]]
                yield _trace(job, keys[place], number, request, outcome, codec.decode(request.prompt))
    except PrunebenchError:
        raise
    except Exception as error:
        raise IncompleteError(
            f"the engine died ({type(error).__name__}: {error}); what it wrote before is kept, and the same "
            "command goes on"
        ) from error
    finally:
        engine.close()


def _engine(job: Job, codec: Any) -> Engine:  # noqa: ANN401 (its type needs torch)
    import torch

    from prunebench.evaluation.generation.menu import make_engine
    from prunebench.models.load import DenseModel, load_model

    torch.set_num_threads(job.threads)

    @functools.cache
    def dense(device: str) -> DenseModel:
        return load_model(job.checkpoint, dtype=job.model.dtype, attention=job.model.attention, device=device)

    return make_engine(job.answering.setup, job.model, job.checkpoint, codec, dense)


def _trace(
    job: Job, key: str, number: int, request: Request, generation: Generation, prompt: str
) -> dict[str, Json]:
    """What a `traces:` SPEC reads, and where it comes from."""
    how = job.answering
    return {
        "id": number,
        "problem": job.task.texts[number],
        "prompt": prompt,
        "prompt_ids": list(request.prompt),
        "generation": generation.text,
        "num_tokens": generation.num_tokens,
        "finish_reason": generation.finish_reason,
        "benchmark": job.task.recipe["benchmark"],
        "sampling": how.sampling.to_json(),
        "seed": request.seed,
        "engine": " ".join(filter(None, (how.setup.kind, how.backend_version))),
        "dtype": job.model.dtype,
        "weights_id": job.checkpoint.weights_id,
        "key": key,
    }
