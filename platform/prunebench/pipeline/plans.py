"""Finding a plan by its file or by its id in a store."""

import re
from pathlib import Path

from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.store.artifacts import load_plan
from prunebench.store.layout import check_store


def find_plan(name: str, store: Path | None) -> PruningPlan:
    """The plan in the JSON file `name`, or the plan of that id in `store`.

    Raises:
        InputError: there is no such plan.
    """
    if store is not None:
        check_store(store)
        if not re.fullmatch(r"[0-9a-f]{16}", name):
            raise InputError(f"'{name}' is not a plan id: those in the store's plans/ are 16 hex digits")
        return load_plan(store, name)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"no plan file '{name}'; to name a plan by its id give --store as well")
    try:
        return PruningPlan.from_json(path.read_text())
    except (UnicodeDecodeError, InputError) as error:
        raise InputError(f"{path}: {error}") from error
