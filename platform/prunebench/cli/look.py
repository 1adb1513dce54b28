"""Commands that look: doctor, methods, status, report, compare."""

import json
from pathlib import Path
from typing import Annotated

import typer

from prunebench.cli.app import (
    AsJson,
    StorePath,
    app,
    say,
    show,
    show_json,
)
from prunebench.cli.listing import job_lines, jobs_of, names_a_dashboard
from prunebench.errors import ResourceError


@app.command(epilog="Example: prunebench doctor")
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and lacks."""
    from dataclasses import asdict

    from prunebench.pipeline.doctor import examine

    checks = examine()
    if as_json:
        show_json([asdict(check) for check in checks])
    else:
        for check in checks:
            state = "ok" if check.ok else "MISSING" if check.needed else "note"
            remedy = "" if check.ok else f"  ({check.remedy})"
            show(f"{state:<9}{check.name:<18}{check.found}{remedy}")
    if any(check.needed and not check.ok for check in checks):
        raise typer.Exit(4)


@app.command(epilog="Example: prunebench methods --json")
def methods(as_json: AsJson = False) -> None:
    """List the methods with their parameters, defaults and needs."""
    from prunebench.config.params import describe_methods

    listing = describe_methods()
    if as_json:
        show_json(listing)
        return
    for method in listing:
        show(f"{method['name']:<16}{method['title']}")
        show(f"{'':<16}needs {', '.join(method['requires']) or 'nothing'}")
        for name, default in method["params"].items():
            show(f"{'':<16}  {name} = {json.dumps(default)}")


@app.command(epilog="Example: prunebench status stores/quickstart, or prunebench status http://head:8265")
def status(
    store: Annotated[
        str, typer.Argument(metavar="STORE|ADDRESS", help="A store's folder, or a Ray dashboard.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say what a store holds, or which jobs of prunebench a cluster has."""
    if names_a_dashboard(store):
        listed = jobs_of(store)
        if as_json:
            show_json(listed)
        else:
            show("\n".join(job_lines(listed)) or f"{store} has no jobs of prunebench")
        return
    from prunebench.store.summary import summarise

    summary = summarise(Path(store))
    if as_json:
        show_json(summary)
        return
    for name, value in summary.items():
        show(f"{name.replace('_', ' '):<22}{value}")


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
        say(f"warning: {error}; the report shows the results as they were derived last")
    paths = write_report(store, out)
    show(f"report: {paths.html.resolve()}")


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
        show_json(comparison_json(comparison))
    else:
        show("\n".join(comparison_lines(comparison)))
