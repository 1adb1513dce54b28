import json
import math
import socket
import time
from typing import Any

import optuna
import pytest

from prunebench.config.search import SearchedMethod
from prunebench.errors import InputError, ResourceError
from prunebench.search import storage
from prunebench.search.samplers import sampler_for
from prunebench.search.spaces import space_of
from prunebench.search.study import open_study
from search_spaces import SHAPE

LORP = space_of([SearchedMethod(method="lorp")], SHAPE, [3])
ALPHA = space_of([SearchedMethod(method="simdiff_mssd"), SearchedMethod(method="lorp")], SHAPE, [3])


def opened(folder, space=LORP, trials=10, seed=0, **changes):
    asked: dict[str, Any] = {
        "name": "study",
        "url": None,
        "directions": ["minimize"],
        "identity": {"about": "this"},
    }
    return open_study(folder=folder, space=space, trials=trials, seed=seed, **{**asked, **changes})


def value_of(point):
    return float(sum(value for value in point.values() if not isinstance(value, str)))


def ask_all(study, parallel=1, stop_after=None):
    points = []
    while asked := study.ask(parallel):
        for one in asked:
            study.resolve(one.number, f"plan-{value_of(one.point)}", "key", evaluated=True)
            study.tell(one.number, [value_of(one.point)], {})
            points.append(one.point)
            if len(points) == stop_after:
                return points
    return points


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe", "nsga2"])
def test_a_finite_space_ends_the_study_when_it_is_exhausted(tmp_path, sampler):
    with opened(tmp_path, trials=400) as study:
        study.begin(sampler, LORP)
        points = ask_all(study)
        assert {point["lorp.clusters"] for point in points} == {2, 3, 4, 5, 6}
        assert study.exhausted
        (best,) = study.front()
        assert best.values == (2,)
        if sampler == "grid":
            assert len(points) == 5


