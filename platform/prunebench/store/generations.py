"""Generations: what models wrote, kept before it is scored, so that scoring it again needs no model.

The key is the unit's without its scorer: `Unit.generation_id`.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from prunebench.core.fingerprint import canonical_json
from prunebench.core.unit import Generated, Generation
from prunebench.store.keyed import KeyedTable
from prunebench.store.schema import GENERATIONS, table_of

GENERATION_TABLE = KeyedTable("generations", GENERATIONS, "generation_id")
_COLUMNS = ("prompt_hash", "text", "num_prompt_tokens", "num_tokens", "finish_reason")


def generation_table(written: Generated) -> pa.Table:
    """The row of one text."""
    unit = written.unit
    row = {
        "generation_id": unit.generation_id,
        "weights_id": unit.weights_id,
        "plan_id": unit.plan_id,
        "task": unit.task,
        "task_version": unit.task_version,
        "doc_id": unit.start,
        "seed": unit.seed,
        "unit_json": canonical_json(replace(unit, scorer_version="").to_json()),
        **{name: getattr(written.generation, name) for name in _COLUMNS},
    }
    return table_of(GENERATIONS, [row])


def load_generations(root: Path, generation_ids: Collection[str]) -> dict[str, Generation]:
    """The generations of these ids, as far as the store has them.

    Raises:
        InputError: a torn file, named.
    """
    if not generation_ids:
        return {}
    table = GENERATION_TABLE.rows(root).filter(pc.field("generation_id").isin(sorted(generation_ids)))
    return {
        row.pop("generation_id"): Generation(**row)
        for row in table.select(["generation_id", *_COLUMNS]).to_pylist()
    }
