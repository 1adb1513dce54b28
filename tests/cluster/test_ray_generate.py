"""Written answers on a real local cluster, with workers that die in the middle."""

import pytest

from prunebench.config.experiment import load_experiment
from prunebench.errors import ResourceError
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.progress import Silent
from prunebench.store.diff import diff
from prunebench.store.read import read_events, read_failures, read_generations
from written import QUESTIONS, calls_of, run_here, write_chat_model, write_experiment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

DEADLY = (QUESTIONS[0], f"{QUESTIONS[1]} [kill]", QUESTIONS[2])


def run_on(path, store, workers=2):
    from prunebench.cluster.executor import RayExecutor
    from prunebench.cluster.placement import Placement

    def executor(setups):
        placement = Placement(workers=workers, threads=1)
        return RayExecutor("prunebench.evaluation.worker:Worker", (setups, 1), placement)

    return run_benchmark(load_experiment(path), store, executor, Silent())


@pytest.fixture(scope="module")
def chat_model(tiny, tmp_path_factory):
    return write_chat_model(tiny("llama"), tmp_path_factory.mktemp("chat") / "tiny")


def test_workers_that_die_while_they_write_leave_the_store_of_this_process(ray_cluster, chat_model, tmp_path):
    (tmp_path / "calm").mkdir()
    calm = write_experiment(tmp_path / "calm", chat_model, DEADLY)
    assert run_here(calm, tmp_path / "calm" / "store").failures == 0
    (tmp_path / "fire").mkdir()
    fire = write_experiment(tmp_path / "fire", chat_model, DEADLY)
    (tmp_path / "fire" / "orders" / "kill").write_text("2")
    assert run_on(fire, tmp_path / "fire" / "store").failures == 0
    assert diff(tmp_path / "calm" / "store", tmp_path / "fire" / "store") == []
    assert read_events(tmp_path / "fire" / "store")["attempt"].max() >= 2
    assert read_failures(tmp_path / "fire" / "store").empty
    # Every text was written once, but for those that a dying worker had in hand.
    asked = sum(int(line.split()[1]) for line in calls_of(tmp_path / "fire"))
    assert asked > len(read_generations(tmp_path / "fire" / "store"))
    before = calls_of(tmp_path / "fire")
    assert run_on(fire, tmp_path / "fire" / "store", workers=1).failures == 0
    assert calls_of(tmp_path / "fire") == before


def test_what_a_worker_lacks_ends_the_run_with_its_own_sentence(ray_cluster, chat_model, tmp_path):
    path = write_experiment(tmp_path, chat_model, (f"{QUESTIONS[0]} [lack]",))
    with pytest.raises(ResourceError, match="no room for this engine"):
        run_on(path, tmp_path / "store", workers=1)
