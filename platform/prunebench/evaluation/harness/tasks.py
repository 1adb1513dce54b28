"""Tasks of lm-eval as the driver sees them: documents with hashes, texts for the leak guard, token counts."""

from collections.abc import Iterator
from pathlib import Path

from prunebench.core.fingerprint import Json, sha256_json
from prunebench.data.tasks import Document, HarnessSource, Question, Requests, Role, TaskData
from prunebench.errors import InputError
from prunebench.evaluation.harness.build import Asked, build, fewshot_seed
from prunebench.evaluation.harness.definitions import Definition, definition_of, library_version
from prunebench.evaluation.harness.tokens import HarnessEncoder
from prunebench.models.rows import num_tokens
from prunebench.models.tokenizer import Encoder

HARNESS_VERSION = 1
GRADER = "harness"


def read_splits(task: str, shots: int | None) -> tuple[tuple[str, str], ...]:
    """(ORG/NAME or ORG/NAME/CONFIG, split) of everything that the task reads with so many examples.

    Raises:
        InputError: no such task, or a number of examples that it does not take.
        ResourceError: lm-eval is not installed.
    """
    definition = definition_of(task)
    return tuple((definition.dataset, split) for split in definition.read_splits(definition.shots(shots)))


def harness_task(
    task: str,
    encoder: Encoder,
    *,
    name: str,
    role: Role = "test",
    shots: int | None = None,
    limit: int | None = None,
    mirror: Path | None,
) -> TaskData:
    """A task of lm-eval on the dataset of a mirror.

    Args:
        task: lm-eval's name of it.
        encoder: the model's tokenizer.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        shots: examples in front of each question; None for as many as the task says.
        limit: only the first documents; None for all.
        mirror: the folder with its dataset.

    Raises:
        InputError: as `build`, no mirror, a limit beyond the documents, or a request without tokens.
        ResourceError: lm-eval is not installed.
    """
    definition = definition_of(task)
    if mirror is None:
        raise InputError(
            f"task {name}: lm-eval's {task} reads {definition.dataset} from a mirror folder: set mirror in "
            "the config; prunebench prefetch CONFIG --out FOLDER writes one where there is network"
        )
    source = HarnessSource(task=task, shots=definition.shots(shots), mirror=str(mirror))
    built = build(source)
    if limit is not None and limit > len(built.documents):
        raise InputError(
            f"task {name}: limit is {limit}, but {definition.dataset} in {mirror} has "
            f"{len(built.documents)} documents in {definition.split}"
        )
    asked = built.documents[:limit]
    texts = tuple("\n\n".join(_strings(document.row)) for document in asked)
    generates = definition.output_type == "generate_until"
    return TaskData(
        name=name,
        version=f"{HARNESS_VERSION}-{built.task.VERSION}-{sha256_json(list(texts))[:8]}",
        role=role,
        kind="generate" if generates else "harness",
        recipe=_recipe(definition, source, len(asked)),
        documents=tuple(
            _question(number, document, source)
            if generates
            else _requests(number, document, source, HarnessEncoder(encoder), name)
            for number, document in enumerate(asked)
        ),
        texts=texts,
    )


def _recipe(definition: Definition, source: HarnessSource, count: int) -> dict[str, Json]:
    recipe: dict[str, Json] = {
        "harness_task": source.task,
        "dataset": f"{definition.dataset}:{definition.split}",
        "documents": count,
        "shots": source.shots,
        "fewshot_seed": fewshot_seed() if source.shots else None,
    }
    if definition.output_type != "generate_until":
        # What is written does not depend on lm-eval's version beyond its prompt, which the hash holds: there
        # the version is the grader's.
        recipe["harness"] = library_version()
    return recipe


def _requests(
    number: int, document: Asked, source: HarnessSource, encoder: HarnessEncoder, name: str
) -> Document:
    try:
        rows = [encoder.row(*request.args) for request in document.requests]
    except InputError as error:
        raise InputError(f"task {name}, document {number}: {error}") from error
    payload = Requests(source=source, tokens=num_tokens(rows))
    return Document(doc_id=number, doc_hash=document.doc_hash, payload=payload)


def _question(number: int, document: Asked, source: HarnessSource) -> Document:
    (request,) = document.requests
    prompt, own = request.args
    until = own["until"]
    reference: dict[str, Json] = {
        "task": source.task,
        "shots": source.shots,
        "mirror": source.mirror,
        "index": number,
        "doc_hash": document.doc_hash,
        "generation": {**_default_settings(), **{key: own[key] for key in own if key != "until"}},
    }
    return Document(
        doc_id=number,
        doc_hash=document.doc_hash,
        payload=Question(
            prompt=prompt,
            raw=True,
            grader=GRADER,
            reference=reference,
            stop=(until,) if isinstance(until, str) else tuple(until),
        ),
    )


def _default_settings() -> dict[str, Json]:
    """How much lm-eval lets a model write where a task does not say."""
    from lm_eval.defaults import DEFAULT_MAX_GEN_TOKS

    return {"max_gen_toks": DEFAULT_MAX_GEN_TOKS}


def _strings(value: object) -> Iterator[str]:
    """Every text in a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)
