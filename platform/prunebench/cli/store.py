"""Commands that look after a store: verify, compact, migrate, diff."""

import typer

from prunebench.cli.app import AsJson, StorePath, show, show_json, store_app


@store_app.command("verify", epilog="Example: prunebench store verify stores/quickstart")
def store_verify(store: StorePath, as_json: AsJson = False) -> None:
    """Name torn files, duplicate units and rows without plans. Exit code 3 when there are any."""
    from dataclasses import asdict

    from prunebench.store.verify import verify

    findings = verify(store)
    if as_json:
        show_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            show(str(finding))
        show(f"{len(findings)} findings")
    if findings:
        raise typer.Exit(3)


@store_app.command("compact", epilog="Example: prunebench store compact stores/quickstart")
def store_compact(store: StorePath) -> None:
    """Fold small files; the rows stay equal."""
    from prunebench.store.compact import compact

    show(compact(store))


@store_app.command("migrate", epilog="Example: prunebench store migrate stores/quickstart")
def store_migrate(store: StorePath) -> None:
    """Bring a store of the version before to this program's, in place; the same command resumes."""
    from prunebench.store.migrate import migrate

    show(migrate(store))


@store_app.command("diff", epilog="Example: prunebench store diff stores/a stores/b")
def store_diff(first: StorePath, second: StorePath, as_json: AsJson = False) -> None:
    """Compare samples and results of two stores. Exit code 0 when equal, 3 when not."""
    from prunebench.store.diff import diff

    differences = diff(first, second)
    if as_json:
        show_json(differences)
    else:
        for difference in differences:
            show(difference)
        show("equal" if not differences else f"{len(differences)} differences")
    if differences:
        raise typer.Exit(3)
