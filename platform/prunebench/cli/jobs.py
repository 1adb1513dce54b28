"""Commands on an experiment file: plan, run, search, prefetch."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from prunebench.cli.app import (
    AddressOption,
    AsJson,
    ConfigPath,
    ExecutorOption,
    Overrides,
    Quiet,
    StoreOption,
    app,
    replaced_words,
    say,
    show,
    show_json,
)
from prunebench.cli.executors import executor_of

if TYPE_CHECKING:
    from prunebench.config.experiment import Setting

OutcomeT = TypeVar("OutcomeT")


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
        show_json({**asdict(counts), "to_do": counts.to_do})
        return
    unplanned = counts.variants - counts.planned
    most = " at most" if unplanned else ""
    show(f"variants: {counts.variants}, of which {counts.planned} are planned")
    show(f"distinct plans: {counts.plans}{most}")
    show(f"units: {counts.units}{most}, {counts.done} done, {counts.to_do} to do")
    estimate_text = "unknown before the first units" if counts.seconds is None else f"{counts.seconds:.0f} s"
    show(f"worker time left: {estimate_text}")
    for need in counts.needs:
        show(f"a worker with {need.model} needs {need.words}")


@app.command(epilog="Example: prunebench run configs/benchmark/quickstart.yaml --executor ray")
def run(
    config: ConfigPath,
    executor: ExecutorOption = None,
    address: AddressOption = None,
    sets: Overrides = None,
    store: StoreOption = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate, plan, evaluate and store an experiment; the same command resumes it."""
    from dataclasses import asdict

    from prunebench.config.experiment import load_experiment

    experiment = load_experiment(config, replaced_words(sets, executor, address))
    from prunebench.pipeline.benchmark import run_benchmark

    outcome = _done(run_benchmark, experiment, store, quiet=quiet)
    if as_json:
        show_json({**asdict(outcome), "store": str(outcome.store)})
    else:
        from rich.console import Console

        from prunebench.report.tables import leaderboard_table
        from prunebench.report.terminal import print_leaderboard

        print_leaderboard(leaderboard_table(outcome.store), Console())
        show(f"store: {outcome.store}")
    _end(outcome.failures, outcome.store)


@app.command(epilog="Example: prunebench search configs/search/lorp.yaml --json")
def search(
    config: Annotated[Path, typer.Argument(help="A search file (YAML).")],
    executor: ExecutorOption = None,
    address: AddressOption = None,
    sets: Overrides = None,
    store: StoreOption = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search methods' parameters on selection tasks; the same command resumes."""
    from prunebench.config.search import load_search

    settings = load_search(config, replaced_words(sets, executor, address))
    from prunebench.pipeline.search import run_search

    found = _done(run_search, settings, store, quiet=quiet)
    if as_json:
        show_json(found.to_json())
    else:
        show("\n".join(found.lines()))
    _end(found.failures, found.store)
    if found.best is None:
        say(f"no setting meets the demands: {'; '.join(found.reasons[:3])}")
        raise typer.Exit(3)


def _done(job: Callable[..., OutcomeT], setting: "Setting", store: Path | None, *, quiet: bool) -> OutcomeT:
    """What a job on a file came to."""
    from prunebench.pipeline.progress import progress_for

    folder = store.expanduser().resolve() if store else setting.resolve(setting.store)
    with progress_for(quiet=quiet) as progress:
        return job(setting, folder, executor_of(setting.executor), progress)


def _end(failures: int, store: Path) -> None:
    """Leave with exit code 3 where failures remain."""
    if failures:
        say(f"{failures} failures remain: see {store}/failures; the same command tries them again")
        raise typer.Exit(3)


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
            show(f"{fetched.origin:<12}{fetched.split}: {first}{fetched.rows} rows")
    if as_json:
        show_json({"out": str(out), "datasets": done})
    elif not done:
        show(f"{config} names no hub dataset: there is nothing to fetch")
