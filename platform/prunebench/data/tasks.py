"""Tasks as fixed lists of documents: windows of text, items of multiple choice, questions, workloads.

A task's recipe holds every setting that may change its numbers and enters the key of each unit; its version
holds the number of this code and the beginning of the hash of its text. Ranges depend on the version alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from prunebench.core.fingerprint import Json, canonical_json, sha256_arrays, sha256_json
from prunebench.data.codec import Ids, TextCodec
from prunebench.data.corpus import DEFAULT_LENGTH, load_corpus
from prunebench.data.rows import TRACE_TOKENS
from prunebench.data.spec import CorpusSpec
from prunebench.errors import InputError

Role: TypeAlias = Literal["selection", "test"]
TaskKind: TypeAlias = Literal["perplexity", "choice", "harness", "generate", "representation", "efficiency"]
PERPLEXITY_VERSION = 1
_RANGE: dict[TaskKind, int] = {
    "perplexity": 4,
    "choice": 16,
    "harness": 16,
    "generate": 1,
    "representation": 1,
    "efficiency": 1,
}
"""Documents a unit, which of what is written has one seed too. Part of the tasks' versions: a change here
needs a new number there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Token ids of which those from `scored_from` (at least 1) on are predicted from all before them."""

    ids: Ids
    scored_from: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """One multiple-choice item: the continuation `gold` is the true one."""

    context: Ids
    continuations: tuple[Ids, ...]
    num_bytes: tuple[int, ...]
    """UTF-8 bytes of each continuation, the unit of length normalisation."""
    gold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSource:
    """What it takes to build the requests of an lm-eval task: the same everywhere, whoever builds them."""

    task: str
    """lm-eval's name of it."""
    shots: int
    mirror: str
    """The folder with its dataset."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """All requests that lm-eval makes of one document. Workers build them and compare the document's hash."""

    source: HarnessSource
    tokens: int
    """Tokens that they send through all blocks, counting once what they begin with alike."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Token ids, and the `positions` (ascending, shape (positions,)) at which states are compared."""

    ids: Ids
    positions: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a model is timed: every repeat is one prefill and then `steps` greedy steps."""

    batch: int = 1
    prompt_tokens: int = 2048
    steps: int
    """Tokens generated after the prompt; 0 times the prefill alone."""
    warmup: int
    repeats: int
    cache: Literal["static", "dynamic", "none"]
    """Where keys and values are kept: all room made beforehand, room made as it is needed, or nowhere."""
    last_logits: bool
    """Whether the prefill computes the last position's logits alone, as generation does."""
    throughput: Literal["prefill", "decode", "both"]
    """The time in which tokens per second are counted: the prompt's tokens, or the generated ones."""
    statistic: Literal["median", "mean"]
    """What is reported of the repeats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """What is timed, and where."""

    protocol: Protocol
    ids: Ids
    """The prompts, of shape (batch, prompt_tokens)."""
    compiled: bool
    """Whether what is repeated most, the step or else the prefill, goes through `torch.compile`."""
    hardware: str
    """The processor or GPU; on another one the unit fails."""
    threads: int
    """CPU threads of the worker."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """One open question, and what its grader has to know."""

    prompt: str
    """What the user says, or with `raw` the text that the model continues."""
    raw: bool
    """Whether the prompt goes to the model as it is, without the chat template."""
    grader: str
    """Name of the grader in `evaluation.scoring`."""
    reference: Json
    """The truth, as the grader reads it."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer, none of which is part of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """One document of a task: `doc_id` is its position, `doc_hash` 64 hex digits of what is asked."""

    doc_id: int
    doc_hash: str
    payload: Window | Choice | Requests | Question | Measured | Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskData:
    """A task, tokenized for one model."""

    name: str
    version: str
    role: Role
    kind: TaskKind
    recipe: Mapping[str, Json]
    documents: tuple[Document, ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    """The documents of text behind the task; `leaks` compares them with what plans are chosen with."""

    @property
    def recipe_json(self) -> str:
        """The recipe as canonical JSON, for the key of a unit."""
        return canonical_json(self.recipe)


def ranges(task: TaskData) -> tuple[tuple[int, int], ...]:
    """The (start, stop) of each unit's documents: consecutive, of a size fixed by the task's version."""
    count, size = len(task.documents), _RANGE[task.kind]
    return tuple((start, min(start + size, count)) for start in range(0, count, size))


def range_hash(task: TaskData, start: int, stop: int) -> str:
    """64 hex digits over the hashes of the documents of a range, for the key of a unit."""
    return sha256_json([document.doc_hash for document in task.documents[start:stop]])


def version_of(number: int, texts: tuple[str, ...]) -> str:
    """`1-0123abcd`: the number of the code and the beginning of the hash of the text."""
    return f"{number}-{sha256_json(list(texts))[:8]}"


def perplexity_task(
    spec: CorpusSpec,
    codec: TextCodec,
    *,
    name: str,
    role: Role = "test",
    stride: int | None = None,
    mirror: Path | None = None,
) -> TaskData:
    """Windows of a text. The SPEC's options give joiner, length, number of windows (unset: all) and BOS.

    Args:
        spec: the text. An incomplete window at its end is left out.
        codec: the model's tokenizer.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        stride: tokens between the starts of windows. Unset: windows do not overlap, and the first token of
            each (BOS, if there is one) is not scored. Set: a window scores only what no earlier one did.
        mirror: folder that `mirror:` SPECs read.

    Raises:
        InputError: as `load_corpus`, and a stride where rows are not cut from one text.
    """
    if stride is not None and (spec.join is None or spec.kind == "traces" or spec.sample == "random"):
        raise InputError(
            f"task {name}: a stride needs consecutive windows of one text, which '{spec.text}' has not"
        )
    corpus = load_corpus(spec, codec, mirror=mirror, stride=stride, limit=None)
    if short := [row for row in corpus.rows if row.size < 2]:
        raise InputError(
            f"task {name}: '{spec.text}' has a row of {short[0].size} token, which predicts nothing"
        )
    documents = tuple(
        window_of(number, row, _scored_from(number, row, spec.bos, stride))
        for number, row in enumerate(corpus.rows)
    )
    lengths = {"tokens": corpus.rows[0].size, "traces": TRACE_TOKENS}
    recipe: dict[str, Json] = {
        "join": None if spec.kind in lengths else spec.join,
        "length": spec.length or lengths.get(spec.kind, DEFAULT_LENGTH),
        "stride": stride,
        "bos": spec.bos,
        "windows": len(documents),
        "sample": spec.sample,
        "seed": spec.seed if spec.sample == "random" else 0,
    }
    return TaskData(
        name=name,
        version=version_of(PERPLEXITY_VERSION, corpus.texts),
        role=role,
        kind="perplexity",
        recipe=recipe,
        documents=documents,
        texts=corpus.texts,
    )


def window_of(number: int, row: Ids, scored_from: int) -> Document:
    """The document of one window."""
    return Document(
        doc_id=number,
        doc_hash=sha256_json([sha256_arrays(row), scored_from]),
        payload=Window(ids=row, scored_from=scored_from),
    )


def _scored_from(number: int, row: Ids, bos: bool, stride: int | None) -> int:
    seen = 0 if stride is None or number == 0 else row.size - bos - stride
    return max(1, bos + seen)
