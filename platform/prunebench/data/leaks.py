"""The exam stays sealed: what a plan was chosen with is compared with every test task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prunebench.data.content import content_of, content_of_all
from prunebench.data.tasks import TaskData
from prunebench.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Text that a corpus and a test task share."""

    corpus: str
    task: str
    shared: int
    """Documents of the task that share text with the corpus."""
    total: int
    example: str
    """The beginning of the first of them."""

    @property
    def sentence(self) -> str:
        """The overlap as a person reads it."""
        return (
            f"{self.corpus} shares text with the test task {self.task}: "
            f"{self.shared} of its {self.total} documents, for example '{self.example}'"
        )


def find_overlaps(chosen_with: Mapping[str, Sequence[str]], tasks: Sequence[TaskData]) -> Iterator[Overlap]:
    """Every overlap between the texts a plan is chosen with and the tasks whose role is `test`."""
    known = {corpus: content_of_all(texts) for corpus, texts in chosen_with.items()}
    for task in tasks:
        if task.role != "test":
            continue
        contents = [content_of(text) for text in task.texts]
        for corpus, content in known.items():
            shared = [
                text for text, own in zip(task.texts, contents, strict=True) if not own.isdisjoint(content)
            ]
            if shared:
                yield Overlap(
                    corpus=corpus,
                    task=task.name,
                    shared=len(shared),
                    total=len(task.texts),
                    example=" ".join(shared[0].split())[:60],
                )


def check_leaks(
    chosen_with: Mapping[str, Sequence[str]], tasks: Sequence[TaskData], *, allow_overlap: bool = False
) -> tuple[Overlap, ...]:
    """Refuse to choose plans with text of a test task, or return the overlaps that were allowed.

    Args:
        chosen_with: documents by the name to print: calibrations, probe corpora, traces, selection tasks.
        tasks: the tasks of the run; those with the role `selection` are not compared.
        allow_overlap: for a paper's own protocol; the caller prints what is returned on the rows.

    Raises:
        InputError: an overlap that was not allowed.
    """
    overlaps = tuple(find_overlaps(chosen_with, tasks))
    if overlaps and not allow_overlap:
        more = f" (and {len(overlaps) - 1} more)" if len(overlaps) > 1 else ""
        raise InputError(
            f"{overlaps[0].sentence}{more}; choose other text, or set allow_overlap to mark the rows instead"
        )
    return overlaps
