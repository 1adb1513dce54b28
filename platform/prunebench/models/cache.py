"""The cache folder: `$PRUNEBENCH_CACHE`, else `~/.cache/prunebench`."""

import os
import uuid
from pathlib import Path

from prunebench.errors import ResourceError


def cache_folder(*parts: str) -> Path:
    """A folder of the cache, created where it does not exist.

    Raises:
        ResourceError: it cannot be created.
    """
    given = os.environ.get("PRUNEBENCH_CACHE")
    root = Path(given).expanduser() if given else Path.home() / ".cache" / "prunebench"
    folder = root.absolute().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(
            f"the cache folder {folder} cannot be created ({error.strerror}): "
            "set PRUNEBENCH_CACHE to a folder that can be written"
        ) from error
    return folder


def write_atomically(path: Path, text: str) -> None:
    """Write a whole small file or nothing: readers never see a part of it."""
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
