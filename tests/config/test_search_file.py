import copy
from pathlib import Path

import pytest
import yaml

from prunebench.config.search import load_search
from prunebench.errors import InputError

CONFIGS = Path(__file__).parents[2] / "configs"
VALID = {
    "models": [{"path": "some/model", "dtype": "float32"}],
    "calibrations": {"default": "builtin:pydoc:calibration"},
    "tasks": {
        "chosen_by": {"kind": "perplexity", "text": "builtin:pydoc:selection", "role": "selection"},
        "exam": {"kind": "choice", "text": "builtin:pydoc:choice"},
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
    assert load_search(write(tmp_path)).direction == "minimize"
    assert load_search(write(tmp_path), ["search.objective.direction=maximize"]).direction == "maximize"
    words = ["tasks.exam.role=selection", "search.objective={task: exam, metric: acc}"]
    assert load_search(write(tmp_path), words).direction == "maximize"


def test_the_password_of_a_storage_is_not_part_of_what_a_run_records(tmp_path):
    search = load_search(write(tmp_path), ["search.storage=postgresql://me:secret@host/db"])
    assert search.search.storage == "postgresql://me:secret@host/db"
    assert "secret" not in repr(search)
    assert "secret" not in search.model_dump_json()


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
