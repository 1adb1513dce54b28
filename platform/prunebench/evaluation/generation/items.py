"""One item of generation: its messages, text before score, each as it is finished.

Texts are graded beside the engine, which goes on writing. A fault of a grader fails its unit alone.
"""

import queue
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import torch

from prunebench.core.unit import Failed, Generated, GenerateItem, Generation, Message, Sample, Unit, UnitDone
from prunebench.data.tasks import Question
from prunebench.errors import InputError
from prunebench.evaluation.generation.base import Engine, Request, Sampling, request_seed
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.scoring import grader_named
from prunebench.evaluation.scoring.base import Grader
from prunebench.evaluation.scoring.diagnostics import diagnosed, is_unclosed
from prunebench.evaluation.versions import GRADERS, backend_version

LOWER = "lower the texts' length or the task's batch or items, or give each worker more memory"


@dataclass(kw_only=True)
class Writing:
    """Runs one item."""

    item: GenerateItem
    engine: Callable[[], Engine]
    """Not called where everything is written already."""
    codec: Codec
    allow_code_execution: bool
    threads: int
    """Graders at work at once."""
    _graded: "queue.SimpleQueue[Message]" = field(default_factory=queue.SimpleQueue)
    _grading: int = 0

    def messages(self) -> Generator[Message]:
        """`Generated`, then `UnitDone` or `Failed`, of each unit; an exception of the engine comes last.

        Raises:
            ResourceError: the machine lacks what a grader needs; nothing is written then.
        """
        for grader in {
            self._question(place).grader for place in range(len(self.item.units))
        } & GRADERS.keys():
            grader_named(grader, allow_code_execution=self.allow_code_execution)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="grader") as pool:
            open_places = []
            for place, unit in enumerate(self.item.units):
                known = self.item.known.get(unit.generation_id)
                if known is None:
                    open_places.append(place)
                else:
                    self._submit(pool, place, known, 0.0)
            try:
                for place, outcome, seconds in self._written(open_places) if open_places else ():
                    unit = self.item.units[place]
                    if isinstance(outcome, Exception):
                        yield failed(unit, outcome)
                        continue
                    yield Generated(unit=unit, generation=outcome, seconds=seconds)
                    self._submit(pool, place, outcome, seconds)
                    yield from self._finished()
            except Exception:
                yield from self._finished(wait=True)
                raise
            yield from self._finished(wait=True)

    def _written(self, places: list[int]) -> Iterator[tuple[int, Generation | Exception, float]]:
        """The place of each unit with its text or why it has none, and the seconds since the one before."""
        _same_version(self.item.units[places[0]])
        engine, codec = self.engine(), self.codec
        requests: dict[int, Request] = {}
        for place in places:
            try:
                requests[place] = _request(self.item.units[place], self._question(place), codec)
            except InputError as error:
                yield place, error, 0.0
        asked, started = list(requests), time.perf_counter()
        for which, outcome in engine.generate(self.item.plan, list(requests.values())) if asked else ():
            now = time.perf_counter()
            yield asked[which], outcome, now - started
            started = now

    def _question(self, place: int) -> Question:
        question = self.item.documents[place].payload
        assert isinstance(question, Question)
        return question

    def _submit(self, pool: ThreadPoolExecutor, place: int, generation: Generation, seconds: float) -> None:
        self._grading += 1
        unit, document = self.item.units[place], self.item.documents[place]
        # Here and not beside the others: a tokenizer is not to be used by two threads at once.
        tokens = self.codec.text_ids(generation.text)
        prompt = self.codec.decode(self.codec.encode(self._question(place)))
        in_thought = is_unclosed(prompt, in_thought=False)

        def samples() -> tuple[Sample, ...]:
            graded = self._grader(place).grade(self._question(place), generation)
            whole = diagnosed(graded, generation, tokens, in_thought=in_thought)
            detail = {**whole.detail, "generation_id": unit.generation_id}
            return replace(whole, detail=detail).samples(document)

        pool.submit(lambda: self._graded.put(_graded(unit, samples, seconds)))

    def _grader(self, place: int) -> Grader:
        return grader_named(self._question(place).grader, allow_code_execution=self.allow_code_execution)

    def _finished(self, *, wait: bool = False) -> Iterator[Message]:
        while self._grading and (wait or not self._graded.empty()):
            self._grading -= 1
            yield self._graded.get()


def _graded(unit: Unit, samples: Callable[[], tuple[Sample, ...]], seconds: float) -> Message:
    started = time.perf_counter()
    try:
        graded = samples()
    except Exception as error:  # noqa: BLE001 (a grader's fault is the row of this one document)
        return failed(unit, error)
    return UnitDone(unit=unit, samples=graded, seconds=seconds + time.perf_counter() - started)


def failed(unit: Unit, error: Exception) -> Failed:
    """The failure of one unit."""
    text = "".join(traceback.format_exception(error))
    return Failed(keys=(unit.unit_id,), error=one_line(error), traceback=text)


def one_line(error: BaseException) -> str:
    """The kind of an exception, the first line of what it says, and what helps where memory ran out."""
    text = str(error).strip().splitlines()
    line = f"{type(error).__name__}: {text[0] if text else 'no message'}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in line:
        return f"{line}: {LOWER}"
    return line


def _same_version(unit: Unit) -> None:
    """Refuse to write under the name of another version of the engine's library.

    Raises:
        InputError: the run was planned with another version than this worker has.
        ResourceError: this worker has none.
    """
    if (here := backend_version(unit.backend)) != unit.backend_version:
        raise InputError(
            f"the run was planned for {unit.backend} {unit.backend_version}, but this worker has {here}: "
            "install one version on every machine"
        )


def _request(unit: Unit, question: Question, codec: Codec) -> Request:
    """What an engine is asked for one unit.

    Raises:
        InputError: no prompt, or one that leaves no room for an answer.
    """
    sampling, prompt = Sampling.from_json(unit.generation), codec.encode(question)
    if not 0 < len(prompt) < sampling.context:
        raise InputError(
            f"the prompt of document {unit.start} has {len(prompt)} tokens, and the context of "
            f"{sampling.context} has to hold it and an answer: raise the engine's max_model_len"
        )
    return Request(prompt=prompt, sampling=sampling, seed=request_seed(unit), stop=question.stop)
