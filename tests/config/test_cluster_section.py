import pytest
from pydantic import ValidationError

from prunebench.config.base import explain
from prunebench.config.cluster import ClusterEntry
from rendering import CLUSTER


def refusal(**changes):
    with pytest.raises(ValidationError) as caught:
        ClusterEntry.model_validate({**CLUSTER, **changes})
    return str(explain(caught.value, "file"))


def kuberay(**changes):
    return {"kuberay": {**CLUSTER["kuberay"], **changes}}


def hosts(**changes):
    return {"hosts": {**CLUSTER["hosts"], **changes}}


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hf_token", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD"],
)
def test_secrets_are_no_part_of_a_config(name):
    assert "looks like a secret" in refusal(environment={name: "abc"})


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"HTTPS_PROXY": "http://me:hidden@proxy:3128"}},
        {"setup": ["export HF_TOKEN=hidden"]},
        {"setup": ["source env", "WANDB_API_KEY='hidden' true"]},
        {"setup": ["pip install -i https://me:hidden@index/simple prunebench"]},
    ],
)
def test_secrets_in_values_and_lines_are_refused_and_not_repeated(changes):
    assert "configs are kept with every run" in (told := refusal(**changes))
    assert "hidden" not in told


def test_a_line_may_read_a_secret_from_where_it_lies():
    lines = ('export HF_TOKEN="$(cat ~/.hf)"', "export HF_HOME=/shared/hf", "module load cuda/12")
    assert ClusterEntry.model_validate({"setup": lines}).setup == lines


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "HF_HOME", "PRUNEBENCH_CACHE", "MONKEY"])
def test_other_variables_are_taken(name):
    assert ClusterEntry.model_validate({"environment": {name: "abc"}}).environment == {name: "abc"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": 4}, "unknown key 'nodes': did you mean 'node'?"),
        ({"name": "Not a label"}, "pattern"),
        ({"hours": 0}, "greater than or equal to 0.25"),
        ({"environment": {"A B": "c"}}, "not the name of an environment variable"),
        ({"environment": {"A": "b\nc"}}, "write one line"),
        ({"setup": ["module load cuda\nrm -rf x"]}, "write one line"),
        (hosts(head="-oProxyCommand=evil"), "pattern"),
        (hosts(workers=["10.0.0.2; rm"]), "pattern"),
        ({"slurm": {"partition": "gpu\n#SBATCH --uid=0"}}, "pattern"),
        ({"slurm": {"options": ["constraint=h100"]}}, "pattern"),
        (kuberay(mount="shared"), "absolute path"),
        (kuberay(folder="/a/../b"), "absolute path"),
        (kuberay(secrets={"HF_TOKEN": "hf_abcdefghijkl"}), "never the value"),
        (kuberay(secrets={"A B": "hub/token"}), "not the name of an environment variable"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    assert words in refusal(**changes)
