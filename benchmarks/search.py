"""Searches on the real model: trials asked, distinct and evaluated, and the time against scoring each.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/search.py [NAMES of configs/search] [--store FOLDER] [--ray]

Every search runs on one store, in this process. The clock runs while its trials are planned and scored: not
while the model is loaded and measured, nor for the papers' rules before and the tests after. Then each trial
that was asked is scored by itself, whether or not another one came to the same plan, and without planning:
the ratio of the two times is what remembered plans and hopeless trials save. The best setting of each branch
has to be at least as good as the paper's rule on the selection text.

With --ray the first named search also runs on one and on two workers of a local Ray cluster, each on a store
of its own: both have to come to the same best value.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from prunebench.config.search import Search, load_search
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import EvaluateItem
from prunebench.evaluation.setup import ModelSetup
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import model_setups
from prunebench.pipeline.evaluate import Exam, exams
from prunebench.pipeline.executor import Executor, LocalExecutor
from prunebench.pipeline.found import Found
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.provenance import provenance
from prunebench.pipeline.quest import prepare_search
from prunebench.pipeline.search import Hunt
from prunebench.pipeline.session import open_session
from prunebench.search.study import open_study
from prunebench.store.artifacts import load_plan
from prunebench.store.trials import StudyRecord, read_studies

MakeExecutor: TypeAlias = Callable[[dict[str, ModelSetup]], Executor]
CONFIGS = Path(__file__).parents[1] / "configs" / "search"
NAMES = ("shortgpt", "streamline", "lorp", "wrp", "simdiff", "layertrim", "laco", "all", "front")


def study_of(store: Path, name: str) -> StudyRecord:
    """The study of that name."""
    return next(study for study in read_studies(store) if study.record["study"] == name)


def one_by_one(search: Search, store: Path, study: StudyRecord, worker: Worker) -> float:
    """Wall seconds of evaluating every asked trial that came to a plan, each by itself."""
    quest = prepare_search(search)
    items = [
        EvaluateItem(
            model=quest.subject.name,
            kind=exam.kind,
            unit=exam.unit,
            documents=exam.documents,
            plans=(load_plan(store, trial["plan_id"]),),
        )
        for trial in study.trials
        if trial["plan_id"] is not None
        for exam in exams(quest.viewed)
        if isinstance(exam, Exam)
    ]
    began = time.perf_counter()
    for item in items:
        list(worker.run(item))
    return time.perf_counter() - began


def loaded(search: Search) -> Worker:
    """A worker that has scored something already."""
    quest = prepare_search(search)
    worker = Worker(model_setups((quest.subject,)), 1)
    first = next(exam for exam in exams(quest.viewed) if isinstance(exam, Exam))
    dense = PruningPlan.dense(quest.subject.checkpoint.shape.num_layers)
    item = EvaluateItem(
        model=quest.subject.name, kind=first.kind, unit=first.unit, documents=first.documents, plans=(dense,)
    )
    list(worker.run(item))
    return worker


def timed(search: Search, store: Path, make_executor: MakeExecutor) -> tuple[Found, float]:
    """What the trials of a search came to, and their wall seconds."""
    quest, settings = prepare_search(search), search.search
    executor = make_executor(model_setups((quest.subject,)))
    with (
        open_session(store, executor, Silent(), {"kind": "search"}) as session,
        open_study(
            folder=store / "trials",
            name=settings.name,
            url=None,
            directions=search.directions,
            identity=quest.identity(),
            space=quest.space,
            trials=settings.trials,
            seed=settings.seed,
            pruning=None if settings.pruning is None else settings.pruning.p,
        ) as study,
    ):
        hunt = Hunt(quest, session, study)
        hunt.begin()
        began = time.perf_counter()
        while asked := study.ask(settings.parallel):
            hunt.score(asked)
        seconds = time.perf_counter() - began
        found = hunt.found(hunt.put_to_all_tasks())
        hunt.save(found)
    return found, seconds


def worse_than_rule(study: StudyRecord) -> list[str]:
    """Branches whose best trial is worse than the paper's rule on the first objective."""
    goal = study.record["objectives"][0]
    sign = 1 if goal["direction"] == "minimize" else -1
    found = []
    for rule in study.record["rules"]:
        own = [t for t in study.trials if t["method"] == rule["method"] and t["state"] == "complete"]
        best = min((sign * t["values"][goal["name"]] for t in own), default=math.inf)
        if own and rule["values"] and best > sign * rule["values"][goal["name"]]:
            found.append(f"{rule['method']}: {best} against {rule['values'][goal['name']]}")
    return found


def by_ray(config: Path, words: list[str], folder: Path) -> None:
    """One seeded grid on one and on two workers."""
    import ray

    from prunebench.cli.executors import executor_of

    seconds, values = {}, {}
    for workers in (1, 2):
        search = load_search(config, [*words, "executor.kind=ray", f"executor.workers={workers}"])
        found, seconds[workers] = timed(search, folder / f"ray{workers}", executor_of(search.executor))
        ray.shutdown()
        assert found.best is not None
        values[workers] = found.best.value
    print(
        f"ray: {seconds[1]:.1f} s with one worker, {seconds[2]:.1f} s with two, ratio "
        f"{seconds[2] / seconds[1]:.2f}; best {values[1]} and {values[2]}"
    )
    assert values[1] == values[2], "other best values"


def main() -> None:
    """Search, evaluate trial by trial, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--store", type=Path, default=None, help="a new folder by default")
    parser.add_argument("--model", default="builtin:smollm2-135m")
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    folder = options.store or Path(tempfile.mkdtemp(prefix="prunebench-search-"))
    machine = provenance()
    print(f"{machine['processor']}, {machine['cores']} cores; store {folder}", flush=True)
    words = [f"models.0.path={options.model}"]
    worker = loaded(load_search(CONFIGS / f"{options.names[0]}.yaml", words))
    print("search      asked distinct evaluated stopped  trials s  one by one s  ratio  best", flush=True)
    for name in options.names:
        search = load_search(CONFIGS / f"{name}.yaml", words)
        run = folder / "store"
        found, seconds = timed(search, run, lambda setups: LocalExecutor(lambda: worker))
        study = study_of(run, found.study)
        alone = one_by_one(search, run, study, worker)
        assert found.best is not None
        print(
            f"{name:<11}{found.asked:>6}{found.distinct:>9}{found.evaluated:>10}{found.stopped:>8}"
            f"{seconds:>10.1f}{alone:>14.1f}{seconds / alone:>7.2f}  {found.best.value:.4g}",
            flush=True,
        )
        assert not worse_than_rule(study), worse_than_rule(study)
    if options.ray:
        by_ray(CONFIGS / f"{options.names[0]}.yaml", words, folder)


if __name__ == "__main__":
    main()
