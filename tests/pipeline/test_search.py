"""Whole searches on the tiny llama, in this process."""

import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from kill import unit_events
from prunebench import cli
from prunebench.config.experiment import load_experiment
from prunebench.config.search import load_search
from prunebench.core.unit import EvaluateItem, Failed, PlanItem, UnitDone
from prunebench.errors import IncompleteError, InputError
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.quest import prepare_search
from prunebench.store.diff import diff
from prunebench.store.read import read_samples, read_variants
from searches import LACO, SELECTION, TEST, Recording, run, trials


def scored(store):
    """What a study came to, whatever the order: its settings with their values."""
    columns = ["state", "method", "params_json", "value", "plan_id", "variant_key"]
    table = trials(store)[columns]
    return table.sort_values(["method", "params_json"]).reset_index(drop=True)


def test_a_finite_space_is_searched_like_brute_force(write_search, write_config, tmp_path):
    path = write_search()
    found = run(path, tmp_path / "store")
    assert (found.sampler, found.settings, found.asked, found.exhausted) == ("grid", 11, 11, True)
    every = [{"method": "lorp", "params": {"clusters": k}} for k in range(2, 7)]
    every += [
        {"method": "laco", "probe": "merge", "params": {"merge_layers": c, "interval": i}}
        for c in (2, 3, 5)
        for i in (1, 3)
    ]
    by_hand = write_config(
        methods=every,
        budgets=[2],
        tasks={"chosen_by": SELECTION},
        calibrations={"default": "builtin:pydoc:calibration?samples=4&length=64"},
    )
    run_benchmark(
        load_experiment(by_hand),
        tmp_path / "by_hand",
        lambda setups: LocalExecutor(lambda: Worker(setups, 1)),
        Silent(),
    )
    expected = pd.read_parquet(tmp_path / "by_hand" / "results")
    expected = expected[expected["budget_layers"] > 0].set_index("variant_key")
    table = trials(tmp_path / "store").set_index("variant_key")
    assert set(table.index) == set(expected.index)
    done = expected[expected["status"] == "ok"]
    assert dict(table["value"].dropna()) == dict(done["value"])
    assert found.best is not None
    assert found.best.value == done["value"].min()
    assert found.best.plan_id in set(done[done["value"] == found.best.value]["plan_id"])
    assert found.distinct == done["plan_id"].nunique() < len(done)
    assert found.infeasible == (expected["status"] == "unreachable").sum() > 0


def test_every_distinct_plan_is_evaluated_once_and_the_same_command_again_moves_no_work(
    write_search, tmp_path
):
    path, store = write_search(), tmp_path / "store"
    log = []
    first = run(path, store, log)
    seen = [
        (item.unit.task, item.unit.start, plan.plan_id)
        for item in log
        if isinstance(item, EvaluateItem)
        for plan in item.plans
    ]
    assert len(seen) == len(set(seen))
    again = []
    second = run(path, store, again)
    assert again == []
    assert second.best == first.best
    assert (second.asked, second.distinct, second.evaluated) == (first.asked, first.distinct, first.evaluated)
    assert first.evaluated <= first.distinct


def test_only_the_choice_and_the_rules_are_put_to_the_test(write_search, tmp_path):
    store = tmp_path / "store"
    found = run(write_search(), store)
    assert found.best is not None
    assert found.best.value is not None
    variants = read_variants(store).set_index("variant_key")
    results = pd.read_parquet(store / "results")
    assert set(results["status"]) <= {"ok", "unreachable"}
    tested = set(read_samples(store).query("task == 'exam'")["plan_id"])
    dense = variants[variants["method"] == "dense"]["plan_id"].iloc[0]
    assert tested == {dense, found.best.plan_id, *(rule.plan_id for rule in found.rules)}
    assert {rule.method for rule in found.rules} == {"lorp", "laco"}
    assert all(rule.value is not None and rule.value >= found.best.value for rule in found.rules)


