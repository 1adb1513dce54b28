"""Finding a plan by its file or by its id in a store."""

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
        return load_plan(check_store(store), name)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"no plan file '{name}'; to name a plan by its id give --store as well")
    return PruningPlan.from_json(path.read_text())
