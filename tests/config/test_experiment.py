import copy
import math
from pathlib import Path

import pytest
import yaml

from prunebench.config.experiment import load_experiment
from prunebench.errors import InputError

CONFIGS = Path(__file__).parents[2] / "configs"
VALID = {
    "models": [{"path": "some/model", "dtype": "float32"}],
    "calibrations": {"default": "builtin:pydoc:calibration"},
    "methods": [{"method": "shortgpt"}],
    "budgets": [3, "ratio:0.25"],
    "tasks": {"ppl": {"kind": "perplexity", "text": "builtin:pydoc:perplexity"}},
    "store": "store",
}


def recipe(name, **more):
    return {"kind": "perplexity", "recipe": name, **more}


def harness(**more):
    return {"kind": "harness", "task": "arc_easy", **more}


def write(tmp_path, change=None):
    data = copy.deepcopy(VALID)
    if change:
        change(data)
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("benchmark/*.yaml")), ids=lambda path: path.name)
def test_every_config_file_of_the_repository_loads(path):
    assert load_experiment(path).methods


def test_relative_paths_start_from_the_files_folder(tmp_path):
    experiment = load_experiment(write(tmp_path))
    assert experiment.resolve(experiment.store) == tmp_path / "store"


def test_names_of_models_come_from_their_paths(tmp_path):
    def rename(data):
        data["models"] = [
            {"path": "builtin:smollm2-135m", "dtype": "float32"},
            {"path": "a/b/", "dtype": "float32"},
            {"path": "c", "dtype": "bfloat16", "name": "other"},
        ]

    assert [model.title for model in load_experiment(write(tmp_path, rename)).models] == [
        "smollm2-135m",
        "b",
        "other",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(buget=[3]), "unknown key 'buget': did you mean 'budgets'?"),
        (lambda d: d["models"][0].update(dtyp="x"), "unknown key 'dtyp': did you mean 'dtype'?"),
        (lambda d: d["models"][0].update(dtype="float8"), "models.0.dtype"),
        (lambda d: d["models"][0].pop("dtype"), "models.0.dtype"),
        (lambda d: d.update(models=[d["models"][0]] * 2), "two models are both called model"),
        (lambda d: d["methods"][0].update(method="shortgtp"), "did you mean 'shortgpt'?"),
        (lambda d: d["methods"][0].update(params={"protec": [1]}), "did you mean 'protect'?"),
        (lambda d: d["methods"][0].update(params={"protect": "x"}), "shortgpt: protect"),
        (lambda d: d["methods"][0].update(params={"protect": True}), "shortgpt: protect cannot be True"),
        (
            lambda d: d["methods"][0].update(calibration="c4"),
            "an entry 'c4' in calibrations (there: default)",
        ),
        (
            lambda d: d["methods"][0].update(method="laco"),
            "an entry 'default' in probes (there: none is defined)",
        ),
        (lambda d: d["tasks"]["ppl"].update(kind="perplexiti"), "perplexiti"),
        (lambda d: d["tasks"]["ppl"].update(strid=3), "unknown key 'strid': did you mean 'stride'?"),
        (lambda d: d["tasks"]["ppl"].pop("text"), "takes either text (a SPEC) or recipe (a name)"),
        (lambda d: d["tasks"]["ppl"].update(recipe="lorp_c4"), "exactly one"),
        (lambda d: d["tasks"]["ppl"].update(windows=2), "windows goes with a recipe"),
        (lambda d: d["tasks"].update(ppl=recipe("lorp_wiki")), "no perplexity recipe 'lorp_wiki': did you"),
        (lambda d: d["tasks"].update(ppl=recipe("lorp_c4", stride=2)), "a recipe has its own"),
        (lambda d: d["tasks"].update(ppl=recipe("lorp_c4", windows=0)), "windows"),
        (lambda d: d["tasks"].update(quiz=harness(shot=5)), "unknown key 'shot': did you mean 'shots'?"),
        (lambda d: d["tasks"].update(quiz=harness(shots=-1)), "shots"),
        (lambda d: d["tasks"].update(quiz=harness(limit=0)), "limit"),
        (lambda d: d.update(executor={"workers": 0}), "executor.workers"),
        (lambda d: d.update(executor={"gpus_per_worker": 1.5}), "1.5 GPUs a worker: write a whole number"),
        (lambda d: d.update(executor={"gpus_per_worker": "all"}), "executor.gpus_per_worker"),
        (lambda d: d.update(budgets=[]), "budgets"),
        (lambda d: d.update(budgets=[True]), "budgets.0.int"),
        (lambda d: d["methods"][0].update(budgets=[]), "methods.0.budgets"),
        (lambda d: d["methods"][0].update(method="laco", params={"threshold": math.inf}), "cannot be inf"),
        (lambda d: d.update(base="/elsewhere"), "unknown key 'base'"),
        (lambda d: d.update(executor={"threads": 99999}), "executor.threads"),
        (lambda d: d.pop("store"), "store"),
    ],
)
def test_wrong_settings_are_named_with_a_remedy(tmp_path, change, sentence):
    with pytest.raises(InputError) as caught:
        load_experiment(write(tmp_path, change))
    assert sentence in str(caught.value)
    assert str(tmp_path / "experiment.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("- 1", "has no settings"), ("a: [", "not valid YAML"), ("\x00", "not valid YAML")],
)
def test_files_that_are_no_experiment_are_refused(tmp_path, text, sentence):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_experiment(path)


def test_one_wrong_setting_is_one_line(tmp_path):
    path = write(tmp_path, lambda d: d["models"][0].update(dtyp="x"))
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    assert str(caught.value) == f"{path}: models.0: unknown key 'dtyp': did you mean 'dtype'?"


def test_a_setting_that_stands_twice_is_refused(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text() + "budgets: [5]\n")
    with pytest.raises(InputError, match="'budgets' stands twice"):
        load_experiment(path)


def test_ray_workers_without_a_gpu_cannot_hold_a_model_on_one(tmp_path):
    path = write(tmp_path, lambda d: d["models"][0].update(device="cuda"))
    assert load_experiment(path)
    with pytest.raises(InputError, match=r"executor\.gpus_per_worker is 0: set it to auto or 1"):
        load_experiment(path, ["executor.kind=ray", "executor.gpus_per_worker=0"])
    assert load_experiment(path, ["executor.kind=ray", "executor.gpus_per_worker=1"])
    assert load_experiment(path, ["executor.kind=ray"]).executor.gpus_per_worker == "auto"


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot read the config"):
        load_experiment(tmp_path / "nothing.yaml")


def test_single_settings_can_be_replaced_from_the_command_line(tmp_path):
    words = ["budgets=[5]", "models.0.dtype=bfloat16", "executor.workers=3", "methods.0.params.protect=[1]"]
    experiment = load_experiment(write(tmp_path), words)
    assert experiment.budgets == (5,)
    assert experiment.models[0].dtype == "bfloat16"
    assert experiment.executor.workers == 3
    assert experiment.methods[0].params == {"protect": [1]}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("budgets", "write a.b=value"),
        ("models.1.dtype=float32", "'1' is not one of the 1 entries"),
        ("models.x=1", "'x' is not one of the 1 entries"),
        ("store.a.b=1", "lies inside a plain value"),
        ("store.a=1", "lies inside a plain value"),
    ],
)
def test_replacements_that_lead_nowhere_are_refused(tmp_path, word, sentence):
    with pytest.raises(InputError, match=sentence):
        load_experiment(write(tmp_path), [word])
