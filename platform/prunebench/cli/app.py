"""The program, its options, and how it speaks."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from prunebench.core.text import harmless

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

ConfigPath = Annotated[Path, typer.Argument(help="An experiment file (YAML).")]
StorePath = Annotated[Path, typer.Argument(help="The store's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Replace one setting of the file.")
]
StoreOption = Annotated[Path | None, typer.Option("--store", help="Use this store instead of the file's.")]
ExecutorOption = Annotated[
    str | None, typer.Option("--executor", help="local or ray, instead of the file's.")
]
AddressOption = Annotated[str | None, typer.Option("--address", help="Address of a running Ray cluster.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def say(text: str) -> None:
    """A line on standard error: what went wrong, and progress."""
    sys.stderr.write(harmless(text.rstrip()) + "\n")


def show(text: str) -> None:
    """A line on standard output: the result."""
    sys.stdout.write(harmless(text.rstrip()) + "\n")


def stream(text: str, *, error: bool) -> None:
    """A part of a job's log as it comes, on standard output or standard error."""
    target = sys.stderr if error else sys.stdout
    target.write(text)
    target.flush()


def show_json(value: Any) -> None:  # noqa: ANN401 (whatever the command has to say)
    """The result as JSON on standard output."""
    show(json.dumps(value, indent=2, ensure_ascii=False))


def replaced_words(sets: list[str] | None, executor: str | None, address: str | None) -> list[str]:
    """The settings of a file that the command line replaces."""
    given = {"kind": executor, "address": address}
    return [
        *(sets or ()),
        *(f"executor.{name}={json.dumps(word)}" for name, word in given.items() if word is not None),
    ]
