"""Benchmarks of open questions from a mirror."""

import re
from pathlib import Path

import pyarrow.parquet as pq

from prunebench.core.fingerprint import sha256_json
from prunebench.data.mirror import shards_of
from prunebench.data.tasks import Document, Question, Role, TaskData, version_of
from prunebench.errors import InputError

VERSION = 1
BOXED = "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def questions_task(
    benchmark: str, *, name: str, role: Role = "test", limit: int | None = None, mirror: Path | None = None
) -> TaskData:
    """The questions of a benchmark.

    Raises:
        InputError: an unknown benchmark, or one that the mirror lacks.
    """
    if benchmark != "gsm8k" or mirror is None:
        raise InputError(f"task {name}: benchmark '{benchmark}' needs a mirror and is one of: gsm8k")
    files = shards_of(f"task {name}", mirror, "openai/gsm8k/main", "test")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()][:limit]
    prompts = [BOXED.format(row["question"]) for row in rows]
    references = [re.sub(r"[,\s]", "", row["answer"].rpartition("####")[2]) for row in rows]
    documents = tuple(
        Document(
            doc_id=number,
            doc_hash=sha256_json([prompt, reference]),
            payload=Question(prompt=prompt, raw=False, grader="integer", reference=reference),
        )
        for number, (prompt, reference) in enumerate(zip(prompts, references, strict=True))
    )
    texts = tuple(row["question"] for row in rows)
    return TaskData(
        name=name,
        version=version_of(VERSION, texts),
        role=role,
        kind="generate",
        recipe={"benchmark": benchmark, "documents": len(documents)},
        documents=documents,
        texts=texts,
    )
