"""The command line as scripts outside this repository call it."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prunebench import cli
from prunebench.core.plan import LayerSpec, Mask, PruningPlan

ROOT = Path(__file__).parents[1]


@pytest.fixture
def prunebench(capsys, monkeypatch, tmp_path):
    """Runs a command in this process, in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with pytest.raises(SystemExit) as done:
            cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return done.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.npy"
    np.save(path, np.random.default_rng(0).integers(3, 259, (4, 32)))
    return f"tokens:{path.name}"


def test_help_and_configuration_errors_come_without_torch(tmp_path):
    """One process for all of them: the modules are looked at after each call."""
    (tmp_path / "wrong.yaml").write_text("modles: []")
    script = """
import sys
from prunebench.cli import main
for words in (["--help"], ["prune", "--help"], ["methods"], ["run", "wrong.yaml"], ["run", "nothing.yaml"],
              ["search", "wrong.yaml"],
              ["prune", "--model", "nowhere", "--method", "lorp", "--budget", "7", "--calibration", "text:x"],
              ["prune", "--model", "nowhere", "--method", "lrop", "--budget", "7"],
              ["bench", "--model", "nowhere", "--protocol", "lopr"],
              ["bench", "--model", "nowhere", "--protocol", "lorp", "--set", "steps=4"],
              ["traces", "--model", "nowhere", "--out", "x", "--engine", "vlm"],
              ["traces", "--model", "nowhere", "--out", "x"],
              ["compare", "nowhere", "lorp@7", "wrp@7"]):
    try:
        main(words)
    except SystemExit:
        pass
    loaded = [name for name in ("torch", "transformers", "ray", "optuna") if name in sys.modules]
    assert not loaded, (words, loaded)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_command_has_help_with_an_example(prunebench):
    code, out, _ = prunebench("--help")
    assert code == 0
    assert "Exit codes" in out
    commands = [
        "doctor",
        "methods",
        "prune",
        "plan",
        "run",
        "search",
        "status",
        "report",
        "compare",
        "export",
        "bench",
        "traces",
        "prefetch",
        "submit",
        "stop",
    ]
    for words in (
        *([name] for name in commands),
        ["store", "verify"],
        ["store", "compact"],
        ["store", "diff"],
    ):
        code, out, _ = prunebench(*words, "--help")
        assert code == 0
        assert "Example: prunebench" in " ".join(out.split())


def test_doctor_prints_json(prunebench):
    code, out, _ = prunebench("doctor", "--json")
    assert code == 0
    assert {"Python", "torch", "cache"} <= {check["name"] for check in json.loads(out)}


def test_prune_prints_the_contract(prunebench, tiny, tokens):
    code, out, _ = prunebench(
        "prune",
        "--model",
        tiny("llama"),
        "--method",
        "shortgpt",
        "--budget",
        "2",
        "--calibration",
        tokens,
        "--json",
    )
    result = json.loads(out)
    assert code == 0
    assert result["method"] == "shortgpt"
    assert result["budget"] == 2
    assert len(result["removed_layers"]) == 2
    assert result["merged"] == {}
    assert result["kept_features"] == {}
    assert result["removed_params"] == result["requested_params"]
    assert result["params"]["last_state"] == "prenorm"
    assert len(result["plan_id"]) == 16
    assert result["dtype"] == "float32"
    assert result["seconds"] > 0
    assert result["peak_rss_mb"] > 0


def test_prune_takes_parameters_and_a_ratio(prunebench, tiny, tokens):
    code, out, _ = prunebench(
        "prune", "--model", tiny("llama"), "--method", "last_n", "--budget", "ratio:0.34", "--json"
    )
    assert code == 0
    assert json.loads(out)["removed_layers"] == [4, 5]
    code, out, _ = prunebench(
        "prune", "--model", tiny("llama"), "--method", "lorp", "--budget", "1", "--calibration", tokens,
        "--param", "clusters=2", "--param", "variant=paper", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["params"]["variant"] == "paper"


def test_prune_exports_and_the_export_is_a_checkpoint(prunebench, tiny, tokens, tmp_path):
    out_folder = tmp_path / "pruned"
    code, out, _ = prunebench(
        "prune", "--model", tiny("llama"), "--method", "layertrim", "--budget", "1",
        "--calibration", tokens, "--out", out_folder, "--layout", "padded",
    )  # fmt: skip
    assert code == 0
    assert "exported to" in out
    assert (out_folder / "model.safetensors").is_file()
    code, out, _ = prunebench("prune", "--model", out_folder, "--method", "last_n", "--budget", "1", "--json")
    assert code == 0


def test_an_export_says_which_runtimes_load_it(prunebench, tiny, tmp_path):
    narrow = LayerSpec(base=1, features=Mask.keep(range(20), 44))
    plan = PruningPlan(num_layers=6, layers=(LayerSpec(base=0), narrow))
    (tmp_path / "plan.json").write_text(plan.canonical)
    code, out, _ = prunebench("export", "--model", tiny("gemma2"), "--plan", "plan.json", "--out", "out")
    assert code == 0
    assert "(deployed)\n" in out
    assert "transformers: proven in 5" in out
    assert "; needs trust_remote_code=True\n" in out
    assert "vllm: refused: unequal MLP widths of Gemma-2 are not served" in out
    code, _, err = prunebench("prune", "--model", tmp_path / "out", "--method", "last_n", "--budget", "1")
    assert code == 2
    assert "layers of unequal sizes" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--layout", "padded"], "give --out too"),
        (["--prove-vllm"], "give --out too"),
        (["--out", "x", "--layout", "thin"], "'thin' is not one of auto, deployed, padded"),
    ],
)
def test_an_export_that_cannot_be_is_refused_before_planning(prunebench, tiny, words, sentence):
    code, _, err = prunebench(
        "prune", "--model", tiny("llama"), "--method", "last_n", "--budget", "1", *words
    )
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "lrop"], "did you mean 'lorp'"),
        (["--method", "lorp"], "lorp needs --calibration SPEC"),
        (["--method", "last_n", "--budget", "0"], "at least 1 layer-equivalent"),
        (["--method", "last_n", "--budget", "-2"], "at least 1 layer-equivalent"),
        (["--method", "last_n", "--budget", "6"], "cannot remove 6 of 6 layers: at most 5"),
        (["--method", "lorp", "--budget", "5"], "cannot remove 5 of 6 layers: at most 4"),
        (["--method", "last_n", "--budget", "seven"], "'seven' is not a number of layers"),
        (["--method", "layertrim", "--budget", "4"], "trims 8 MLPs, but only 6 of 6 layers"),
        (["--method", "last_n", "--param", "protct=[1]"], "did you mean 'protect'"),
        (["--method", "last_n", "--param", "protect=x"], "protect"),
        (["--method", "last_n", "--param", "protect"], "not of the form key=value"),
        (["--method", "wrp", "--memory", "lots"], "not an amount of memory"),
        (["--method", "lorp", "--calibration", "text:nothing.txt"], "nothing.txt"),
        (["--method", "lorp", "--calibration", "texd:x"], "did you mean 'text'"),
        (["--method", "last_n", "--budget", "9" * 5000], "is not a number of layers"),
        (["--method", "laco", "--param", "threshold=nan"], "threshold cannot be nan"),
        (["--method", "last_n", "--dtype", "int8"], "prune: dtype: Input should be 'float32'"),
        (
            ["--method", "last_n", "--attention", "flash"],
            "prune: attention: Input should be 'sdpa' or 'eager'",
        ),
        (["--method", "last_n", "--device", "tpu"], "prune: device: Input should be 'cpu' or 'cuda'"),
    ],
)
def test_wrong_arguments_are_sentences_with_exit_code_2(prunebench, tiny, words, sentence):
    given = ["prune", "--model", tiny("llama"), *words]
    code, out, err = prunebench(*given, *([] if "--budget" in words else ["--budget", "1"]))
    assert code == 2
    assert sentence in err
    assert err.startswith("error: ")
    assert "Traceback" not in out + err


def test_token_ids_outside_the_vocabulary_are_refused(prunebench, tiny, tmp_path):
    np.save(tmp_path / "bad.npy", np.array([[1, 2, 3], [4, 999, 5]]))
    code, _, err = prunebench(
        "prune",
        "--model",
        tiny("llama"),
        "--method",
        "shortgpt",
        "--budget",
        "1",
        "--calibration",
        "tokens:bad.npy",
    )
    assert code == 2
    assert "999" in err
    assert "272" in err


def test_bench_prints_every_repeat_of_a_plan_of_a_store(prunebench, tiny, finished):
    _, store = finished
    plan = next(path.stem for path in (store / "plans").iterdir())
    words = ["bench", "--model", tiny("llama"), "--store", store, "--plan", plan, "--protocol", "layertrim"]
    words += ["--set", "prompt_tokens=8", "--set", "steps=3", "--set", "warmup=0", "--set", "repeats=2"]
    code, out, _ = prunebench(*words, "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["plan_id"], told["protocol"], told["prompt_tokens"]) == (plan, "layertrim", 8)
    assert (told["compiled"], told["threads"], told["dtype"]) == (False, 1, "float32")
    assert told["hardware"]
    assert len(told["metrics"]["prefill_ms"]["repeats"]) == 2
    assert set(told["metrics"]) >= {"decode_ms_per_token", "tokens_per_s", "parameters"}
    code, out, _ = prunebench(*words)
    assert code == 0
    assert "(median of 2, sd" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--protocol", "lopr"], "no efficiency protocol 'lopr': did you mean 'lorp'"),
        (["--protocol", "lorp", "--set", "steps=3"], "times one forward pass"),
        (["--protocol", "lorp", "--set", "prompt_tokens=1"], "bench: prompt_tokens"),
        (["--protocol", "lorp", "--set", "tokens=8"], "unknown key 'tokens'"),
        (["--protocol", "lorp", "--plan", "nowhere.json"], "no plan file 'nowhere.json'"),
        (["--protocol", "lorp", "--set", "hardware=Abacus 3000"], "the task is for Abacus 3000"),
    ],
)
def test_bench_refuses_what_it_cannot_time(prunebench, tiny, words, sentence):
    code, _, err = prunebench("bench", "--model", tiny("llama"), *words)
    assert code == 2
    assert sentence in err


def test_an_unreachable_budget_is_exit_code_3_with_the_nearest(prunebench, tiny, tokens):
    code, _, err = prunebench(
        "prune", "--model", tiny("llama"), "--method", "laco", "--budget", "3", "--calibration", tokens,
        "--param", "merge_layers=3", "--param", "interval=1", "--param", "threshold=0.9999",
    )  # fmt: skip
    assert code == 3
    assert "laco, budget 3" in err


def test_a_gpu_that_is_not_there_is_exit_code_4_within_seconds(prunebench, tiny, tokens):
    code, _, err = prunebench(
        "prune", "--model", tiny("llama"), "--method", "shortgpt", "--budget", "1",
        "--calibration", tokens, "--device", "cuda",
    )  # fmt: skip
    assert code == 4
    assert "GPU" in err


def test_a_run_reports_its_leaderboard_and_the_store_commands_read_it(prunebench, write_config, tmp_path):
    path = write_config(
        methods=[{"method": "shortgpt"}, {"method": "layertrim"}, {"method": "last_n"}], budgets=[1]
    )
    store = tmp_path / "store"
    code, out, err = prunebench("plan", path, "--json")
    assert code == 0
    assert json.loads(out)["variants"] == 4
    code, out, err = prunebench("run", path)
    assert code == 0
    assert "Short" in out
    assert "evaluate" in err
    code, out, _ = prunebench("run", path, "--quiet", "--json")
    assert code == 0
    assert json.loads(out)["failures"] == 0
    code, out, _ = prunebench("status", store, "--json")
    assert json.loads(out)["runs"] == 2
    assert json.loads(out)["open_failures"] == 0
    code, out, _ = prunebench("store", "verify", store)
    assert (code, out.splitlines()[-1]) == (0, "0 findings")
    assert prunebench("store", "compact", store)[0] == 0
    assert prunebench("store", "diff", store, store)[:2] == (0, "equal\n")
    code, out, _ = prunebench("report", "--store", store, "--out", tmp_path / "report")
    assert code == 0
    for name in ("index.html", "leaderboard.csv", "leaderboard.md", "leaderboard.tex"):
        assert (tmp_path / "report" / name).stat().st_size > 0


def test_folders_that_are_no_store_are_refused(prunebench, tmp_path):
    for words in (
        ["status", tmp_path],
        ["store", "verify", tmp_path],
        ["report", "--store", tmp_path, "--out", "r"],
    ):
        code, _, err = prunebench(*words)
        assert code == 2
        assert "not a prunebench store" in err


@pytest.mark.parametrize(("job", "command"), [("benchmark", "run"), ("search", "search")])
def test_jobs_call_the_same_program(job, command):
    text = (ROOT / "jobs" / f"{job}.py").read_text()
    assert len(text.splitlines()) < 30
    assert f'main(["{command}"' in text


def test_more_threads_than_a_process_can_start_are_refused(prunebench, tiny):
    """OpenMP would end the process with a segmentation fault."""
    code, _, err = prunebench(
        "prune", "--model", tiny("llama"), "--method", "last_n", "--budget", "1", "--threads", "99999"
    )
    assert code == 2
    assert "--threads" in err


def test_a_taken_out_folder_is_refused_before_anything_is_measured(prunebench, tiny, tokens, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    code, _, err = prunebench(
        "prune", "--model", tiny("llama"), "--method", "shortgpt", "--budget", "1",
        "--calibration", tokens, "--out", "taken",
    )  # fmt: skip
    assert code == 2
    assert err == "error: 'taken' exists and is not an empty folder: give another --out\n"


def test_a_replacement_that_is_no_yaml_is_a_sentence(prunebench, write_config):
    code, _, err = prunebench("plan", write_config(), "--set", "budgets=[")
    assert code == 2
    assert "--set budgets=[: the value is not valid YAML" in err


def test_an_address_is_taken_word_for_word(prunebench, write_config):
    code, _, err = prunebench("run", write_config(), "--executor", "ray", "--address", "[::1]:1")
    assert code == 4
    assert "cannot reach or start Ray at [::1]:1" in err


def test_a_run_does_not_start_where_something_else_lies_and_plan_says_so(prunebench, write_config, tmp_path):
    (tmp_path / "file").touch()
    for place, sentence in (("file", "is a file"), (".", "no prunebench store and not empty")):
        for command in ("plan", "run"):
            code, _, err = prunebench(command, write_config(), "--store", place)
            assert code == 2
            assert sentence in err


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [("../x", "'../x' is not a plan id"), ("", "'' is not a plan id"), ("0" * 16, "has no plan 0000")],
)
def test_a_plan_that_the_store_cannot_have_is_a_sentence(prunebench, tiny, finished, plan, sentence):
    code, _, err = prunebench(
        "export", "--model", tiny("llama"), "--store", finished[1], "--plan", plan, "--out", "x"
    )
    assert code == 2
    assert sentence in err


def test_a_plan_file_that_is_no_text_is_named(prunebench, tiny, tmp_path):
    (tmp_path / "plan.json").write_bytes(b"\xff")
    code, _, err = prunebench("export", "--model", tiny("llama"), "--plan", "plan.json", "--out", "x")
    assert code == 2
    assert err.startswith("error: plan.json: ")


def test_closed_and_full_outputs_are_no_stack_traces(prunebench, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert prunebench("methods")[0] == 0
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 (it cannot be closed without an error)
    monkeypatch.setattr(sys, "stdout", full)
    code, _, err = prunebench("methods")
    with contextlib.suppress(OSError):
        full.close()
    assert code == 4
    assert "No space left" in err
