"""Traces by the fake engine: resumed, never made twice, read by calibration, and caught by the leak guard."""

import json

import pytest

from prunebench.cli import main
from prunebench.config.experiment import load_experiment
from prunebench.core.plan import PruningPlan
from prunebench.data.corpus import load_corpus
from prunebench.data.spec import parse_spec
from prunebench.errors import IncompleteError, InputError
from prunebench.models.checkpoint import Checkpoint
from prunebench.pipeline.prepare import prepare, text_codec
from prunebench.pipeline.progress import Silent
from prunebench.pipeline.traces import engine_setup, model_setup, prepare_traces, sampling_of, write_traces
from written import QUESTIONS, calls_of, write_chat_model, write_experiment, write_mirror


@pytest.fixture(scope="module")
def chat_model(tiny, tmp_path_factory):
    return write_chat_model(tiny("llama"), tmp_path_factory.mktemp("chat") / "tiny")


@pytest.fixture
def folder(tmp_path):
    write_mirror(tmp_path / "mirror")
    (tmp_path / "orders").mkdir()
    return tmp_path


@pytest.fixture
def job_of(folder, chat_model):
    def make(*, count=3, seed=0, temperature=0.6, max_tokens=64, kind="fake", model=chat_model, **engine):
        checkpoint = Checkpoint.open(model)
        orders = {"orders": folder / "orders"} if kind == "fake" else {}
        return prepare_traces(
            checkpoint,
            model_setup(checkpoint, dtype="auto", attention="sdpa", device="cpu"),
            engine=engine_setup(kind, {**orders, **engine}),
            sampling=sampling_of(temperature, 0.95, max_tokens, seed),
            benchmark="gsm8k",
            count=count,
            mirror=folder / "mirror",
            threads=1,
            out=folder / "traces.jsonl",
        )

    return make


def lines_of(folder):
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def prompts(folder, questions):
    """Another mirror with other questions."""
    (folder / "mirror" / "openai" / "gsm8k" / "main" / "test-00000-of-00001.parquet").unlink()
    (folder / "mirror" / "openai" / "gsm8k" / "main").rmdir()
    (folder / "mirror" / "openai" / "gsm8k").rmdir()
    (folder / "mirror" / "openai").rmdir()
    write_mirror(folder / "mirror", questions)


def test_each_problem_gives_a_line_with_its_origin(folder, job_of, chat_model):
    traced = write_traces(job_of(), Silent())
    assert (traced.written, traced.kept, traced.limit_hits) == (3, 0, 0)
    lines = lines_of(folder)
    assert [line["id"] for line in lines] == [0, 1, 2]
    assert len({line["key"] for line in lines}) == len({line["generation"] for line in lines}) == 3
    for line, question in zip(lines, QUESTIONS, strict=True):
        assert question in line["prompt"]
        assert line["prompt"].endswith("[assistant] <think>"), "reasoning is on"
        assert line["weights_id"] == Checkpoint.open(chat_model).weights_id
        assert json.loads(line["sampling"]) == {
            "context": 2048,
            "max_tokens": 64,
            "temperature": 0.6,
            "top_p": 0.95,
        }
        assert (line["seed"], line["engine"], line["dtype"]) == (0, "fake", "float32")
    assert [path.name for path in folder.glob("traces*")] == ["traces.jsonl"]


def test_calibration_reads_prompt_and_generation(folder, job_of, chat_model):
    write_traces(job_of(), Silent())
    codec = text_codec(Checkpoint.open(chat_model))
    corpus = load_corpus(parse_spec("traces:traces.jsonl", folder), codec)
    for line, row, prompt in zip(lines_of(folder), corpus.rows, corpus.prompts, strict=True):
        assert row.tolist() == [*line["prompt_ids"], *codec.encode(line["generation"])]
        assert prompt == len(line["prompt_ids"])


def test_the_same_command_again_asks_no_engine_and_touches_nothing(folder, job_of):
    write_traces(job_of(), Silent())
    before, changed = (folder / "traces.jsonl").read_bytes(), (folder / "traces.jsonl").stat().st_mtime_ns
    traced = write_traces(job_of(), Silent())
    assert (traced.written, traced.kept) == (0, 3)
    assert (folder / "traces.jsonl").read_bytes() == before
    assert (folder / "traces.jsonl").stat().st_mtime_ns == changed
    assert len(calls_of(folder)) == 1


class Impatient(Silent):
    """Stops the driver after a trace, as Ctrl-C does."""

    def advance(self, *, failed=False):
        raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_where_it_stopped(folder, job_of):
    write_traces(job_of(), Silent())
    undisturbed = (folder / "traces.jsonl").read_bytes()
    (folder / "traces.jsonl").unlink()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            write_traces(job_of(), Impatient())
        assert not (folder / "traces.jsonl").exists()
    assert write_traces(job_of(), Silent()).written == 1
    assert (folder / "traces.jsonl").read_bytes() == undisturbed
    dense = PruningPlan.dense(6).plan_id
    assert calls_of(folder) == [f"{dense} {count}" for count in (3, 3, 2, 1)]


