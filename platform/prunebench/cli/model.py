"""Commands on one model: prune and export."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from prunebench.cli.app import (
    AsJson,
    app,
    show,
    show_json,
)
from prunebench.cli.executors import make_worker, need_local_gpu
from prunebench.errors import InputError

Layout = Annotated[
    str,
    typer.Option(
        help="Of the checkpoint: deployed (narrow MLPs; unequal ones bring a modelling file), padded (the "
        "dense shape with zeros, for runtimes without remote code) or auto (deployed wherever it can be)."
    ),
]
ProveVllm = Annotated[
    bool, typer.Option("--prove-vllm", help="Prove the checkpoint in vLLM too (a minute or two).")
]


@app.command(
    epilog="Example: prunebench prune --model builtin:smollm2-135m --method lorp --budget 7 "
    "--calibration 'builtin:pydoc:calibration?samples=8&length=512' --json"
)
def prune(
    model: Annotated[str, typer.Option(help="A folder, a hub id or builtin:smollm2-135m.")],
    method: Annotated[str, typer.Option(help="A name of `prunebench methods`.")],
    budget: Annotated[str, typer.Option(help="Layer-equivalents to remove: 7, or ratio:0.25.")],
    calibration: Annotated[str | None, typer.Option(help="Calibration text (SPEC).")] = None,
    probe: Annotated[
        str | None,
        typer.Option(help="Probe corpus (SPEC) of methods that ask one; the calibration by default."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the method.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also export the pruned checkpoint into this folder.")
    ] = None,
    layout: Layout = "auto",
    prove_vllm: ProveVllm = False,
    dtype: Annotated[
        str,
        typer.Option(
            help="auto (float32 on a CPU, the checkpoint's on a GPU), float32, bfloat16 or float16."
        ),
    ] = "auto",
    attention: Annotated[str, typer.Option(help="sdpa or eager.")] = "sdpa",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    streamed: Annotated[
        bool, typer.Option("--streamed", help="Read the weights block by block (docs/large-models.md).")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="CPU threads.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="Bound of the weight similarities' memory, such as 2GB.")
    ] = None,
    mirror: Annotated[Path | None, typer.Option(help="Folder that serves hub datasets.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan one method on one model; with --out also export the pruned checkpoint."""
    from prunebench.config.experiment import parse_model
    from prunebench.config.params import parse_assignments, parse_size
    from prunebench.evaluation.setup import ModelSetup
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import progress_for
    from prunebench.pipeline.prune import prepare_prune
    from prunebench.pipeline.prune import prune as run_prune

    known = "float32" if dtype == "auto" else dtype
    parse_model("prune", path=model, dtype=known, attention=attention, device=device)
    _check_export(out, layout, prove_vllm)
    job = prepare_prune(
        model=model,
        method=method,
        budget=budget,
        params=parse_assignments(param or ()),
        calibration=calibration,
        probe=probe,
        mirror=mirror,
        memory=None if memory is None else parse_size(memory),
    )
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else job.checkpoint.dtype
    if device != "cpu":
        need_local_gpu()
    setup = ModelSetup(
        path=str(job.checkpoint.path),
        weights_id=job.checkpoint.weights_id,
        dtype=dtype,
        attention=attention,
        device=device,
        streamed=streamed,
    )
    with progress_for(quiet=False) as progress:
        executor = LocalExecutor(lambda: make_worker({"model": setup}, threads))
        pruning = run_prune(job, dtype=dtype, streamed=streamed, executor=executor, progress=progress)
    if out is not None:
        from prunebench.models.export import export as run_export

        run_export(job.checkpoint, pruning.plan, out, layout=layout, in_vllm=prove_vllm)
    if as_json:
        show_json(pruning.to_json())
        return
    shape = job.checkpoint.shape
    show(
        f"{method}, budget {pruning.request.budget.layers} of {shape.num_layers}: plan {pruning.plan.plan_id}"
    )
    show(f"removed layers: {', '.join(map(str, pruning.plan.removed_layers)) or 'none'}")
    if pruning.plan.kept_features:
        kept = ", ".join(f"{layer}: {m}" for layer, m in pruning.plan.kept_features.items())
        show(f"kept MLP features by layer (of {shape.intermediate_size}): {kept}")
    show(f"removed parameters: {pruning.removed_params:,} (asked for {pruning.requested_params:,})")
    for warning in pruning.warnings:
        show(f"warning: {warning}")
    if out is not None:
        show(f"exported to {out}")


@app.command(
    epilog="Example: prunebench export --model builtin:smollm2-135m --store stores/quickstart "
    "--plan 2e9547601e5df1ec --out pruned"
)
def export(
    model: Annotated[str, typer.Option(help="The dense model: a folder, a hub id or builtin:NAME.")],
    plan: Annotated[str, typer.Option(help="A plan's JSON file, or with --store a plan id.")],
    out: Annotated[Path, typer.Option(help="Folder of the new checkpoint.")],
    store: Annotated[Path | None, typer.Option(help="The store that holds the plan.")] = None,
    layout: Layout = "auto",
    prove_vllm: ProveVllm = False,
    as_json: AsJson = False,
) -> None:
    """Write a pruned checkpoint that loads in Transformers; it is reloaded and compared before it appears."""
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.export import export as run_export
    from prunebench.pipeline.plans import find_plan

    found = find_plan(plan, store)
    folder = run_export(Checkpoint.open(model), found, out, layout=layout, in_vllm=prove_vllm)
    manifest = json.loads((folder / "prunebench.json").read_text())
    if as_json:
        told = {key: manifest[key] for key in ("plan_id", "layout", "runtimes")}
        show_json({"out": str(out), **told})
        return
    show(f"exported plan {found.plan_id} to {out} ({manifest['layout']})")
    for runtime, state in manifest["runtimes"].items():
        show(f"{runtime}: {_described(state)}")


def _check_export(out: Path | None, layout: str, prove_vllm: bool) -> None:
    from prunebench.models.checkpoint import check_out
    from prunebench.models.widths import check_layout, check_vllm

    if out is None:
        if layout != "auto" or prove_vllm:
            raise InputError("--layout and --prove-vllm say how a checkpoint is exported: give --out too")
        return
    check_out(out)
    check_layout(layout)
    if prove_vllm:
        check_vllm()


def _described(runtime: dict[str, Any]) -> str:
    if "refused" in runtime:
        return f"refused: {runtime['refused']}"
    proven = f"proven in {runtime['proven']}" if runtime["proven"] else "not proven (--prove-vllm)"
    return proven if runtime["needs"] == "nothing" else f"{proven}; needs {runtime['needs']}"
