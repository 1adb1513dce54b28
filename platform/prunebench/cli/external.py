"""The command that takes in what other programs measured."""

from pathlib import Path
from typing import Annotated

import typer

from prunebench.cli.app import AsJson, app, show, show_json


@app.command("import", epilog="Example: prunebench import results/smollm2/ --store stores/quickstart")
def import_results(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Results files of lm-eval, or folders of them.")
    ],
    store: Annotated[Path, typer.Option(help="The store's folder.")],
    name: Annotated[str, typer.Option(help="What the rows are called; default: lm-eval's model name.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take lm-eval's results and samples into a store as external rows.

    The report shows them apart, and pairs them with rows of the store where document hashes are equal.
    """
    from prunebench.data.lm_eval_files import read_lm_eval, results_files
    from prunebench.store.external import save_external
    from prunebench.store.layout import check_store

    check_store(store)
    runs = [(file, read_lm_eval(file, name)) for path in paths for file in results_files(path)]
    told = [
        {
            "file": str(file),
            "id": run.external_id,
            "new": save_external(store, run.external_id, run.results, run.samples),
            "results": len(run.results),
            "samples": len(run.samples),
        }
        for file, run in runs
    ]
    if as_json:
        show_json(told)
        return
    for one in told:
        known = "" if one["new"] else " (known already)"
        show(f"{one['id']}: {one['results']} results, {one['samples']} samples of {one['file']}{known}")
