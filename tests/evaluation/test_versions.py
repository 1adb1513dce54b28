from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.versions import SCORERS


def test_every_evaluator_has_a_version():
    assert set(SCORERS) == set(EVALUATORS)
