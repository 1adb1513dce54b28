"""Commands on an experiment file: plan, run, search, prefetch."""

from pathlib import Path
from typing import Annotated

import typer

from prunebench.cli.app import (
    AsJson,
    ConfigPath,
    Overrides,
    StoreOption,
    app,
    replaced_words,
    say,
    show,
    show_json,
)
from prunebench.cli.executors import executor_of


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

    experiment = load_experiment(config, replaced_words(sets, executor, address))
    folder = store.resolve() if store else experiment.resolve(experiment.store)
    with progress_for(quiet=quiet) as progress:
        outcome = run_benchmark(experiment, folder, executor_of(experiment.executor), progress)
    if as_json:
        show_json({**asdict(outcome), "store": str(outcome.store)})
    else:
        from rich.console import Console

        from prunebench.report.tables import leaderboard_table
        from prunebench.report.terminal import print_leaderboard

        print_leaderboard(leaderboard_table(folder), Console())
        show(f"store: {folder}")
    if outcome.failures:
        say(f"{outcome.failures} failures remain: see {folder}/failures; the same command tries them again")
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

    settings = load_search(config, replaced_words(sets, executor, address))
    folder = store.resolve() if store else settings.resolve(settings.store)
    from prunebench.pipeline.progress import progress_for
    from prunebench.pipeline.search import run_search

    with progress_for(quiet=quiet) as progress:
        found = run_search(settings, folder, executor_of(settings.executor), progress)
    if as_json:
        show_json({**asdict(found), "store": str(found.store)})
    else:
        for line in found.lines():
            show(line)
    if found.failures:
        say(f"{found.failures} failures remain: see {folder}/failures; the same command tries them again")
    if found.best is None and not found.failed:
        say(f"no setting meets the budget: {'; '.join(found.reasons[:3])}")
    if found.failures or found.best is None:
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
