"""Tasks of lm-eval: which are taken, what they read, what is asked, and what goes wrong with a reason."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm_eval_mirror import EXAMPLES, TASKS, winogrande, write_lm_eval_mirror
from mirrors import write_manifest, write_rows
from prunebench.core.plan import PruningPlan
from prunebench.data.tasks import HarnessSource, range_hash
from prunebench.errors import InputError, ResourceError, UnsupportedError
from prunebench.evaluation.base import EVALUATORS
from prunebench.evaluation.harness import build as module
from prunebench.evaluation.harness.build import build
from prunebench.evaluation.harness.definitions import definition_of, library_version, tasks_folder
from prunebench.evaluation.harness.tasks import harness_task, read_splits
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.tokenizer import Encoder

ROOT = Path(__file__).parents[2]
WINOGRANDE = "allenai/winogrande/winogrande_xl"


@pytest.fixture
def encoder(tiny):
    return Encoder(Checkpoint.open(tiny("llama")))


@pytest.fixture
def mirror(tmp_path):
    """One that tests may spoil, with winogrande alone."""
    folder = tmp_path / "mirror"
    write_rows(folder, WINOGRANDE, "validation", [winogrande(i) for i in range(7)])
    write_rows(folder, WINOGRANDE, "train", [winogrande(50 + i) for i in range(EXAMPLES)])
    return folder


@pytest.mark.parametrize(
    ("task", "shots", "splits"),
    [
        ("arc_easy", None, [("allenai/ai2_arc/ARC-Easy", "test")]),
        ("rte", 0, [("nyu-mll/glue/rte", "validation")]),
        ("rte", 1, [("nyu-mll/glue/rte", "validation"), ("nyu-mll/glue/rte", "train")]),
        ("piqa", None, [("baber/piqa", "validation")]),
        ("race", 2, [("EleutherAI/race/high", "test")]),
        ("gsm8k", None, [("openai/gsm8k/main", "test"), ("openai/gsm8k/main", "train")]),
        ("gsm8k", 0, [("openai/gsm8k/main", "test")]),
        ("gsm8k_cot", 8, [("openai/gsm8k/main", "test")]),
    ],
)
def test_what_a_task_reads_depends_on_its_examples(task, shots, splits):
    assert list(read_splits(task, shots)) == splits


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (
            "wikitext",
            "has the output type loglikelihood_rolling; measured are multiple_choice, loglikelihood",
        ),
        ("humaneval", "runs the model's code"),
        ("squadv2", "is defined by Python code of its own"),
        ("mts_dialog", "has code that downloads from the hub"),
        ("arithmetic_1dc", "reads its dataset with .*, which a mirror does not serve|no dataset ORG/NAME"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(task, sentence):
    with pytest.raises(UnsupportedError, match=f"the lm-eval task {task} .*({sentence})"):
        definition_of(task)


def test_a_metric_that_is_no_mean_over_documents_is_refused(tmp_path):
    rows = [{"premise": "It rains.", "hypothesis": "It is wet.", "idx": i, "label": i % 3} for i in range(4)]
    write_rows(tmp_path, "aps/super_glue/cb", "validation", rows)
    with pytest.raises(UnsupportedError, match="cb has the metric f1, which is no mean over documents"):
        build(HarnessSource(task="cb", shots=0, mirror=str(tmp_path)))


def test_unknown_tasks_and_groups_are_named():
    with pytest.raises(InputError, match="no task 'arc_esy': did you mean arc_easy"):
        definition_of("arc_esy")
    with pytest.raises(UnsupportedError, match="'ai2_arc' is a group of lm-eval tasks: name its tasks"):
        definition_of("ai2_arc")


def test_examples_of_a_task_that_is_defined_without_any_are_refused():
    assert definition_of("aime24").shots(None) == 0
    with pytest.raises(InputError, match=r"defines the task aime24 with 0 shots.* leave out shots: 3"):
        definition_of("aime24").shots(3)


def test_without_lm_eval_the_extra_is_named(monkeypatch):
    tasks_folder.cache_clear()
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ResourceError, match=r"pip install 'prunebench\[harness\]'"):
        library_version()
    monkeypatch.undo()
    tasks_folder.cache_clear()


def test_a_missing_dataset_is_named_with_the_command_that_fetches_it(encoder, mirror):
    with pytest.raises(
        InputError, match=r"task quiz: lm-eval's winogrande reads .* set mirror in the config"
    ):
        harness_task("winogrande", encoder, name="quiz", mirror=None)
    with pytest.raises(InputError) as error:
        harness_task("hellaswag", encoder, name="quiz", mirror=mirror)
    assert f"{mirror}/Rowan/hellaswag/default/validation-*.parquet" in str(error.value)
    assert f"prunebench prefetch CONFIG --out {mirror}" in str(error.value)


def test_examples_are_needed_only_where_they_are_shown(encoder, mirror):
    (mirror / WINOGRANDE / "train-00000-of-00001.parquet").unlink()
    assert len(harness_task("winogrande", encoder, name="quiz", mirror=mirror).documents) == 7
    with pytest.raises(InputError, match=r"train-\*\.parquet; splits there: validation"):
        harness_task("winogrande", encoder, name="quiz", shots=5, mirror=mirror)


def test_a_split_without_documents_and_rows_that_do_not_fit_are_named(encoder, mirror):
    (path,) = mirror.glob("*/*/*/validation-*.parquet")
    whole = path.read_bytes()
    write_rows(mirror, WINOGRANDE, "validation", [])
    with pytest.raises(InputError, match=r"the split validation of .*winogrande_xl in .* has no documents"):
        harness_task("winogrande", encoder, name="quiz", mirror=mirror)
    write_rows(mirror, WINOGRANDE, "validation", [{**winogrande(0), "sentence": "without a gap"}])
    with pytest.raises(
        InputError, match=r"lm-eval cannot build the task winogrande with 0 shots.*ValueError"
    ):
        harness_task("winogrande", encoder, name="quiz", mirror=mirror)
    path.write_bytes(whole)
    with pytest.raises(InputError, match="with 20 shots"):
        harness_task("winogrande", encoder, name="quiz", shots=20, mirror=mirror)
    with pytest.raises(InputError, match=r"limit is 8, but .* has 7 documents in validation"):
        harness_task("winogrande", encoder, name="quiz", limit=8, mirror=mirror)


def test_a_damaged_file_is_named(encoder, mirror):
    write_manifest(mirror)
    write_rows(mirror, WINOGRANDE, "validation", [winogrande(0)])
    with pytest.raises(InputError, match=r"validation-00000-of-00001\.parquet has sha256"):
        harness_task("winogrande", encoder, name="quiz", mirror=mirror)


def test_documents_know_what_is_asked_and_what_was_read(encoder, mirror):
    task = harness_task("winogrande", encoder, name="quiz", shots=2, limit=4, mirror=mirror)
    assert (task.name, task.kind, task.role, len(task.documents)) == ("quiz", "harness", "test", 4)
    assert task.version.startswith("1-1.0-")
    assert dict(task.recipe) == {
        "harness": "lm-eval 0.4.13",
        "harness_task": "winogrande",
        "dataset": f"{WINOGRANDE}:validation",
        "documents": 4,
        "shots": 2,
        "fewshot_seed": 1234,
    }
    assert winogrande(3)["sentence"] in task.texts[3]
    assert winogrande(3)["option2"] in task.texts[3]
    assert "Zug" in "".join(task.texts)
    assert not any(winogrande(50 + i)["sentence"] in text for i in range(9) for text in task.texts), (
        "examples"
    )


def test_hashes_depend_on_everything_that_is_asked(encoder, mirror):
    def hashes(**settings):
        return [
            d.doc_hash
            for d in harness_task("winogrande", encoder, name="q", mirror=mirror, **settings).documents
        ]

    plain, shown = hashes(), hashes(shots=2)
    assert len({*plain, *shown}) == 14
    assert hashes(limit=3) == plain[:3]
    rows = [winogrande(i) for i in range(7)]
    rows[5] = {**rows[5], "answer": "12"[5 % 2 == 0]}
    write_rows(mirror, WINOGRANDE, "validation", rows)
    assert [a == b for a, b in zip(plain, hashes(), strict=True)] == [True] * 5 + [False] + [True]
    rows = [winogrande(51 + i) for i in range(EXAMPLES)]
    write_rows(mirror, WINOGRANDE, "train", rows)
    assert not set(shown) & set(hashes(shots=2)), "other examples"


def test_a_part_of_a_dataset_is_not_the_whole(encoder, mirror):
    whole = harness_task("winogrande", encoder, name="quiz", mirror=mirror)
    write_rows(mirror, WINOGRANDE, "validation", [winogrande(i) for i in range(5)])
    part = harness_task("winogrande", encoder, name="quiz", mirror=mirror)
    assert part.version != whole.version
    assert part.recipe["documents"] == 5
    assert range_hash(part, 0, 5) != range_hash(whole, 0, 7)


def test_a_worker_with_another_dataset_refuses(encoder, mirror, load_tiny):
    task = harness_task("winogrande", encoder, name="quiz", mirror=mirror)
    write_rows(mirror, WINOGRANDE, "validation", [winogrande(i + 1) for i in range(7)])
    with pytest.raises(InputError, match="document 0 of lm-eval's winogrande is another one here"):
        next(EVALUATORS["harness"].evaluate(load_tiny("llama"), [PruningPlan.dense(6)], task.documents))


def test_building_leaves_the_global_generators_alone(harness_mirror):
    module._built.cache_clear()
    random.seed(5)
    np.random.seed(5)
    build(HarnessSource(task="winogrande", shots=5, mirror=str(harness_mirror)))
    drawn = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    assert drawn == (random.random(), np.random.random())


def test_a_task_is_built_once_for_equal_files_wherever_they_are_counted(harness_mirror, tmp_path):
    source = HarnessSource(task="copa", shots=0, mirror=str(harness_mirror))
    assert build(source) is build(replace(source))
    elsewhere = replace(source, mirror=str(shutil.copytree(harness_mirror, tmp_path / "copy")))
    assert [d.doc_hash for d in build(elsewhere).documents] == [d.doc_hash for d in build(source).documents]


ISOLATED = """
import socket, sys, time
def refuse(*arguments, **settings):
    raise AssertionError(f"the network was asked for {arguments}")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from pathlib import Path
from prunebench.evaluation.harness.tasks import harness_task
from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.tokenizer import Encoder
model, mirror, *names = sys.argv[1:]
encoder = Encoder(Checkpoint.open(model))
for name in names:
    assert len(harness_task(name, encoder, name=name, mirror=Path(mirror)).documents) == 7, name
began = time.perf_counter()
try:
    harness_task("sciq", encoder, name="sciq", mirror=Path(mirror))
except InputError as error:
    assert "allenai/sciq/default/test-*.parquet" in str(error), error
else:
    raise AssertionError("sciq is not in the mirror")
assert time.perf_counter() - began < 5
assert "torch" not in sys.modules
print("done")
"""


def test_no_task_asks_for_the_network_and_the_driver_needs_no_torch(tiny, tmp_path):
    mirror = write_lm_eval_mirror(tmp_path / "mirror")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", ISOLATED, str(tiny("llama")), str(mirror), *TASKS, "gsm8k"],
        env={**environment, "PYTHONPATH": str(ROOT / "platform"), "HF_HOME": str(tmp_path / "hf")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert done.stderr == "", "neither bars nor advice of lm-eval"
    assert not (tmp_path / "hf").exists()
