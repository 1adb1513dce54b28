"""Experiments whose answers are written: a tiny chat model, a small mirror of GSM8K, the fake engine."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from prunebench.config.experiment import load_experiment
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import GenerateItem, Unit
from prunebench.data.tasks import Document, Question
from prunebench.evaluation.generation.base import Request, Sampling
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.versions import backend_version
from prunebench.evaluation.worker import Worker
from prunebench.pipeline.benchmark import Outcome, run_benchmark
from prunebench.pipeline.executor import LocalExecutor
from prunebench.pipeline.progress import Silent

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% if enable_thinking %}<think>{% endif %}{% endif %}"
)
QUESTIONS = ("How many are two and two?", "What is half of six?", "How much is nine less five?")


def write_chat_model(source: Path, folder: Path) -> Path:
    """A copy of a tiny model with a chat template and room for long prompts."""
    shutil.copytree(source, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def request_for(codec: Codec, text: str, *, seed: int = 0, stop: tuple[str, ...] = (), **sampling) -> Request:
    """A question in chat; greedy unless a temperature is given."""
    question = Question(prompt=text, raw=False, grader="integer", reference="1", stop=stop)
    chosen = replace(Sampling(context=512, max_tokens=24), **sampling)
    return Request(prompt=codec.encode(question), sampling=chosen, seed=seed, stop=stop)


UNIT = Unit(
    weights_id="w",
    tokenizer_hash="t",
    plan_id="",
    task="task",
    task_version="1",
    recipe="{}",
    document_hash="d",
    start=0,
    stop=1,
    dtype="float32",
    attention="sdpa",
    scorer_version="integer-1",
    generation=Sampling(context=512, max_tokens=16, temperature=0.6, top_p=0.95).to_json(),
)


def generation_item(texts: Sequence[str], plan: PruningPlan, backend: str) -> GenerateItem:
    """An item of one plan whose document i asks text i; its right answer is i."""
    unit = replace(UNIT, plan_id=plan.plan_id, backend=backend, backend_version=backend_version(backend))
    units = tuple(replace(unit, start=i, stop=i + 1, document_hash=str(i)) for i in range(len(texts)))
    documents = tuple(
        Document(
            doc_id=i,
            doc_hash=str(i),
            payload=Question(prompt=text, raw=False, grader="integer", reference=i),
        )
        for i, text in enumerate(texts)
    )
    return GenerateItem(model="m", engine="e", plan=plan, units=units, documents=documents)


def write_mirror(folder: Path, questions: Sequence[str] = QUESTIONS) -> Path:
    """A mirror of GSM8K in which the answer to question i is i + 1."""
    path = folder / "openai" / "gsm8k" / "main" / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    rows = [{"question": text, "answer": f"So it is.\n#### {i + 1}"} for i, text in enumerate(questions)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return folder


def write_experiment(folder: Path, model: Path, questions: Sequence[str] = QUESTIONS, **changes) -> Path:
    """An experiment file with one generative task on the fake engine; keywords replace settings."""
    write_mirror(folder / "mirror", questions)
    (folder / "orders").mkdir()
    settings = {
        "models": [{"path": str(model), "dtype": "float32", "name": "tiny"}],
        "methods": [{"method": "last_n"}],
        "budgets": [1, 2],
        "engines": {"default": {"kind": "fake", "orders": "orders"}},
        "tasks": {"gsm8k": {"kind": "reasoning", "benchmark": "gsm8k", "sampling": {"max_tokens": 64}}},
        "mirror": "mirror",
        "store": "store",
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**settings, **changes}))
    return path


def calls_of(folder: Path) -> list[str]:
    """The calls that the fake engine noted: plan and number of prompts."""
    calls = folder / "orders" / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def run_here(path: Path, store: Path) -> Outcome:
    """Run an experiment in this process."""
    return run_benchmark(
        load_experiment(path), store, lambda setups: LocalExecutor(lambda: Worker(setups, 1)), Silent()
    )
