"""The command line. Commands are thin; imports that cost seconds are made inside them."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from prunebench.errors import PrunebenchError, ResourceError

app = typer.Typer(
    name="prunebench",
    help="Compare training-free structured pruning methods on a language model.",
    epilog="Exit codes: 0 done, 2 bad configuration or input, 3 failures remain, 4 environment or resources "
    "missing, 130 interrupted (run the same command to resume).",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
store_app = typer.Typer(help="Look after a store.", no_args_is_help=True)
app.add_typer(store_app, name="store")

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM; Typer turns KeyboardInterrupt into it."""

ConfigPath = Annotated[Path, typer.Argument(help="An experiment file (YAML).")]
StorePath = Annotated[Path, typer.Argument(help="The store's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Replace one setting of the file.")
]
StoreOption = Annotated[Path | None, typer.Option("--store", help="Use this store instead of the file's.")]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell may close them (>&-); Python then has None there.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (open as long as the process)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 (open as long as the process)
    try:
        app(args=arguments)
    except PrunebenchError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        _say(f"error: {error}")
        sys.exit(ResourceError.exit_code)
    except SystemExit as done:
        if done.code == INTERRUPTED:
            _say("interrupted: run the same command to resume")
        raise
    sys.exit(0)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")


def _print_json(value: Any) -> None:  # noqa: ANN401 (whatever the command has to say)
    _print(json.dumps(value, indent=2, ensure_ascii=False))


@app.command(epilog="Example: prunebench doctor")
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and lacks."""
    from dataclasses import asdict

    from prunebench.pipeline.doctor import examine

    checks = examine()
    if as_json:
        _print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            state = "ok" if check.ok else "MISSING" if check.needed else "note"
            remedy = "" if check.ok else f"  ({check.remedy})"
            _print(f"{state:<9}{check.name:<18}{check.found}{remedy}")
    if any(check.needed and not check.ok for check in checks):
        raise typer.Exit(4)


@app.command(epilog="Example: prunebench methods --json")
def methods(as_json: AsJson = False) -> None:
    """List the methods with their parameters, defaults and needs."""
    from prunebench.config.params import describe_methods

    listing = describe_methods()
    if as_json:
        _print_json(listing)
        return
    for method in listing:
        _print(f"{method['name']:<16}{method['title']}")
        _print(f"{'':<16}needs {', '.join(method['requires']) or 'nothing'}")
        for name, default in method["params"].items():
            _print(f"{'':<16}  {name} = {json.dumps(default)}")


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
    dtype: Annotated[
        str,
        typer.Option(
            help="auto (float32 on a CPU, the checkpoint's on a GPU), float32, bfloat16 or float16."
        ),
    ] = "auto",
    attention: Annotated[str, typer.Option(help="sdpa or eager.")] = "sdpa",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
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
    from prunebench.models.checkpoint import check_out
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import progress_for
    from prunebench.pipeline.prune import prepare_prune
    from prunebench.pipeline.prune import prune as run_prune

    known = "float32" if dtype == "auto" else dtype
    parse_model("prune", path=model, dtype=known, attention=attention, device=device)
    if out is not None:
        check_out(out)
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
        _need_local_gpu()
    setup = ModelSetup(
        path=str(job.checkpoint.path),
        weights_id=job.checkpoint.weights_id,
        dtype=dtype,
        attention=attention,
        device=device,
    )
    with progress_for(quiet=False) as progress:
        executor = LocalExecutor(lambda: _worker({"model": setup}, threads))
        pruning = run_prune(job, dtype=dtype, executor=executor, progress=progress)
    if out is not None:
        from prunebench.models.export import export as run_export

        run_export(job.checkpoint, pruning.plan, out)
    if as_json:
        _print_json(pruning.to_json())
        return
    shape = job.checkpoint.shape
    _print(
        f"{method}, budget {pruning.request.budget.layers} of {shape.num_layers}: plan {pruning.plan.plan_id}"
    )
    _print(f"removed layers: {', '.join(map(str, pruning.plan.removed_layers)) or 'none'}")
    if pruning.plan.kept_features:
        kept = ", ".join(f"{layer}: {m}" for layer, m in pruning.plan.kept_features.items())
        _print(f"kept MLP features by layer (of {shape.intermediate_size}): {kept}")
    _print(f"removed parameters: {pruning.removed_params:,} (asked for {pruning.requested_params:,})")
    for warning in pruning.warnings:
        _print(f"warning: {warning}")
    if out is not None:
        _print(f"exported to {out}")


@app.command(epilog="Example: prunebench plan configs/benchmark/quickstart.yaml")
def plan(
    config: ConfigPath, sets: Overrides = None, store: StoreOption = None, as_json: AsJson = False
) -> None:
    """Count a run's units, done and to do. Starts nothing."""
    from dataclasses import asdict

    from prunebench.config.experiment import load_experiment
    from prunebench.pipeline.estimate import estimate

    experiment = load_experiment(config, sets or ())
    counts = estimate(experiment, store or experiment.resolve(experiment.store))
    if as_json:
        _print_json({**asdict(counts), "to_do": counts.to_do})
        return
    unplanned = counts.variants - counts.planned
    most = " at most" if unplanned else ""
    _print(f"variants: {counts.variants}, of which {counts.planned} are planned")
    _print(f"distinct plans: {counts.plans}{most}")
    _print(f"units: {counts.units}{most}, {counts.done} done, {counts.to_do} to do")
    estimate_text = "unknown before the first units" if counts.seconds is None else f"{counts.seconds:.0f} s"
    _print(f"worker time left: {estimate_text}")


