"""What nothing in the package may do, whoever wrote the model, the data, the config or the message."""

import ast
import json
import logging
import shutil
import sys
from pathlib import Path

import pytest

from experiments import settings
from prunebench.cli.app import say, show, show_json
from prunebench.config.experiment import load_experiment
from prunebench.core.text import HarmlessFormatter, harmless, printable
from prunebench.core.unit import EvaluateItem, Failed
from prunebench.errors import InputError
from prunebench.pipeline.provenance import provenance
from prunebench.store.layout import file_key

PACKAGE = Path(__file__).parents[1] / "platform" / "prunebench"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
SANDBOXED = {"evaluation/scoring/jail/candidate.py", "evaluation/scoring/jail/judge.py"}
"""They run what models write, in a process that reaches nothing; their pickles are plain values."""
OWN = {"models/reload.py", "models/convert.py"}
"""In processes of their own one proves that an export with our code loads, the other converts a GGUF."""
RUNS_CODE = {
    *("eval", "exec", "pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "dill.loads"),
    *("cloudpickle.load", "cloudpickle.loads", "joblib.load", "torch.load", "torch.jit.load"),
    *("pd.read_pickle", "pandas.read_pickle", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"),
    *("shelve.open", "marshal.loads", "shutil.unpack_archive"),
}
STEER = "\x1b[31mred\x07\x9b2J\u202e\nnext"


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def faults(name: str, tree: ast.AST):
    """Calls that run code which the package did not ship."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "dill", "cloudpickle", "joblib"}:
            yield f"from {node.module} import"
        if not isinstance(node, ast.Call):
            continue
        called, given = dotted(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
        if called in RUNS_CODE or called.endswith((".extractall", ".extract")):
            yield called
        if called == "yaml.load" and given.get("Loader") != "_OneOfEachKey":
            yield "yaml.load"
        if given.get("allow_pickle", "False") != "False" or given.get("shell", "False") != "False":
            yield ast.unparse(node)
        trusts = given.get("trust_remote_code")
        builds = called.endswith((".from_pretrained", ".from_config"))
        if builds and trusts not in {"False", "checkpoint.trusted"} and name not in OWN:
            yield f"{called} without trust_remote_code"


def test_nothing_loads_a_pickle_or_runs_code_of_others():
    found = {name: list(faults(name, ast.parse(path.read_text()))) for name, path in SOURCES.items()}
    assert len(found) > 150
    assert {name: list(calls) for name, calls in found.items() if calls and name not in SANDBOXED} == {}
    assert all(found[name] for name in SANDBOXED)  # the search does find them


CODE = "from pathlib import Path\nPath({!r}).write_text('ran')\nclass Config: ...\nclass Model: ...\n"


@pytest.fixture
def infected(tiny, tmp_path):
    """A checkpoint whose config names code of its own for every class, and the file that the code writes."""
    folder, ran = Path(shutil.copytree(tiny("llama"), tmp_path / "infected")), tmp_path / "ran"
    (folder / "own.py").write_text(CODE.format(str(ran)))
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    for name, named in (
        ("config.json", classes),
        ("tokenizer_config.json", {"AutoTokenizer": ["own.Model", None]}),
    ):
        held = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**held, "auto_map": named}))
    return folder, ran


def test_code_in_a_checkpoint_is_never_run(infected):
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.load import load_model, load_tokenizer

    folder, ran = infected
    checkpoint = Checkpoint.open(folder)
    assert type(load_model(checkpoint, dtype="float32").model).__module__.startswith("transformers.")
    assert type(load_tokenizer(checkpoint)).__module__.startswith("transformers.")
    assert not ran.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "../model.safetensors", "/etc/x.safetensors"])
def test_an_index_that_names_other_files_than_safetensors_beside_it_is_refused(tiny, tmp_path, name):
    from prunebench.models.checkpoint import INDEX, WEIGHTS, Checkpoint

    folder = Path(shutil.copytree(tiny("llama"), tmp_path / "inside" / "model"))
    shutil.copy(folder / WEIGHTS, folder / "pytorch_model.bin")
    (folder / WEIGHTS).rename(folder.parent / "model.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    with pytest.raises(InputError, match="only safetensors files of its own folder are read"):
        Checkpoint.open(folder)


def test_the_environment_is_not_recorded(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hidden-value")
    monkeypatch.setenv("PGPASSWORD", "hidden-value")
    assert "hidden-value" not in json.dumps(provenance())


@pytest.mark.parametrize(
    "key", ["", ".", "..", "../x", "/etc/x", "a/b", "a\\b", ".hidden", "a\0b", "a\n", "a b", "é"]
)
def test_a_key_that_leads_out_of_its_folder_names_no_file(key):
    with pytest.raises(ValueError, match="not a key that can name a file"):
        file_key(key)


NASTY = ["../../outside", "/outside", "..", "a" * 300, "a|b\n# c"]


@pytest.mark.timeout(120)
def test_names_in_a_config_cannot_escape_the_store(write_config, tmp_path):
    """A run with names that are paths writes into its store alone."""
    from prunebench.evaluation.worker import Worker
    from prunebench.pipeline.benchmark import run_benchmark
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import Silent
    from prunebench.report.render import write_report
    from prunebench.store.verify import verify

    task = {"kind": "choice", "text": "builtin:pydoc:choice", "items": 2}
    path = write_config(
        methods=[{"method": "shortgpt", "calibration": NASTY[0]}],
        budgets=[1],
        calibrations={NASTY[0]: "builtin:pydoc:calibration?samples=2&length=32"},
        tasks=dict.fromkeys(NASTY, task),
    )
    store = tmp_path / "deep" / "er" / "store"
    store.parent.mkdir(parents=True)
    experiment = load_experiment(path, [f"models.0.name={NASTY[0]}"])
    outcome = run_benchmark(
        experiment, store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent()
    )
    assert outcome.failures == 0
    assert verify(store) == []
    write_report(store, store.parent / "report")
    assert {file.name for file in tmp_path.iterdir()} == {"deep", "experiment.yaml"}
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["er"]
    assert {file.name for file in store.parent.iterdir()} == {"store", "report"}


@pytest.mark.parametrize("place", ["name", "task", "store", "calibration"])
@pytest.mark.parametrize("letter", ["\0", "\x1b", "\x9b"])
def test_control_characters_in_a_config_are_refused(tiny, tmp_path, place, letter):
    data = settings(tiny("llama"))
    match place:
        case "name":
            data["models"][0]["name"] = f"a{letter}b"
        case "task":
            data["tasks"][f"a{letter}b"] = data["tasks"].pop("ppl")
        case "store":
            data["store"] = f"a{letter}b"
        case "calibration":
            data["calibrations"]["default"] = f"text:a{letter}b"
    (tmp_path / "e.yaml").write_text(json.dumps(data))
    with pytest.raises(InputError, match="a control character stands in") as caught:
        load_experiment(tmp_path / "e.yaml")
    assert letter not in str(caught.value)


def test_text_of_others_cannot_steer_a_terminal(capsys):
    assert printable(STEER) == r"\x1b[31mred\x07\x9b2J\u202e\nnext"
    assert harmless(STEER) == "\\u001b[31mred\\u0007\\u009b2J\\u202e\nnext"
    assert harmless("zwölf ± 1 °\t日本\n") == "zwölf ± 1 °\t日本\n"
    say(STEER)
    show(STEER)
    show_json({"text": STEER})
    out, err = capsys.readouterr()
    assert not any(letter in out + err for letter in "\x1b\x07\x9b\u202e")
    assert json.loads(out.partition("next\n")[2]) == {"text": STEER}


def test_log_records_of_any_library_cannot_steer_a_terminal():
    record = logging.LogRecord("ray", logging.ERROR, "", 0, "worker: %s", (STEER,), None)
    assert HarmlessFormatter("%(message)s").format(record) == f"worker: {harmless(STEER)}"


class Shouting:
    """A worker whose every error repeats what a model wrote."""

    def __init__(self, setups) -> None:
        from prunebench.evaluation.worker import Worker

        self._worker = Worker(setups, 1)

    def run(self, item):
        if not isinstance(item, EvaluateItem):
            yield from self._worker.run(item)
            return
        for plan in item.plans:
            yield Failed(
                keys=(item.unit.for_plan(plan.plan_id).unit_id,),
                error=f"ValueError: {STEER}",
                traceback=STEER,
            )


def test_what_a_model_wrote_reaches_logs_and_reports_escaped(write_config, tmp_path, capsys, caplog):
    from rich.console import Console

    from prunebench.pipeline.benchmark import run_benchmark
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import Silent
    from prunebench.report.render import write_report
    from prunebench.report.tables import leaderboard_table
    from prunebench.report.terminal import print_leaderboard

    path = write_config(methods=[{"method": "last_n"}], budgets=[1], calibrations={}, probes={})
    store, report = tmp_path / "store", tmp_path / "report"
    outcome = run_benchmark(
        load_experiment(path), store, lambda setups: LocalExecutor(lambda: Shouting(setups)), Silent()
    )
    assert outcome.failures > 0
    assert all("\x1b" not in record.getMessage() for record in caplog.records)
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert any("red" in record.getMessage() for record in caplog.records)
    for line in next((store / "runs").iterdir()).read_text().splitlines():
        json.loads(line)
        assert "\x1b" not in line
    write_report(store, report)
    print_leaderboard(leaderboard_table(store), Console(file=sys.stdout, force_terminal=False))
    texts = {file.name: file.read_text() for file in report.rglob("*.*")}
    assert {"index.html", "leaderboard.csv", "leaderboard.md", "leaderboard.tex"} <= texts.keys()
    assert "u001b[31mred" in texts["index.html"]  # it is shown
    texts["terminal"] = capsys.readouterr().out
    assert [
        name for name, text in texts.items() if any(letter in text for letter in "\x1b\x07\x9b\u202e")
    ] == []
