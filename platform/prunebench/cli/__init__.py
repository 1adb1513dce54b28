"""The command line. Commands are thin; imports that cost seconds are made inside them."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from prunebench.cli import (  # noqa: F401 (importing them adds their commands)
    external,
    jobs,
    look,
    measure,
    model,
    store,
    submit,
)
from prunebench.cli.app import app, say
from prunebench.core.text import HarmlessFormatter
from prunebench.errors import PrunebenchError, ResourceError

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM; Typer turns KeyboardInterrupt into it."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell may close them (>&-); Python then has None there.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (open as long as the process)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 (open as long as the process)
    try:
        app(args=arguments)
    except PrunebenchError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        say(f"error: {error}")
        sys.exit(ResourceError.exit_code)
    except SystemExit as done:
        if done.code == INTERRUPTED:
            say("interrupted: run the same command to resume")
        raise
    sys.exit(0)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
