"""What a submission is made of: ids, environment, store, archive, pins. Nothing here starts Ray."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from prunebench.cluster import pins, working_dir
from prunebench.cluster.submission import attempt_of, cluster_store, run_id, submission
from prunebench.cluster.working_dir import archive, job_content, write_folder
from prunebench.config.experiment import load_experiment
from prunebench.config.search import load_job
from prunebench.errors import InputError

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "models": [{"path": "org/model", "dtype": "float32"}],
    "methods": [{"method": "last_n"}],
    "budgets": [1],
    "tasks": {"ppl": {"kind": "perplexity", "text": "builtin:pydoc:perplexity?samples=6&length=64"}},
    "store": "store",
}


@pytest.fixture
def write(tmp_path):
    """Writes an experiment into a folder of its own; keyword arguments replace settings."""

    def write(name="experiment.yaml", **changes):
        path = tmp_path / "configs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump({**SETTINGS, **changes}))
        return path

    return write


def content_of(path):
    verb, setting = load_job(path)
    return job_content(path, setting, verb)


def test_a_run_is_what_it_measures_and_its_store(write):
    first = load_experiment(write())
    assert run_id(first, "/s") == run_id(load_experiment(write("other.yaml")), "/s")
    assert run_id(first, "/s") == run_id(load_experiment(write(executor={"workers": 3})), "/s")
    assert run_id(first, "/s") == run_id(load_experiment(write(cluster={"hours": 3})), "/s")
    assert run_id(first, "/s") != run_id(first, "/t")
    assert run_id(first, "/s") != run_id(load_experiment(write(budgets=[2])), "/s")


def test_attempts_are_counted_by_run():
    ids = [
        "prunebench-a-1",
        "prunebench-a-10",
        "prunebench-a-2",
        "prunebench-b-11",
        "prunebench-a-x",
        "other",
    ]
    assert attempt_of("prunebench-a", ids) == 10
    assert attempt_of("prunebench-c", ids) == 0


@pytest.mark.parametrize(
    ("given", "head_local", "path"),
    [
        ("/shared/store", False, "/shared/store"),
        ("~/store", False, "~/store"),
        (None, True, "~/prunebench/stores/x"),
        ("./runs/y", True, "~/prunebench/runs/y"),
        ("/disk/store", True, "/disk/store"),
    ],
)
def test_a_store_is_a_path_of_the_cluster(write, given, head_local, path):
    setting = load_experiment(write(store="../../stores/x"))
    assert cluster_store(setting, given, head_local=head_local) == path


def test_a_relative_store_is_refused_with_the_remedy(write):
    with pytest.raises(InputError, match=r"store \.\./store is a relative path.*--store.*--head-local-store"):
        cluster_store(load_experiment(write(store="../store")), None, head_local=False)


def test_a_submission_holds_nothing_of_this_environment(write, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "ray_secret")
    setting = load_experiment(
        write(executor={"threads": 4}, cluster={"environment": {"HF_HOME": "/shared/hf", "PYTHONPATH": "/x"}})
    )
    asked = submission(setting, verb="run", config="experiment/a.yaml", store="/s", overrides=["budgets=[2]"])
    command = asked.command("http://head:8265", "prunebench-a-1", "a.zip")
    assert "secret" not in command + json.dumps(asked.runtime_env("a.zip")) + json.dumps(asked.metadata)
    assert asked.environment == {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "4"),
        "HF_HOME": "/shared/hf",
        "PYTHONPATH": "platform:/x",
        "RAY_JOB_STOP_WAIT_TIME_S": "40",
    }
    assert asked.command_line == ("python jobs/benchmark.py experiment/a.yaml --store /s --set 'budgets=[2]'")
    assert "pip" not in asked.runtime_env("a.zip")


def test_pinned_packages_are_installed_only_when_asked(write):
    wanted = pins.declared().packages
    asked = submission(load_experiment(write()), verb="run", config="a", store="/s", pip=wanted)
    assert asked.runtime_env("a.zip")["pip"] == {"packages": list(wanted), "pip_check": False}
    assert "ray[default]==2.60.0" in wanted
    assert pins.pinned_ray() == "2.60.0"


def test_a_job_is_sent_its_package_its_config_and_the_files_it_names_and_nothing_else(write, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "some.txt").write_text("text")
    (tmp_path / "data" / "other.txt").write_text("not named")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / ".env").write_text("SECRET=1")
    path = write(
        calibrations={"default": "text:../data/some.txt", "far": "text:/shared/far.txt"},
        methods=[{"method": "shortgpt"}],
    )
    name, content = content_of(path)
    assert name == "experiment/configs/experiment.yaml"
    apart = {file for file in content if not file.startswith("platform/prunebench/")}
    assert apart == {
        "pyproject.toml",
        "jobs/benchmark.py",
        "experiment/configs/experiment.yaml",
        "experiment/data/some.txt",
    }
    assert "platform/prunebench/report/templates/page.html.j2" in content
    assert not [file for file in content if "__pycache__" in file]
    packed = archive(content)
    assert packed == archive(content)
    with zipfile.ZipFile(packed) as held:
        assert set(held.namelist()) == set(content)
        assert held.read("experiment/data/some.txt") == b"text"


def test_a_config_of_the_checkout_keeps_its_place():
    name, content = content_of(ROOT / "configs" / "search" / "smoke.yaml")
    assert name == "configs/search/smoke.yaml"
    assert content["jobs/search.py"] == (ROOT / "jobs" / "search.py").read_bytes()


def test_the_job_scripts_of_the_repository_are_those_that_are_sent():
    for verb, name in working_dir.SCRIPTS.items():
        assert (ROOT / "jobs" / f"{name}.py").read_text() == working_dir.SCRIPT.format(name=name, verb=verb)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"models": [{"path": "../models/m", "dtype": "float32"}]},
            r"models\.0\.path is \.\./models/m, a folder",
        ),
        ({"models": [{"path": "here", "dtype": "float32"}]}, r"models\.0\.path is here, a folder"),
        ({"mirror": "mirror"}, "mirror is mirror, a folder on this machine that is not sent"),
        ({"probes": {"p": "text:nowhere.txt"}}, r"probes\.p names .*nowhere\.txt, which is no file here"),
    ],
)
def test_what_is_not_sent_is_refused(write, changes, sentence):
    path = write(**changes)
    (path.parent / "here").mkdir()
    with pytest.raises(InputError, match=sentence):
        content_of(path)


def test_models_of_the_cluster_of_the_hub_and_of_the_package_are_not_sent(write):
    for model in ("/shared/models/m", "~/m", "org/model", "builtin:smollm2-135m"):
        name, content = content_of(write(models=[{"path": model, "dtype": "float32"}]))
        own = {name, "pyproject.toml", "jobs/benchmark.py"}
        assert {file for file in content if not file.startswith("platform/prunebench/")} == own


def test_more_than_90_mib_are_refused_with_the_five_largest_files(write, tmp_path):
    folder = tmp_path / "configs"
    folder.mkdir()
    for number in range(7):
        with (folder / f"{number}.txt").open("wb") as file:
            file.truncate((10 + number) * 2**20)
    path = write(calibrations={str(number): f"text:{number}.txt" for number in range(7)})
    with pytest.raises(InputError) as refused:
        content_of(path)
    listed = ", ".join(f"experiment/{number}.txt {10 + number}.0 MiB" for number in (6, 5, 4, 3, 2))
    assert f"largest files are {listed}: put" in str(refused.value)
    assert "at most 90 MiB" in str(refused.value)


def test_a_job_in_another_environment_ends_with_what_differs(write, tmp_path):
    _, content = content_of(write())
    folder = tmp_path / "job"
    write_folder(content, folder)
    other = pins.Pins(python=">=3.99", packages=("torch==1.0", "numpy>=2"))
    (folder / "pyproject.toml").write_text(other.to_toml())

    def start():
        environment = {**os.environ, "PYTHONPATH": "platform"}
        return subprocess.run(
            [sys.executable, "jobs/benchmark.py", "experiment/experiment.yaml"],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = start()
    assert done.returncode == 4
    assert "torch==1.0 (there is 2." in done.stderr
    assert "Python >=3.99 (this is 3." in done.stderr
    assert "Traceback" not in done.stderr
    (folder / "pyproject.toml").write_text(
        pins.Pins(python=">=3", packages=("nothing-like-it>=1",)).to_toml()
    )
    assert "nothing-like-it>=1 (there is none)" in start().stderr


def test_the_environment_of_the_tests_is_the_pinned_one():
    assert pins.differences(pins.declared()) == []


def test_a_package_that_was_installed_without_a_checkout_sends_itself(write, tmp_path):
    site = tmp_path / "site"
    about = site / "prunebench-0.1.0.dist-info"
    about.mkdir(parents=True)
    (site / "prunebench").symlink_to(ROOT / "platform" / "prunebench")
    (about / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: prunebench\nVersion: 0.1.0\nRequires-Python: <3.13,>=3.11\n"
        "Requires-Dist: ray[default]==2.60.0\nRequires-Dist: lm-eval==0.4.13; extra == 'harness'\n"
    )
    words = [
        "submit",
        str(write()),
        "--to",
        "slurm",
        "--render-only",
        "--store",
        "/shared/s",
        "--out",
        "files",
    ]
    done = subprocess.run(
        [sys.executable, "-c", f"from prunebench.cli import main; main({words!r})"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    job = tmp_path / "files" / "job"
    project = tomllib.loads((job / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["ray[default]==2.60.0"]
    assert project["requires-python"] == "<3.13,>=3.11"
    for file in ("jobs/benchmark.py", "platform/prunebench/cli/app.py", "experiment/experiment.yaml"):
        assert (job / file).is_file()