def test_more_problems_are_added_to_those_that_are_there(folder, job_of):
    write_traces(job_of(count=2), Silent())
    first = lines_of(folder)
    assert write_traces(job_of(count=3), Silent()).written == 1
    assert lines_of(folder)[:2] == first


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"temperature": 0}, {"max_tokens": 32}, {"count": 2}], ids=str
)
def test_traces_of_other_settings_are_not_overwritten(folder, job_of, change):
    write_traces(job_of(), Silent())
    before = (folder / "traces.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"traces\.jsonl holds \d traces of another .*choose another --out"):
        write_traces(job_of(**change), Silent())
    assert (folder / "traces.jsonl").read_bytes() == before
    assert len(calls_of(folder)) == 1


def test_what_an_engine_wrote_before_it_died_is_kept(folder, job_of):
    prompts(folder, [QUESTIONS[0], "[raise] now", QUESTIONS[2]])
    for _ in range(2):
        with pytest.raises(IncompleteError, match=r"the engine died \(RuntimeError: .*as ordered\)"):
            write_traces(job_of(), Silent())
    assert len(list((folder / "traces.jsonl.parts").iterdir())) == 1
    assert [line.rpartition(" ")[2] for line in calls_of(folder)] == ["3", "2"]


def test_problems_without_finite_logits_are_counted_and_the_others_kept(folder, job_of):
    prompts(folder, [QUESTIONS[0], "[nan] now", QUESTIONS[2]])
    with pytest.raises(IncompleteError, match="1 of 3 traces could not be written"):
        write_traces(job_of(), Silent())
    assert len(list((folder / "traces.jsonl.parts").iterdir())) == 2


def test_traces_that_the_limit_cut_are_counted(folder, job_of):
    prompts(folder, [QUESTIONS[0], "[limit] now"])
    assert write_traces(job_of(count=2), Silent()).limit_hits == 1
    assert lines_of(folder)[1]["finish_reason"] == "length"


def test_too_few_problems_and_prompts_without_room_are_refused(folder, job_of):
    with pytest.raises(InputError, match="24"):
        job_of(count=24)
    prompts(folder, ["why " * 600])
    with pytest.raises(InputError, match=r"problem 0 has \d+ tokens, and the context of 2048"):
        write_traces(job_of(count=1), Silent())


def test_a_model_without_chat_template_is_refused(job_of, tiny):
    with pytest.raises(InputError, match="has no chat template"):
        job_of(model=tiny("llama"))


@pytest.mark.parametrize("text", ["{torn", '{"prompt": "p", "generation": "g"}'])
def test_a_file_that_is_something_else_is_named_and_left_alone(folder, job_of, text):
    (folder / "traces.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"line 1 of .*traces\.jsonl is"):
        write_traces(job_of(), Silent())
    assert (folder / "traces.jsonl").read_text() == text


def test_transformers_writes_them_too(folder, job_of):
    assert write_traces(job_of(kind="hf", count=2, max_tokens=4), Silent()).written == 2
    assert [line["num_tokens"] for line in lines_of(folder)] == [4, 4]
    assert write_traces(job_of(kind="hf", count=2, max_tokens=4), Silent()).kept == 2


def test_a_test_task_of_the_same_problems_is_caught_by_the_leak_guard(tmp_path, chat_model):
    (tmp_path / "run").mkdir()
    settings = {
        "calibrations": {"default": "traces:traces.jsonl"},
        "methods": [{"method": "layertrim"}],
        "budgets": [1],
    }
    long = [f"{question} Say so in words, and think of what you were told before." for question in QUESTIONS]
    path = write_experiment(tmp_path / "run", chat_model, long, **settings)
    checkpoint = Checkpoint.open(chat_model)
    job = prepare_traces(
        checkpoint,
        model_setup(checkpoint, dtype="auto", attention="sdpa", device="cpu"),
        engine=engine_setup("fake", {}),
        sampling=sampling_of(0.6, 0.95, 64, 0),
        benchmark="gsm8k",
        count=2,
        mirror=tmp_path / "run" / "mirror",
        threads=1,
        out=tmp_path / "run" / "traces.jsonl",
    )
    write_traces(job, Silent())
    sentence = r"calibration 'default' shares text with the test task gsm8k: 2 of its 3 documents"
    with pytest.raises(InputError, match=sentence):
        prepare(load_experiment(path))
    (subject,) = prepare(load_experiment(path, ["allow_overlap=true"]))
    assert [overlap.shared for overlap in subject.overlaps] == [2]


def test_the_command_prints_what_it_did(folder, chat_model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["traces", "--model", str(chat_model), "--out", "t.jsonl", "--benchmark", "gsm8k", "--count", "2"]
    words += ["--mirror", "mirror", "--engine", "fake", "--max-tokens", "16", "--quiet"]
    with pytest.raises(SystemExit) as done:
        main([*words, "--json"])
    assert not done.value.code
    told = json.loads(capsys.readouterr().out)
    assert told == {"out": str(folder / "t.jsonl"), "written": 2, "kept": 0, "limit_hits": told["limit_hits"]}
    with pytest.raises(SystemExit):
        main(words)
    assert "0 traces written, 2 there before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--engine", "vlm"], "traces: "),
        (["--engine", "fake", "--set", "order=x"], "unknown key 'order'"),
        (["--engine", "fake", "--top-p", "2"], "top_p"),
        (["--engine", "fake", "--benchmark", "nothing"], "benchmark 'nothing'"),
    ],
)
def test_wrong_settings_are_sentences(folder, chat_model, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as done:
        main(["traces", "--model", str(chat_model), "--out", "t.jsonl", "--mirror", "mirror", *words])
    assert done.value.code == 2
    assert sentence in capsys.readouterr().err