@app.command(epilog="Example: prunebench run configs/benchmark/quickstart.yaml --executor ray")
def run(
    config: ConfigPath,
    executor: Annotated[str | None, typer.Option(help="local or ray, instead of the file's.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster.")] = None,
    sets: Overrides = None,
    store: StoreOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate, plan, evaluate and store an experiment; the same command resumes it."""
    from dataclasses import asdict

    from prunebench.config.experiment import load_experiment
    from prunebench.pipeline.benchmark import run_benchmark
    from prunebench.pipeline.progress import progress_for

    experiment = load_experiment(config, _words(sets, executor, address))
    folder = store.resolve() if store else experiment.resolve(experiment.store)
    with progress_for(quiet=quiet) as progress:
        outcome = run_benchmark(experiment, folder, _executor_of(experiment.executor), progress)
    if as_json:
        _print_json({**asdict(outcome), "store": str(outcome.store)})
    else:
        from rich.console import Console

        from prunebench.report.tables import leaderboard_table
        from prunebench.report.terminal import print_leaderboard

        print_leaderboard(leaderboard_table(folder), Console())
        _print(f"store: {folder}")
    if outcome.failures:
        _say(f"{outcome.failures} failures remain: see {folder}/failures; the same command tries them again")
        raise typer.Exit(3)


@app.command(epilog="Example: prunebench search configs/search/lorp.yaml --json")
def search(
    config: Annotated[Path, typer.Argument(help="A search file (YAML).")],
    executor: Annotated[str | None, typer.Option(help="local or ray, instead of the file's.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster.")] = None,
    sets: Overrides = None,
    store: StoreOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search a method's parameters on a selection task; the same command resumes."""
    from dataclasses import asdict

    from prunebench.config.search import load_search

    settings = load_search(config, _words(sets, executor, address))
    folder = store.resolve() if store else settings.resolve(settings.store)
    from prunebench.pipeline.progress import progress_for
    from prunebench.pipeline.search import run_search

    with progress_for(quiet=quiet) as progress:
        found = run_search(settings, folder, _executor_of(settings.executor), progress)
    if as_json:
        _print_json({**asdict(found), "store": str(found.store)})
    else:
        for line in found.lines():
            _print(line)
    if found.failures:
        _say(f"{found.failures} failures remain: see {folder}/failures; the same command tries them again")
    if found.best is None and not found.failed:
        _say(f"no setting meets the budget: {'; '.join(found.reasons[:3])}")
    if found.failures or found.best is None:
        raise typer.Exit(3)


@app.command(epilog="Example: prunebench status stores/quickstart")
def status(store: StorePath, as_json: AsJson = False) -> None:
    """Say what a store holds: runs, variants, units, failures."""
    from prunebench.store.summary import summarise

    summary = summarise(store)
    if as_json:
        _print_json(summary)
        return
    for name, value in summary.items():
        _print(f"{name.replace('_', ' '):<22}{value}")


@app.command(epilog="Example: prunebench report --store stores/quickstart --out reports/quickstart")
def report(
    store: Annotated[Path, typer.Option(help="The store's folder.")],
    out: Annotated[Path, typer.Option(help="Folder for index.html, leaderboard.csv, .md and .tex.")],
) -> None:
    """Write the report of a store."""
    from prunebench.report.render import write_report
    from prunebench.store.derive import derive_results

    try:
        # A killed driver leaves samples that no result row tells of yet.
        derive_results(store)
    except ResourceError as error:
        _say(f"warning: {error}; the report shows the results as they were derived last")
    paths = write_report(store, out)
    _print(f"report: {paths.html.resolve()}")


@app.command(epilog="Example: prunebench compare stores/quickstart layertrim@7 shortgpt@7")
def compare(
    store: StorePath,
    a: Annotated[str, typer.Argument(metavar="A", help="A plan id, a variant key or METHOD@BUDGET.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another; differences are A - B.")],
    as_json: AsJson = False,
) -> None:
    """Test one pair of rows on their common documents. Where a store has several models, write MODEL:NAME."""
    from prunebench.report.compare import compare
    from prunebench.report.compare_text import comparison_json, comparison_lines

    comparison = compare(store, a, b)
    if as_json:
        _print_json(comparison_json(comparison))
    else:
        _print("\n".join(comparison_lines(comparison)))


@app.command(
    epilog="Example: prunebench export --model builtin:smollm2-135m --store stores/quickstart "
    "--plan 2e9547601e5df1ec --out pruned"
)
def export(
    model: Annotated[str, typer.Option(help="The dense model: a folder, a hub id or builtin:NAME.")],
    plan: Annotated[str, typer.Option(help="A plan's JSON file, or with --store a plan id.")],
    out: Annotated[Path, typer.Option(help="Folder of the new checkpoint.")],
    store: Annotated[Path | None, typer.Option(help="The store that holds the plan.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a pruned checkpoint that loads in Transformers; it is reloaded and compared before it appears."""
    from prunebench.models.checkpoint import Checkpoint
    from prunebench.models.export import export as run_export
    from prunebench.pipeline.plans import find_plan

    found = find_plan(plan, store)
    manifest = json.loads((run_export(Checkpoint.open(model), found, out) / "prunebench.json").read_text())
    if as_json:
        _print_json({"out": str(out), "plan_id": found.plan_id, "layout": manifest["layout"]})
    else:
        _print(f"exported plan {found.plan_id} to {out} ({manifest['layout']})")


@app.command(epilog="Example: prunebench prefetch configs/benchmark/perplexity.yaml --out mirror")
def prefetch(
    config: ConfigPath,
    out: Annotated[Path, typer.Option(help="The mirror folder to fill.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="Download at most so many rows of each split.")
    ] = None,
    sets: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write every hub dataset that an experiment names into a mirror folder; the same command resumes."""
    from prunebench.config.experiment import load_experiment
    from prunebench.pipeline.prefetch import prefetch as run_prefetch

    done = []
    for fetched in run_prefetch(load_experiment(config, sets or ()), out, rows):
        done.append(fetched.to_json())
        if not as_json:
            first = "" if fetched.first_rows is None else "first "
            _print(f"{fetched.origin:<12}{fetched.split}: {first}{fetched.rows} rows")
    if as_json:
        _print_json({"out": str(out), "datasets": done})
    elif not done:
        _print(f"{config} names no hub dataset: there is nothing to fetch")


@store_app.command("verify", epilog="Example: prunebench store verify stores/quickstart")
def store_verify(store: StorePath, as_json: AsJson = False) -> None:
    """Name torn files, duplicate units and rows without plans. Exit code 3 when there are any."""
    from dataclasses import asdict

    from prunebench.store.verify import verify

    findings = verify(store)
    if as_json:
        _print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _print(str(finding))
        _print(f"{len(findings)} findings")
    if findings:
        raise typer.Exit(3)


@store_app.command("compact", epilog="Example: prunebench store compact stores/quickstart")
def store_compact(store: StorePath) -> None:
    """Fold small files; the rows stay equal."""
    from prunebench.store.compact import compact

    _print(compact(store))


@store_app.command("diff", epilog="Example: prunebench store diff stores/a stores/b")
def store_diff(first: StorePath, second: StorePath, as_json: AsJson = False) -> None:
    """Compare samples and results of two stores. Exit code 0 when equal, 3 when not."""
    from prunebench.store.diff import diff

    differences = diff(first, second)
    if as_json:
        _print_json(differences)
    else:
        for difference in differences:
            _print(difference)
        _print("equal" if not differences else f"{len(differences)} differences")
    if differences:
        raise typer.Exit(3)


def _words(sets: list[str] | None, executor: str | None, address: str | None) -> list[str]:
    """The settings of a file that the command line replaces."""
    given = {"kind": executor, "address": address}
    return [
        *(sets or ()),
        *(f"executor.{name}={json.dumps(word)}" for name, word in given.items() if word is not None),
    ]


def _worker(setups: dict[str, Any], threads: int) -> Any:  # noqa: ANN401 (importing its type would import torch)
    from prunebench.evaluation.worker import Worker

    return Worker(setups, threads)


def _executor_of(entry: Any) -> Callable[[dict[str, Any]], Any]:  # noqa: ANN401 (config and pipeline types: lazy)
    """The executor that the configuration names, to be made once everything else is checked."""
    from prunebench.pipeline.executor import LocalExecutor

    def local(setups: dict[str, Any]) -> LocalExecutor:
        if any(setup.device == "cuda" for setup in setups.values()):
            _need_local_gpu()
        return LocalExecutor(lambda: _worker(setups, entry.threads))

    def ray(setups: dict[str, Any]) -> Any:  # noqa: ANN401
        from prunebench.cluster.executor import Placement, RayExecutor, connect

        connect(entry.address, cpus=max(os.cpu_count() or 1, entry.workers * entry.threads))
        placement = Placement(workers=entry.workers, threads=entry.threads, gpus=entry.gpus_per_worker)
        return RayExecutor("prunebench.evaluation.worker:Worker", (setups, entry.threads), placement)

    return ray if entry.kind == "ray" else local


def _need_local_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise ResourceError(
            "device: cuda was asked for, but this machine has no usable NVIDIA GPU: set device: cpu"
        )