def test_a_study_asks_no_more_than_its_trials_and_goes_on_when_there_are_more(tmp_path):
    with opened(tmp_path, trials=2) as study:
        study.begin("grid", LORP)
        assert len(ask_all(study, parallel=4)) == 2
        assert not study.exhausted
    with opened(tmp_path, trials=4) as study:
        study.begin("grid", LORP)
        assert len(ask_all(study, parallel=4)) == 2
        assert len({trial.point["lorp.clusters"] for trial in study.tried()}) == 4


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe", "nsga2"])
def test_the_same_seed_asks_the_same_sequence(tmp_path, sampler):
    space = LORP if sampler == "grid" else ALPHA
    sequences = []
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / folder).mkdir()
        with opened(tmp_path / folder, space, trials=25, seed=seed) as study:
            study.begin(sampler, space)
            sequences.append(ask_all(study))
    assert sequences[0] == sequences[1]
    assert sequences[0] != sequences[2]


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def url(request, tmp_path):
    """None for the journal, else the URL of a database."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return None if request.param == "journal" else f"sqlite:///{tmp_path}/study.db"


def test_what_was_left_running_or_failed_is_asked_again_and_counts_once(tmp_path, url):
    with opened(tmp_path, url=url) as study:
        study.begin("grid", LORP)
        lost, failed, told = study.ask(3)
        study.resolve(lost.number, "plan-a", "key", evaluated=True)
        study.fail(failed.number, "as ordered")
        study.tell(told.number, [value_of(told.point)], {})
        assert [trial.state for trial in study.tried()] == ["open", "failed", "complete"]
    with opened(tmp_path, url=url) as study:
        study.begin("grid", LORP)
        again = study.ask(2)
        assert [one.point for one in again] == [lost.point, failed.point]
        for one in again:
            study.tell(one.number, [value_of(one.point)], {})
        ask_all(study)
        tried = study.tried()
        assert len(tried) == 5
        assert {trial.point["lorp.clusters"] for trial in tried} == {2, 3, 4, 5, 6}
        assert {trial.state for trial in tried} == {"complete"}
        assert study.evaluated() == 3


def test_a_kill_between_queueing_again_and_ending_the_old_trial_doubles_nothing(tmp_path):
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        (lost,) = study.ask(1)
    journal = tmp_path / "study.journal"
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
    lines = journal.read_bytes().splitlines(keepends=True)
    # The last line ends the old trial: without it the journal is as a kill just before it leaves it.
    assert json.loads(lines[-1])["state"] == optuna.trial.TrialState.FAIL
    journal.write_bytes(b"".join(lines[:-1]))
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        assert [one.point for one in study.ask(1)] == [lost.point]
        assert len(study.tried()) == 1


def test_a_trial_killed_before_anything_was_drawn_is_no_setting(tmp_path):
    with opened(tmp_path, ALPHA) as study:
        study.begin("random", ALPHA)
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    )
    optuna.load_study(study_name="study", storage=storage).ask()
    with opened(tmp_path, ALPHA, trials=3) as study:
        study.begin("random", ALPHA)
        assert len(ask_all(study)) == 3
        assert len(study.tried()) == 3


def test_settings_that_cannot_be_are_constraint_violations(tmp_path):
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        for one in study.ask(5):
            study.reject(one.number, "too few layers")
        assert study.front() == []
        assert study.importances() == [{}]
        assert {(t.state, t.error) for t in study.tried()} == {("infeasible", "too few layers")}
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        assert study.ask(1) == []


def test_a_value_that_is_not_a_number_is_a_failure(tmp_path):
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        for one in study.ask(2):
            study.tell(one.number, [math.nan if one.number == 0 else math.inf], {})
        assert [trial.state for trial in study.tried()] == ["failed", "complete"]


def test_a_torn_last_line_of_the_journal_is_mended(tmp_path):
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        study.ask(1)
    with (tmp_path / "study.journal").open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    with opened(tmp_path) as study:
        study.begin("grid", LORP)
        assert len(ask_all(study)) == 5


def test_another_search_under_the_same_name_is_refused(tmp_path):
    with opened(tmp_path):
        pass
    with (
        pytest.raises(InputError, match=r"other about.*search\.name"),
        opened(tmp_path, identity={"about": "x"}),
    ):
        pass
    with opened(tmp_path, name="second", identity={"about": "x"}):
        pass


def test_the_journal_of_another_study_is_refused(tmp_path):
    with opened(tmp_path, name="first"):
        pass
    (tmp_path / "first.journal").rename(tmp_path / "study.journal")
    with pytest.raises(InputError, match=r"the journal of another study, 'first'"), opened(tmp_path):
        pass


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "study.journal").write_text("something\nelse\n")
    with pytest.raises(InputError, match=r"study\.journal is no journal"), opened(tmp_path):
        pass


def test_two_drivers_of_one_study_are_refused(tmp_path):
    with (
        opened(tmp_path),
        pytest.raises(ResourceError, match="another process runs the search 'study'"),
        opened(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("sqlite:////nowhere/at/all/study.db", ResourceError),
        ("postgresql://me:secret@localhost:1/db", ResourceError),
        ("mysql://me:secret@localhost/db", ResourceError),
        ("not a url", InputError),
        ("nodb://me:secret@host/db", InputError),
    ],
)
def test_a_storage_that_cannot_be_opened_is_a_sentence_without_its_password(tmp_path, url, error):
    with pytest.raises(error, match=r"storage") as caught, opened(tmp_path, url=url):
        pass
    assert "secret" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up_within_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "CONNECT_S", 2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/db"
        began = time.monotonic()
        with pytest.raises(ResourceError, match="cannot be opened"), opened(tmp_path, url=url):
            pass
        assert time.monotonic() - began < 30


def test_a_database_that_goes_away_is_a_sentence_and_the_study_goes_on_when_it_is_back(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"

    def search():
        with opened(tmp_path, url=url) as study:
            study.begin("grid", LORP)
            study.ask(1)
            (tmp_path / "study.db").rename(tmp_path / "away.db")
            (tmp_path / "study.db").write_bytes(b"")
            study.ask(1)

    with pytest.raises(ResourceError, match=r"storage \(sqlite\) failed"):
        search()
    (tmp_path / "away.db").rename(tmp_path / "study.db")
    with opened(tmp_path, url=url) as study:
        study.begin("grid", LORP)
        assert len(ask_all(study)) == 5


def test_auto_takes_every_setting_where_that_is_few_and_else_a_sampler_for_the_objectives():
    assert sampler_for("auto", LORP, 5, 1) == "grid"
    assert sampler_for("auto", LORP, 4, 1) == "tpe"
    assert sampler_for("auto", LORP, 4, 2) == "nsga2"
    assert sampler_for("auto", ALPHA, 1000, 1) == "tpe"
    assert sampler_for("random", LORP, 100, 1) == "random"
    with pytest.raises(InputError, match=r"list the values of simdiff_mssd\.alpha"):
        sampler_for("grid", ALPHA, 10, 1)


def test_of_several_objectives_the_front_is_what_nothing_beats_and_bounds_are_kept(tmp_path):
    with opened(tmp_path, directions=["minimize", "maximize"]) as study:
        study.begin("grid", LORP)
        outcomes = {2: (1, 1), 3: (2, 2), 4: (2, 1), 5: (2, 2), 6: (0, 5)}
        for one in study.ask(5):
            k = int(str(one.point["lorp.clusters"]))
            study.resolve(one.number, f"plan-{k}", "key", evaluated=True)
            study.tell(one.number, outcomes[k], {"size <= 5": 1.0 if k == 6 else -1.0})
        front = study.front()
        assert {trial.values for trial in front} == {(1, 1), (2, 2)}
        assert len(front) == 2
        states = {trial.point["lorp.clusters"]: (trial.state, trial.error) for trial in study.tried()}
        assert states[6] == ("infeasible", "not kept: size <= 5")
        assert states[4] == ("complete", None)
        assert [list(shares) for shares in study.importances()] == [["lorp.clusters", "method"]] * 2


def test_a_trial_that_is_surely_worse_is_hopeless_and_neither_best_nor_tried_again(tmp_path):
    with opened(tmp_path, pruning=0.1) as study:
        study.begin("grid", LORP)
        good, bad, close = study.ask(3)
        assert not study.report(good.number, dict.fromkeys(range(6), 1.0))
        study.tell(good.number, [1.0], {})
        assert not study.report(bad.number, {0: 2.0, 1: 2.5, 2: 3.0})
        assert study.report(bad.number, {3: 2.1, 4: 2.2, 5: 2.3})
        study.stop(bad.number, "hopeless after 6 of 9 documents")
        assert not study.report(close.number, {0: 2.0, 1: 0.5, 2: 1.1, 3: 0.8, 4: 0.9})
        study.tell(close.number, [0.9], {})
        assert [trial.state for trial in study.tried()] == ["complete", "stopped", "complete"]
        assert study.tried()[1].values == ()
        assert study.front()[0].number == close.number
    with opened(tmp_path, pruning=0.1) as study:
        study.begin("grid", LORP)
        assert bad.point not in [one.point for one in study.ask(5)]


def test_importances_tell_the_parameter_that_matters(tmp_path):
    both = space_of([SearchedMethod(method="laco")], SHAPE, [3])
    with opened(tmp_path, both, trials=28) as study:
        study.begin("grid", both)
        while asked := study.ask(4):
            for one in asked:
                study.tell(one.number, [float(str(one.point["laco.merge_layers"])) ** 2], {})
        (shares,) = study.importances()
    assert shares["laco.merge_layers"] > 0.8 > 0.2 > shares["laco.interval"]


def test_a_study_that_does_not_ask_all_asks_the_papers_settings_first(tmp_path):
    space = space_of([SearchedMethod(method="layertrim"), SearchedMethod(method="lorp")], SHAPE, [3])
    starts = [start for branch in space.branches if (start := branch.start(SHAPE, {})) is not None]
    trim = {"method": "layertrim", "layertrim.k": 6, "layertrim.score": "energy_weight"}
    assert starts == [{**trim, "layertrim.layer_choice": "block_bi"}]
    narrow = SearchedMethod(method="layertrim", space={"score": ["weight"]})
    assert space_of([narrow], SHAPE, [3]).branches[0].start(SHAPE, {}) is None
    found = space.branch("lorp").start(SHAPE, {"clusters": 4, "rls": 0.5})
    assert found == {"method": "lorp", "lorp.clusters": 4}
    assert space.branch("lorp").start(SHAPE, {"clusters": 7}) is None
    for _ in range(2):
        with opened(tmp_path, space, trials=6) as study:
            study.begin("random", space, starts)
            asked = ask_all(study, stop_after=3)
    with opened(tmp_path, space, trials=6) as study:
        tried = [trial.point for trial in study.tried()]
    assert tried[0] == starts[0]
    assert tried.count(starts[0]) == 1
    assert len(asked) == 3
