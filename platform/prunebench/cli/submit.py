"""Commands on jobs of a cluster: submit and stop."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prunebench.cli.app import AsJson, Overrides, app, say, show, show_json, stream
from prunebench.cli.files import Target, render
from prunebench.errors import InputError

if TYPE_CHECKING:
    from prunebench.cluster.submission import Submission
    from prunebench.cluster.submit import JobApi, JobState
    from prunebench.cluster.working_dir import Content
    from prunebench.config.experiment import Setting

INTERRUPTED = 130
DashboardOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray dashboard, http://HOST:8265; RAY_API_SERVER_ADDRESS or this machine's by default.",
    ),
]


ClusterStore = Annotated[
    str | None,
    typer.Option("--store", help="Use this store instead of the file's; absolute on the cluster."),
]
HeadLocal = Annotated[
    bool,
    typer.Option(
        "--head-local-store",
        help="The store lies on the head's own disk; a relative path starts from ~/prunebench there.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", help="Show the job's log, and end with its exit code.")]
RenderOnly = Annotated[
    bool, typer.Option("--render-only", help="Write the target's files and submit nothing.")
]
Pip = Annotated[
    bool,
    typer.Option("--pip", help="Let Ray install the pinned packages for the job: the nodes need an index."),
]


@app.command(
    epilog="Example: prunebench submit configs/benchmark/quickstart.yaml --to ray --store /shared/store"
)
def submit(
    config: Annotated[Path, typer.Argument(help="An experiment or search file (YAML).")],
    to: Annotated[Target, typer.Option(help="Where the job goes.")] = Target.RAY,
    address: DashboardOption = None,
    store: ClusterStore = None,
    head_local_store: HeadLocal = False,
    sets: Overrides = None,
    follow: Follow = False,
    render_only: RenderOnly = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the files that are written.")] = None,
    pip: Pip = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment or a search as a job: on a Ray cluster, KubeRay, Slurm, or on this machine.

    A run that is already there is joined with --follow, never started twice; one that has ended is resumed.
    """
    from prunebench.config.search import load_job

    direct = to == Target.RAY and not render_only
    if direct:
        refuse_unused("kuberay, slurm or --render-only", {"--out": out})
    else:
        only_direct = {"--address": address, "--follow": follow, "--pip": pip}
        refuse_unused(
            "--to ray without --render-only", {**only_direct, "--head-local-store": head_local_store}
        )
    verb, setting = load_job(config, sets or ())
    if to == Target.LOCAL:
        refuse_unused("kuberay, slurm or ray", {"--render-only": render_only, "--out": out})
        run_here(verb, config, store, sets or [], as_json=as_json)
    from prunebench.cluster.pins import declared
    from prunebench.cluster.submission import cluster_store, submission
    from prunebench.cluster.working_dir import job_content

    path = cluster_store(setting, store, head_local=head_local_store)
    name, content = job_content(config, setting, verb)
    packages = declared().packages if pip else ()
    asked = submission(setting, verb=verb, config=name, store=path, overrides=sets or (), pip=packages)
    if direct:
        to_ray(asked, setting, content, address, follow=follow, as_json=as_json)
    else:
        folder = out or Path(asked.run_id)
        render(to, asked, setting, config.resolve(), content, folder, only=render_only, as_json=as_json)


def refuse_unused(goes_with: str, options: Mapping[str, object]) -> None:
    """Refuse an option that would not be read.

    Raises:
        InputError: it names the option.
    """
    for name, given in options.items():
        if given:
            raise InputError(f"{name} goes with {goes_with}: leave it out")


def to_ray(
    asked: "Submission",
    setting: "Setting",
    content: "Content",
    address: str | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Submit through Ray's job API once nothing is left that could go wrong in the first seconds."""
    from prunebench.cluster.dashboard import reach
    from prunebench.cluster.placement import Placement, share_of
    from prunebench.cluster.working_dir import archive

    dashboard = reach(address)
    entry = setting.executor
    # Sizes are for the job to tell, which sees models and nodes; here only what can never fit is refused.
    gpus = entry.gpus_per_worker
    workers = 1 if entry.workers == "auto" else entry.workers
    if gpus == "auto":
        # Workers may share GPUs, but one there has to be.
        gpus = share_of(workers) if any(model.device == "cuda" for model in setting.models) else 0.0
    Placement(workers=workers, threads=entry.threads, gpus=gpus).check(dashboard.nodes())
    from prunebench.cluster.submit import JobApi

    api = JobApi(dashboard)
    if there := api.running(asked.run_id):
        if not follow:
            raise InputError(
                f"this run is already {there.state.lower()} as {there.submission_id}: join it with --follow, "
                f"or end it with `prunebench stop {there.submission_id} --address {dashboard.address}`"
            )
        submission_id, command = there.submission_id, ""
        say(f"joined {submission_id}, which is already {there.state.lower()}")
    else:
        submission_id, packed = api.next_id(asked.run_id), archive(content)
        command = asked.command(dashboard.address, submission_id, str(packed))
        api.submit(asked, submission_id, packed)
        say(f"submitted {submission_id}, the same as\n  {command}")
    report: dict[str, Any] = {
        "submission_id": submission_id,
        "address": dashboard.address,
        "store": asked.store,
        "command": command,
    }
    if follow:
        ended = watch(api, submission_id, dashboard.address, as_json=as_json)
        report |= {"state": ended.state, "exit_code": ended.exit_code}
    if as_json:
        show_json(report)
    elif not follow:
        show(submission_id)
        say(f"log: the same command with --follow; jobs: prunebench status {dashboard.address}")
    raise typer.Exit(report.get("exit_code") or 0)


def watch(api: "JobApi", submission_id: str, address: str, *, as_json: bool) -> "JobState":
    """Show a job's log to its end; Ctrl-C leaves the job alone."""
    try:
        ended = api.follow(submission_id, lambda text: stream(text, error=as_json))
    except KeyboardInterrupt:
        say(
            f"\nno longer following; {submission_id} goes on. The same command joins it again, and\n"
            f"  prunebench stop {submission_id} --address {address}\nends it"
        )
        raise typer.Exit(INTERRUPTED) from None
    say(f"{submission_id} {ended.state}, exit code {ended.exit_code}")
    return ended


def run_here(verb: str, config: Path, store: str | None, sets: list[str], *, as_json: bool) -> None:
    """The same run on a Ray that it starts on this machine, and that ends with it."""
    from prunebench.cli import jobs

    job = {"run": jobs.run, "search": jobs.search}[verb]
    folder = Path(store) if store else None
    job(config, executor="ray", address="local", sets=sets, store=folder, as_json=as_json)
    raise typer.Exit(0)


@app.command(epilog="Example: prunebench stop prunebench-0123456789ab-1 --address http://head:8265")
def stop(
    submission_id: Annotated[str, typer.Argument(help="As `prunebench status ADDRESS` lists it.")],
    address: DashboardOption = None,
    as_json: AsJson = False,
) -> None:
    """End a job; what it has measured is in its store, and submitting it again goes on there."""
    from prunebench.cluster.dashboard import reach

    dashboard = reach(address)
    from prunebench.cluster.submit import JobApi

    ended = JobApi(dashboard).stop(submission_id)
    if as_json:
        show_json(asdict(ended))
    else:
        show(f"{submission_id} {ended.state}")
