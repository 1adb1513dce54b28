import copy
from pathlib import Path

import pytest
import yaml

from prunebench.config.objectives import Constraint
from prunebench.config.search import load_search
from prunebench.errors import InputError

CONFIGS = Path(__file__).parents[2] / "configs"
VALID = {
    "models": [{"path": "some/model", "dtype": "float32"}],
    "calibrations": {"default": "builtin:pydoc:calibration"},
    "tasks": {
        "chosen_by": {"kind": "perplexity", "text": "builtin:pydoc:selection", "role": "selection"},
        "exam": {"kind": "choice", "text": "builtin:pydoc:choice"},
        "quiz": {"kind": "choice", "text": "builtin:pydoc:choice", "role": "selection"},
        "more": {"kind": "choice", "text": "builtin:pydoc:choice", "role": "selection"},
    },
    "search": {
        "methods": [{"method": "lorp"}],
        "budget": 2,
        "objective": {"task": "chosen_by", "metric": "perplexity"},
    },
    "store": "store",
}


def write(tmp_path, change=None):
    data = copy.deepcopy(VALID)
    if change:
        change(data)
    path = tmp_path / "which_k.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("search/*.yaml")), ids=lambda path: path.name)
def test_every_search_file_of_the_repository_loads(path):
    assert load_search(path).search.methods


def test_a_study_is_called_like_its_file_unless_it_has_a_name(tmp_path):
    assert load_search(write(tmp_path)).search.name == "which_k"
    assert load_search(write(tmp_path), ["search.name=other"]).search.name == "other"


def test_the_direction_is_the_metrics_own_unless_given(tmp_path):
    def directions(objective):
        return load_search(write(tmp_path), [f"search.objective={objective}"]).directions

    assert load_search(write(tmp_path)).directions == ("minimize",)
    assert load_search(write(tmp_path), ["search.objective.direction=maximize"]).directions == ("maximize",)
    assert directions("{task: chosen_by, metric: perplexity, retained: true}") == ("maximize",)
    assert directions("[{quantity: weights_gib}, {quantity: removed_params}]") == ("minimize", "maximize")
    assert directions("{tasks: [quiz, more], metric: acc}") == ("maximize",)


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        ({"task": "quiz", "metric": "acc"}, "quiz.acc"),
        ({"task": "quiz", "metric": "acc", "retained": True}, "quiz.acc retained"),
        ({"tasks": ["quiz", "more"], "metric": "acc"}, "mean(quiz, more).acc"),
        ({"quantity": "total_params"}, "total_params"),
    ],
)
def test_a_measure_has_a_name_that_tells_what_it_is(tmp_path, objective, name):
    search = load_search(write(tmp_path, lambda d: d["search"].update(objective=objective)))
    assert search.search.objective[0].name == name


def test_a_constraint_says_how_far_a_value_misses_it():
    most, least = Constraint(quantity="weights_gib", most=2), Constraint(quantity="removed_params", least=5)
    assert (most.text, most.violation(3), most.violation(2)) == ("weights_gib <= 2", 1, 0)
    assert (least.text, least.violation(3), least.violation(6)) == ("removed_params >= 5", 2, -1)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hidden@host/db",
        "postgresql+psycopg://me:hid/den@host:5432/db",
        "mysql://:hidden@host/db",
        "postgresql://me@host/db?password=hidden",
    ],
)
def test_a_password_in_a_storage_is_refused_and_not_repeated(tmp_path, url):
    with pytest.raises(InputError, match="a password does not belong in a config") as caught:
        load_search(write(tmp_path), [f"search.storage={url}"])
    assert "hid" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://me@host:5432/db", "sqlite:///at:home/a@b.db"])
def test_a_storage_without_a_password_is_taken_and_no_part_of_what_a_run_records(tmp_path, url):
    search = load_search(write(tmp_path), [f"search.storage={url}"])
    assert search.search.storage == url
    assert url not in repr(search) + search.model_dump_json()


@pytest.mark.parametrize("name", ["../../x", "/x", ".x", "a/b", "a" * 101, "", "a\n"])
def test_the_name_of_a_study_cannot_lead_out_of_the_store(tmp_path, name):
    with pytest.raises(InputError, match=r"search\.name"):
        load_search(write(tmp_path, lambda d: d["search"].update(name=name)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["search"].update(trails=3), "unknown key 'trails': did you mean 'trials'?"),
        (lambda d: d["search"].update(trials=0), "search.trials"),
        (lambda d: d["search"].update(sampler="anneal"), "search.sampler"),
        (lambda d: d["search"].update(name="a/b"), "search.name"),
        (lambda d: d["search"].update(methods=[]), "search.methods"),
        (lambda d: d.update(models=d["models"] * 2), "a search tunes one model, and this file has 2"),
        (lambda d: d["search"]["objective"].update(task="exam"), "has the role test"),
        (lambda d: d["search"]["objective"].update(task="chosen"), "did you mean 'chosen_by'?"),
        (lambda d: d["search"]["objective"].update(metric="acc"), "no task measures chosen_by.acc"),
        (lambda d: d["search"].update(objective=[]), "search.objective"),
        (
            lambda d: d["search"].update(objective=[d["search"]["objective"]] * 2),
            "chosen_by.perplexity stands twice",
        ),
        (lambda d: d["search"]["objective"].update(metric=None), "which metric of chosen_by? give metric"),
        (
            lambda d: d["search"]["objective"].update(quantity="weights_gib"),
            "weights_gib is a quantity of plans",
        ),
        (lambda d: d["search"]["objective"].update(tasks=["quiz", "more"]), "exactly one"),
        (
            lambda d: d["search"].update(objective={"tasks": ["quiz", "chosen_by"], "metric": "acc"}),
            "no task measures chosen_by.acc",
        ),
        (
            lambda d: d["search"].update(objective={"tasks": ["quiz", "quiz"], "metric": "acc"}),
            "stands twice",
        ),
        (lambda d: d["search"].update(constraints=[{"quantity": "weights_gib"}]), "either most or least"),
        (
            lambda d: d["search"].update(constraints=[{"task": "exam", "metric": "acc", "least": 0.5}]),
            "has the role test",
        ),
        (lambda d: d["search"].update(budget=[]), "empty list of budgets"),
        (lambda d: d["search"].update(budget=[2, 2]), "the budget 2 stands twice"),
        (lambda d: d["search"].update(pruning={"p": 1.5}), "search.pruning.p"),
        (
            lambda d: d["search"].update(pruning={"p": 0.1}, objective={"quantity": "weights_gib"}),
            "pruning compares documents of one task",
        ),
        (
            lambda d: d["search"]["methods"][0].update(space={"cluster": [2]}),
            "lorp has no parameter 'cluster': did you mean 'clusters'?",
        ),
        (
            lambda d: d["search"]["methods"][0].update(space={"clusters": [2]}, params={"clusters": 3}),
            "'clusters' stands in both params and space",
        ),
        (lambda d: d["search"]["methods"][0].update(params={"clusters": 1}), "clusters 1"),
        (lambda d: d["search"]["methods"][0].update(method="laco"), "an entry 'default' in probes"),
    ],
)
def test_wrong_settings_of_a_search_are_named_with_a_remedy(tmp_path, change, sentence):
    with pytest.raises(InputError) as caught:
        load_search(write(tmp_path, change))
    assert sentence in str(caught.value)
