"""Folders beside the page with one JSON file for each evaluated variant."""

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prunebench.core.fingerprint import Json
from prunebench.errors import ResourceError
from prunebench.report.evaluated import Evaluated
from prunebench.report.every_eval_ever import evaluation_log
from prunebench.report.lm_eval_results import lm_eval_results, results_name

FORMATS: Mapping[str, tuple[Callable[[Evaluated], str], Callable[[Evaluated], dict[str, Json]]]] = {
    "every_eval_ever": (lambda one: f"{one.file_name}.json", evaluation_log),
    "lm_eval": (lambda one: f"{one.file_name}/{results_name(one)}", lm_eval_results),
}
"""Folder -> the name and the document of each variant in it."""


def write_exports(found: Iterable[Evaluated], out: Path) -> None:
    """Write both folders into `out`, each whole in place of the one that was there.

    Raises:
        ResourceError: the disk refused.
    """
    found = list(found)
    for folder, (name, document) in FORMATS.items():
        # Hundreds of files that can be made anew at any time: no fsync for each.
        new = out / f".tmp-{uuid.uuid4().hex}"
        try:
            new.mkdir()
            for one in found:
                text = json.dumps(document(one), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
                path = new / name(one)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            shutil.rmtree(out / folder, ignore_errors=True)
            new.rename(out / folder)
        except OSError as error:
            raise ResourceError(f"cannot write {out / folder}: {error.strerror}") from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
