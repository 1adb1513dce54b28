"""Commands on one unpruned or pruned model by itself: bench and traces."""

from pathlib import Path
from typing import Annotated

import typer

from prunebench.cli.app import AsJson, app, say, show, show_json
from prunebench.cli.executors import need_local_gpu

Model = Annotated[str, typer.Option(help="The dense model: a folder, a hub id or builtin:NAME.")]
Dtype = Annotated[
    str,
    typer.Option(help="auto (float32 on a CPU, the checkpoint's on a GPU), float32, bfloat16 or float16."),
]
Attention = Annotated[str, typer.Option(help="sdpa or eager.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="CPU threads.")]


@app.command(
    epilog="Example: prunebench bench --model builtin:smollm2-135m --protocol layertrim "
    "--set prompt_tokens=256 --set steps=16 --json"
)
def bench(
    model: Model,
    protocol: Annotated[str, typer.Option(help="layertrim, lorp or simdiff.")],
    plan: Annotated[
        str | None,
        typer.Option(help="A plan's JSON file, or with --store a plan id; the dense model by default."),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="The store that holds the plan.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="A=B", help="batch, prompt_tokens, steps, warmup, repeats or compiled."
        ),
    ] = None,
    dtype: Dtype = "auto",
    attention: Attention = "sdpa",
    device: Device = "cpu",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Time a model's deployed shape by a paper's protocol. Nothing else should run meanwhile."""
    from prunebench.config.experiment import parse_model
    from prunebench.config.params import parse_assignments
    from prunebench.pipeline.bench import bench as run_bench
    from prunebench.pipeline.bench import parse_efficiency, prepare_bench
    from prunebench.pipeline.plans import find_plan
    from prunebench.pipeline.tasks import Site

    known = "float32" if dtype == "auto" else dtype
    parse_model("bench", path=model, dtype=known, attention=attention, device=device)
    setting = parse_efficiency(protocol, parse_assignments(sets or ()))
    if device != "cpu":
        need_local_gpu()
    found = None if plan is None else find_plan(plan, store)
    site = Site(device=device, threads=threads)
    timed = run_bench(prepare_bench(model, found, setting, dtype=dtype, attention=attention, site=site))
    if as_json:
        show_json(timed.to_json())
        return
    facts = timed.to_json()
    show(f"{facts['model']}, plan {facts['plan_id']}, protocol {protocol}, {facts['dtype']}")
    threaded = "1 thread" if threads == 1 else f"{threads} threads"
    show(f"{facts['hardware']}, {threaded}, {'compiled' if facts['compiled'] else 'eager'}")
    for metric, measured in timed.metrics.items():
        value = measured["value"]
        told = "cannot be told here" if value is None else f"{value:.6g}"
        if (repeats := measured.get("repeats")) is not None:
            spread = "" if measured["sd"] is None else f", sd {measured['sd']:.3g}"
            told += f"  ({measured['statistic']} of {len(repeats)}{spread})"
        show(f"{metric:<22}{told}")


@app.command(
    epilog="Example: prunebench traces --model path/to/Qwen3-14B --device cuda --mirror mirror "
    "--out aime24.jsonl"
)
def traces(
    model: Model,
    out: Annotated[Path, typer.Option(help="The file of JSON lines to write.")],
    mirror: Annotated[Path | None, typer.Option(help="Folder that serves hub datasets.")] = None,
    benchmark: Annotated[str, typer.Option(help="Whose problems are solved.")] = "aime24",
    count: Annotated[int, typer.Option(min=1, help="Problems, the first ones.")] = 24,
    engine: Annotated[str, typer.Option(help="vllm, hf or fake.")] = "vllm",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A=B", help="A setting of the engine, such as tensor_parallel=2."),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.6,
    top_p: Annotated[float, typer.Option(help="Of nucleus sampling.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a trace.")] = 16_384,
    dtype: Dtype = "auto",
    attention: Attention = "sdpa",
    device: Device = "cpu",
    threads: Threads = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write reasoning traces of the dense model for `traces:FILE` calibrations; the same command resumes."""
    from prunebench.config.experiment import parse_model
    from prunebench.config.params import parse_assignments
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.pipeline.progress import progress_for
    from prunebench.pipeline.traces import (
        engine_setup,
        model_setup,
        prepare_traces,
        sampling_of,
        write_traces,
    )

    known = "float32" if dtype == "auto" else dtype
    parse_model("traces", path=model, dtype=known, attention=attention, device=device)
    setup = engine_setup(engine, parse_assignments(sets or ()))
    sampling = sampling_of(temperature, top_p, max_tokens, seed)
    if device != "cpu":
        need_local_gpu()
    checkpoint = Checkpoint.open(model)
    job = prepare_traces(
        checkpoint,
        model_setup(checkpoint, dtype=dtype, attention=attention, device=device),
        engine=setup,
        sampling=sampling,
        benchmark=benchmark,
        count=count,
        mirror=mirror,
        threads=threads,
        out=out,
    )
    with progress_for(quiet=quiet) as progress:
        traced = write_traces(job, progress)
    if as_json:
        facts = {"out": str(traced.out), "written": traced.written, "kept": traced.kept}
        show_json({**facts, "limit_hits": traced.limit_hits})
        return
    show(f"{traced.out}: {traced.written} traces written, {traced.kept} there before")
    if traced.limit_hits:
        say(f"{traced.limit_hits} traces were cut at {max_tokens} tokens or at the end of the context")
