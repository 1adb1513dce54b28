"""The main job: calibrate once, plan every method at every budget, evaluate every distinct plan, derive."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prunebench.config.experiment import Experiment
from prunebench.core.fingerprint import Json
from prunebench.core.lease import Faults
from prunebench.evaluation.setup import ModelSetup
from prunebench.pipeline.evaluate import evaluate
from prunebench.pipeline.executor import Executor
from prunebench.pipeline.measure import measure
from prunebench.pipeline.planning import plan_all
from prunebench.pipeline.prepare import Subject, prepare
from prunebench.pipeline.progress import Progress
from prunebench.pipeline.session import open_session


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    run_id: str
    store: Path
    variants: int
    plans: int
    failures: int
    faults: Faults
    """What happened to the workers."""


def run_benchmark(
    experiment: Experiment,
    store: Path,
    make_executor: Callable[[dict[str, ModelSetup]], Executor],
    progress: Progress,
) -> Outcome:
    """Run or resume the experiment on a store; what the store holds is not done again.

    Raises:
        InputError: a wrong setting, found before anything starts.
        ResourceError: the executor lacks what was asked for.
    """
    subjects = prepare(experiment)
    executor = make_executor(model_setups(subjects))
    record: dict[str, Json] = {"experiment": experiment.model_dump(mode="json"), "kind": "benchmark"}
    with open_session(store, executor, progress, record) as session:
        seen = measure(session, subjects)
        planned = plan_all(session, subjects, seen)
        evaluate(session, subjects, planned)
        return Outcome(
            run_id=session.log.run_id,
            store=store,
            variants=sum(len(one.variants) for one in planned.values()),
            plans=sum(len(one.plans) for one in planned.values()),
            failures=len(session.failures),
            faults=executor.faults,
        )


def model_setups(subjects: tuple[Subject, ...]) -> dict[str, ModelSetup]:
    """How workers load each subject's model."""
    return {
        subject.name: ModelSetup(
            path=str(subject.checkpoint.path),
            weights_id=subject.checkpoint.weights_id,
            dtype=subject.entry.dtype,
            attention=subject.entry.attention,
            device=subject.entry.device,
            streamed=subject.entry.streamed,
            trust_remote_code=subject.entry.trust_remote_code,
            engines=subject.engines,
            allow_code_execution=subject.allow_code_execution,
        )
        for subject in subjects
    }