def test_alpha_is_searched_exactly_where_that_takes_few_enough_trials(write_search, tmp_path):
    methods = [{"method": "simdiff_masd", "probe": "alpha", "space": {"alpha": {"low": 0.1}}}]
    found = run(write_search(methods=methods), tmp_path / "store")
    assert found.sampler == "grid"
    assert found.settings == found.asked == found.distinct
    assert all(0.1 <= json.loads(p)["alpha"] <= 1 for p in trials(tmp_path / "store")["params_json"])


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_the_same_seed_tries_the_same_settings(write_search, tmp_path, sampler):
    methods = [{"method": "simdiff_mssd", "probe": "alpha"}, {"method": "lorp"}]
    path = write_search(methods=methods, sampler=sampler, trials=12)
    found = [run(path, tmp_path / name) for name in ("a", "b")]
    assert found[0].best == found[1].best
    table = trials(tmp_path / "a")
    pd.testing.assert_frame_equal(table, trials(tmp_path / "b"))
    assert len(table) == 12
    # What the papers' rules came to is tried first: so the choice is never worse.
    assert list(table["plan_id"][:2]) == [rule.plan_id for rule in found[0].rules]
    values = [rule.value for rule in found[0].rules]
    assert found[0].best is not None
    assert found[0].best.value is not None
    assert all(value is not None and found[0].best.value <= value for value in values)


