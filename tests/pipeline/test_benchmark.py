import pandas as pd
import pytest

from prunebench.config.experiment import load_experiment
from prunebench.core.unit import Failed, PlanItem, UnitDone
from prunebench.errors import InputError
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.estimate import estimate
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.store.diff import diff
from prunebench.store.read import read_failures, read_samples, read_variants


class Recording:
    """A worker that remembers which items it was given."""

    def __init__(self, setups, log):
        self._worker = Worker(setups, 1)
        self._log = log

    def run(self, item):
        self._log.append(item)
        yield from self._worker.run(item)


def run(path, store, log=None, worker=Recording):
    log = [] if log is None else log
    return run_benchmark(
        load_experiment(path), store, lambda setups: LocalExecutor(lambda: worker(setups, log)), Silent()
    )


def test_every_variant_has_a_row_for_every_metric(finished):
    path, store = finished
    results = pd.read_parquet(store / "results")
    experiment = load_experiment(path)
    expected = 1 + len(experiment.methods) * len(experiment.budgets)
    assert len(read_variants(store)) == expected
    assert set(results["metric"]) == {"perplexity", "acc", "acc_norm"}
    assert len(results) == 3 * expected
    assert set(results["status"]) <= {"ok", "unreachable"}
    dense = results[results["method"] == "dense"]
    assert list(dense["budget_layers"]) == [0] * 3
    assert (dense["num_examples"] > 0).all()


def test_equal_plans_are_evaluated_once(finished):
    _, store = finished
    samples, variants = read_samples(store), read_variants(store)
    plans = set(variants["plan_id"].dropna())
    assert set(samples["plan_id"]) == plans
    assert not samples.duplicated(["unit_id", "doc_id", "metric"]).any()


def test_the_same_command_again_moves_no_work(finished):
    path, store = finished
    log = []
    run(path, store, log)
    assert log == []


def test_the_estimate_of_a_finished_run_has_nothing_to_do(finished):
    path, store = finished
    counts = estimate(load_experiment(path), store)
    assert counts.planned == counts.variants
    assert counts.units == counts.done > 0
    assert counts.to_do == 0


def test_the_estimate_of_a_new_run_starts_nothing(write_config, tmp_path):
    path = write_config()
    counts = estimate(load_experiment(path), tmp_path / "store")
    assert counts.done == 0
    assert counts.planned == 1
    assert counts.seconds is None
    assert not (tmp_path / "store").exists()


class Broken(Recording):
    """Reports the third unit of a run as failed."""

    def run(self, item):
        for message in super().run(item):
            self._log.append(message)
            if isinstance(message, UnitDone) and sum(isinstance(seen, UnitDone) for seen in self._log) == 3:
                message = Failed(
                    keys=(message.unit.unit_id,), error="ValueError: as ordered", traceback="trace"
                )
            yield message


def test_a_failed_unit_is_shown_and_tried_again_by_the_next_run(finished, tmp_path):
    path, undisturbed = finished
    store = tmp_path / "store"
    outcome = run(path, store, worker=Broken)
    assert outcome.failures == 1
    failures = read_failures(store)
    assert list(failures["error"]) == ["ValueError: as ordered"]
    results = pd.read_parquet(store / "results")
    assert "incomplete" in set(results["status"])
    log = []
    assert run(path, store, log).failures == 0
    assert sum(len(item.plans) for item in log) == 1
    assert read_failures(store)["superseded"].all()
    assert diff(undisturbed, store) == []


class Interrupted(Recording):
    """Stops the driver after some messages, as Ctrl-C does."""

    def run(self, item):
        for message in super().run(item):
            yield message
            self._log.append(message)
            if sum(isinstance(entry, UnitDone) for entry in self._log) >= 7:
                raise KeyboardInterrupt


def test_a_run_that_is_interrupted_again_and_again_ends_in_the_same_store(finished, tmp_path):
    path, undisturbed = finished
    store = tmp_path / "store"
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(path, store, [], worker=Interrupted)
    assert read_samples(store)["unit_id"].nunique() == 21
    run(path, store)
    assert diff(undisturbed, store) == []


def test_calibration_text_that_a_test_task_uses_is_refused_before_anything_runs(write_config, tmp_path):
    path = write_config(calibrations={"default": "builtin:pydoc:perplexity?samples=2&length=64"})
    with pytest.raises(InputError, match="calibration 'default'"):
        run(path, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_an_allowed_overlap_is_printed_on_the_row(write_config, tmp_path):
    path = write_config(
        calibrations={"default": "builtin:pydoc:perplexity?samples=2&length=64"},
        methods=[{"method": "shortgpt"}, {"method": "last_n"}],
        budgets=[1],
        allow_overlap=True,
    )
    run(path, tmp_path / "store")
    variants = read_variants(tmp_path / "store")
    warnings = dict(zip(variants["method"], variants["warnings_json"], strict=True))
    assert "calibration 'default'" in warnings["shortgpt"]
    assert warnings["last_n"] == "[]"


@pytest.mark.parametrize("budget", [0, -1, 6, "two", "ratio:0", "ratio:1.5"])
def test_budgets_that_cannot_be_are_refused_before_anything_runs(write_config, tmp_path, budget):
    with pytest.raises(InputError, match=r"budget|remove"):
        run(write_config(budgets=[budget]), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_request_that_is_written_twice_is_planned_once(write_config, tmp_path):
    path = write_config(
        methods=[{"method": "laco", "probe": "merge"}, {"method": "laco", "probe": "merge"}],
        budgets=[1, 1, "ratio:0.17"],
    )
    assert estimate(load_experiment(path), tmp_path / "store").variants == 2
    log = []
    run(path, tmp_path / "store", log)
    assert sum(isinstance(item, PlanItem) for item in log) == 1
    assert set(read_variants(tmp_path / "store")["budget"]) == {"0", "1"}


def test_a_budget_that_one_method_cannot_meet_names_the_method(write_config, tmp_path):
    path = write_config(methods=[{"method": "last_n"}, {"method": "lorp"}], budgets=[5])
    with pytest.raises(InputError, match=r"^lorp: cannot remove 5 of 6 layers: at most 4"):
        run(path, tmp_path / "store")
