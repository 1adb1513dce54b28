from prunebench.config.tasks import ReasoningTask
from prunebench.data.benchmarks import BENCHMARKS
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.versions import DIAGNOSTICS, GRADED, GRADERS, METRICS, SCORERS


def test_every_evaluator_has_a_version():
    assert set(SCORERS) == set(EVALUATORS)


def test_every_grader_has_its_metrics_and_every_benchmark_what_its_kind_of_task_promises():
    assert {benchmark.grader for benchmark in BENCHMARKS.values()} <= set(GRADERS)
    for name in BENCHMARKS:
        kind = ReasoningTask(kind="reasoning", benchmark=name).kind
        measured = {**GRADED[BENCHMARKS[name].grader], **DIAGNOSTICS}
        assert METRICS[kind].items() <= measured.items()