class Interrupted(Recording):
    """Stops the driver after some units, as Ctrl-C does."""

    def run(self, item):
        for message in super().run(item):
            yield message
            self._log.append(message)
            if sum(isinstance(entry, UnitDone) for entry in self._log) >= 3:
                raise KeyboardInterrupt


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def url(request, tmp_path):
    """None for the journal, else the URL of a database."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return None if request.param == "journal" else f"sqlite:///{tmp_path}/study.db"


def test_a_search_that_is_interrupted_again_and_again_loses_and_doubles_nothing(write_search, tmp_path, url):
    path, store = write_search(), tmp_path / "store"
    undisturbed = run(path, tmp_path / "undisturbed")
    path = write_search(storage=url)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            run(path, store, worker=Interrupted)
    found = run(path, store)
    assert found.best is not None
    assert undisturbed.best is not None
    assert found.best.plan_id == undisturbed.best.plan_id
    assert (found.asked, found.distinct, found.infeasible, found.failed) == (
        undisturbed.asked,
        undisturbed.distinct,
        undisturbed.infeasible,
        0,
    )
    pd.testing.assert_frame_equal(scored(store), scored(tmp_path / "undisturbed"))
    assert diff(tmp_path / "undisturbed", store) == []
    assert (store / "trials" / "tune.journal").exists() == (url is None)


@pytest.mark.timeout(600)
def test_a_search_whose_driver_is_killed_ends_as_if_it_had_not_been(write_search, tmp_path, url):
    path, store = write_search(storage=url), tmp_path / "store"
    words = ["search", str(path), "--store", str(store), "--quiet", "--json"]
    command = [sys.executable, "-c", "from prunebench.cli import main; main()", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    # The paper's rules and the dense model take the first six units: the eighth is a trial's.
    for count, _ in enumerate(unit_events(store, process), start=1):
        if count == 8:
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    undisturbed = run(write_search(), tmp_path / "undisturbed")
    found = json.loads(done.stdout)
    assert (found["asked"], found["failed"]) == (undisturbed.asked, 0)
    pd.testing.assert_frame_equal(scored(store), scored(tmp_path / "undisturbed"))
    assert diff(tmp_path / "undisturbed", store) == []


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_two_workers_of_a_cluster_find_what_this_process_finds(ray_cluster, write_search, tmp_path):
    path = write_search(parallel=4)
    executor = ["--executor", "ray", "--address", ray_cluster, "--set", "executor.workers=2"]
    words = ["search", str(path), "--store", str(tmp_path / "ray"), "--quiet", *executor]
    command = [sys.executable, "-c", "from prunebench.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run(path, tmp_path / "store")
    pd.testing.assert_frame_equal(trials(tmp_path / "ray"), trials(tmp_path / "store"))
    assert diff(tmp_path / "ray", tmp_path / "store") == []


class Broken(Recording):
    """Reports a unit that was asked of a trial as failed."""

    def run(self, item):
        for message in super().run(item):
            self._log.append(message)
            if isinstance(message, UnitDone) and sum(isinstance(seen, UnitDone) for seen in self._log) == 9:
                message = Failed(
                    keys=(message.unit.unit_id,), error="ValueError: as ordered", traceback="trace"
                )
            yield message


def test_a_trial_whose_evaluation_fails_is_told_so_and_the_next_run_tries_it_again(write_search, tmp_path):
    path, store = write_search(parallel=1), tmp_path / "store"
    found = run(path, store, worker=Broken)
    assert found.asked == 11
    assert found.failed == found.failures > 0
    failed = trials(store).query("state == 'failed'")
    assert set(failed["error"]) == {"ValueError: as ordered"}
    mended = run(path, store)
    assert (mended.asked, mended.failed, mended.failures) == (11, 0, 0)
    run(path, tmp_path / "undisturbed")
    pd.testing.assert_frame_equal(scored(store), scored(tmp_path / "undisturbed"))


class Unplanned(Recording):
    """Fails whatever asks a probe."""

    def run(self, item):
        if isinstance(item, PlanItem):
            yield Failed(keys=(item.key,), error="ValueError: no probe", traceback="trace")
        else:
            yield from super().run(item)


def test_methods_that_fail_are_failed_trials(write_search, tmp_path):
    found = run(write_search(), tmp_path / "store", worker=Unplanned)
    assert found.best is not None
    assert (found.failed, found.asked, found.best.method) == (6, 11, "lorp")
    assert {rule.method: rule.state for rule in found.rules} == {"lorp": "complete", "laco": "failed"}


class Unmeasured(Recording):
    """Fails everything."""

    def run(self, item):
        yield Failed(keys=(item.key,), error="ValueError: no statistics", traceback="trace")


def test_a_search_without_its_statistics_ends_before_it_asks(write_search, tmp_path):
    with pytest.raises(IncompleteError, match="no statistics"):
        run(write_search(), tmp_path / "store", worker=Unmeasured)


def test_settings_that_no_budget_allows_are_infeasible_and_so_may_be_the_rule(write_search, tmp_path):
    # At budget 4 of 6 layers the paper's K is 8.
    methods = [{"method": "layertrim", "space": {"score": ["energy"], "layer_choice": ["block_bi"]}}]
    found = run(write_search(methods=[*methods, {"method": "lorp"}], budget=4), tmp_path / "store")
    assert {rule.method: rule.state for rule in found.rules} == {
        "lorp": "complete",
        "layertrim": "infeasible",
    }
    assert "8 MLPs" in str(found.rules[0].error)


def test_a_search_without_any_feasible_setting_is_exit_code_3_with_the_nearest(
    write_search, tmp_path, capsys
):
    laco = {**LACO, "space": {"merge_layers": [5], "interval": [1, 2]}}
    path = write_search(methods=[laco])
    with pytest.raises(SystemExit) as done:
        cli.main(["search", str(path), "--quiet"])
    assert done.value.code == 3
    captured = capsys.readouterr()
    assert "infeasible 2" in captured.out
    assert "no setting meets the demands" in captured.err
    assert "nearest: 0 and 4" in captured.err


def test_an_objective_on_text_of_a_test_task_is_refused_before_anything_runs(write_search, tmp_path):
    for name, text in (("exam", TEST), ("other", {**TEST, "text": "builtin:pydoc:perplexity?samples=9"})):
        path = write_search(tasks={"chosen_by": {**TEST, "role": "selection"}, name: text})
        with pytest.raises(InputError, match="selection task 'chosen_by' shares text with the test task"):
            run(path, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_study_of_another_search_is_refused_and_more_trials_are_not_another(write_search, tmp_path):
    store = tmp_path / "store"
    run(write_search(trials=3, sampler="grid"), store)
    with pytest.raises(InputError, match="other budget"):
        run(write_search(trials=3, sampler="grid", budget=1), store)
    assert run(write_search(trials=5, sampler="grid"), store).asked == 5


def test_a_space_outside_the_methods_is_refused_before_anything_runs(write_search, tmp_path):
    methods = [{"method": "lorp", "space": {"clusters": [2, 7]}}]
    with pytest.raises(InputError, match="the space of clusters: 7 is not an integer from 2 to 6"):
        run(write_search(methods=methods), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_command_prints_the_choice_beside_the_rules(write_search, tmp_path, capsys):
    path = write_search(methods=[{"method": "lorp"}])
    for words, parts in (
        ([], ("rule (K by the RLS rule)  lorp: chosen_by.perplexity", "best (trial", "asked 5,")),
        (["--json"], ('"asked": 5', '"name": "chosen_by.perplexity"', '"rule": "K by the RLS rule"')),
    ):
        with pytest.raises(SystemExit) as done:
            cli.main(["search", str(path), "--quiet", *words])
        assert not done.value.code
        out = capsys.readouterr().out
        for part in parts:
            assert part in out


def leave(words, capsys):
    """Exit code and standard error of a command."""
    with pytest.raises(SystemExit) as done:
        cli.main(["search", *map(str, words), "--quiet"])
    return done.value.code or 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "code", "sentence"),
    [
        ({"methods": []}, 2, "search.methods"),
        ({"methods": [{"method": "lorp", "space": {"clusters": []}}]}, 2, "an empty list of values"),
        ({"methods": [{"method": "last_n"}]}, 2, "leaves one setting, and so nothing to search"),
        ({"methods": [{"method": "lorp", "space": {"clusters": 9}}]}, 2, "9 is not an integer from 2 to 6"),
        ({"methods": [{"method": "lorp", "params": {"clusters": 1}}, LACO]}, 2, "clusters 1"),
        ({"objective": {"task": "chosen_by", "metric": "acc"}}, 2, "no task measures chosen_by.acc"),
        ({"objective": {"task": "exam", "metric": "perplexity"}}, 2, "has the role test"),
        ({"storage": "sqlite:////nowhere/at/all.db"}, 4, "storage (sqlite) cannot be opened"),
        ({"storage": "postgresql://me@127.0.0.1:1/db"}, 4, "storage (postgresql) cannot be opened"),
        ({"storage": "db.sqlite"}, 2, "no URL of a kind of database"),
        ({"budget": 6}, 2, "cannot remove 6 of 6 layers"),
    ],
)
def test_bad_input_is_a_sentence_with_its_exit_code(write_search, tmp_path, capsys, changes, code, sentence):
    began = time.monotonic()
    left, error = leave([write_search(**changes)], capsys)
    assert left == code
    assert sentence in error
    assert "secret" not in error
    assert len(error.splitlines()) == 1
    assert time.monotonic() - began < 60


def test_the_journal_of_another_study_is_exit_code_2(write_search, tmp_path, capsys):
    path = write_search(methods=[{"method": "lorp", "space": {"clusters": [2, 3]}}])
    assert leave([path], capsys)[0] == 0
    folder = tmp_path / "store" / "trials"
    (folder / "tune.journal").rename(folder / "other.journal")
    code, error = leave([path, "--set", "search.name=other"], capsys)
    assert (code, "the journal of another study, 'tune'" in error) == (2, True)


def test_an_objective_on_a_data_sets_own_test_split_is_refused(write_search, tmp_path):
    for text in ("mirror:Salesforce/wikitext/wikitext-2-raw-v1:test#text", "hub:openai/gsm8k:test#question"):
        task = {"kind": "perplexity", "text": text, "role": "selection"}
        with pytest.raises(InputError, match=r"task 'chosen_by' reads the test split of \w+/\w+"):
            run(write_search(tasks={"chosen_by": task}), tmp_path / "store")
    recipe = {"kind": "perplexity", "recipe": "simdiff_wikitext2", "role": "selection"}
    with pytest.raises(InputError, match="reads the test split of Salesforce/wikitext"):
        run(write_search(tasks={"chosen_by": recipe}), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_calibrations_probes_and_traces_may_not_hold_text_of_a_test_task_either(write_search, tmp_path):
    words = "the layers of a model are not equally important, and some can be left out"
    text = "\n\n".join(f"{words}, as paragraph {number} says at some length" for number in range(40))
    (tmp_path / "exam.txt").write_text(text)
    traces = [{"prompt": "Say it.", "generation": text}]
    (tmp_path / "traces.jsonl").write_text("".join(json.dumps(one) + "\n" for one in traces))
    exam = {"kind": "perplexity", "text": "text:exam.txt?length=64&samples=4"}
    tasks = {"chosen_by": SELECTION, "exam": exam}
    for setting, kind in (
        ('calibrations.default="traces:traces.jsonl"', "calibration 'default'"),
        ('calibrations.default="text:exam.txt?length=64&samples=2"', "calibration 'default'"),
        ('probes.merge="text:exam.txt?length=32&samples=2"', "probe corpus 'merge'"),
    ):
        search = load_search(write_search(tasks=tasks), [setting])
        with pytest.raises(InputError, match=f"{kind} shares text with the test task exam"):
            prepare_search(search)
