"""Benchmarks of open questions in an experiment file."""

import pytest

from mirrors import write_rows
from prunebench.config.experiment import load_experiment
from prunebench.config.tasks import ReasoningTask
from prunebench.data.codec import TextCodec
from prunebench.errors import InputError
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.tokenizer import Encoder
from prunebench.pipeline.prefetch import named_splits
from prunebench.pipeline.tasks import Reading, Site, load_task

CODEC = TextCodec(encode=lambda text: list(text.encode()), decode=str, vocab_size=256, bos_id=None)


def task(benchmark, **more) -> dict:
    return {"kind": "reasoning", "benchmark": benchmark, **more}


@pytest.fixture
def experiment_of(write_config):
    return lambda **changes: load_experiment(
        write_config(
            methods=[{"method": "last_n"}],
            calibrations={},
            probes={},
            mirror="data",
            engines={"default": {"kind": "fake"}},
            **changes,
        )
    )


def test_a_task_of_a_file_becomes_the_questions_of_its_benchmark(experiment_of, tmp_path, tiny):
    rows = [{"question": f"How many, {i}?", "answer": f"#### {i}"} for i in range(3)]
    write_rows(tmp_path / "data", "openai/gsm8k/main", "test", rows)
    experiment = experiment_of(tasks={"maths": task("gsm8k", limit=2, role="selection")})
    reading = Reading(
        base=experiment.base,
        mirror=experiment.mirror_folder,
        codec=CODEC,
        encoder=Encoder(Checkpoint.open(tiny("llama"))),
        site=Site(device="cpu", threads=1),
    )
    loaded = load_task("maths", experiment.tasks["maths"], reading)
    assert (loaded.name, loaded.role, loaded.kind, len(loaded.documents)) == (
        "maths",
        "selection",
        "generate",
        2,
    )


def test_prefetch_fetches_what_benchmarks_read(experiment_of):
    experiment = experiment_of(
        tasks={"code": task("mbpp_plus"), "science": task("gpqa_diamond")}, allow_code_execution=True
    )
    assert [str(split) for split in named_splits(experiment)] == [
        "Idavidrein/gpqa/gpqa_diamond:train",
        "evalplus/mbppplus:test",
    ]


@pytest.mark.parametrize("benchmark", ["humaneval", "humaneval_plus", "mbpp_plus"])
def test_code_of_models_is_refused_before_anything_runs_unless_it_is_allowed(experiment_of, benchmark):
    with pytest.raises(InputError) as error:
        experiment_of(tasks={"code": task(benchmark)})
    assert f"task code ({benchmark}) runs code that a model wrote: set allow_code_execution: true" in str(
        error.value
    )
    allowed = experiment_of(tasks={"code": task(benchmark)}, allow_code_execution=True)
    assert isinstance(allowed.tasks["code"], ReasoningTask)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"benchmark": "humanevals"}, "unknown benchmark 'humanevals': did you mean 'humaneval'?"),
        ({"limit": 0}, "greater than or equal to 1"),
        ({"shots": 5}, "unknown key 'shots'"),
    ],
)
def test_a_wrong_task_is_explained(experiment_of, wrong, sentence):
    with pytest.raises(InputError) as error:
        experiment_of(tasks={"t": {**task("aime25"), **wrong}})
    assert sentence in str(error.value)
