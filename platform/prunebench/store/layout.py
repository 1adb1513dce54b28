"""Where things lie in a store, and whether a folder is one."""

import hashlib
import json
import re
from pathlib import Path

from prunebench.errors import InputError, ResourceError
from prunebench.store.append import TEMPORARY, parquet_bytes, write_atomic
from prunebench.store.schema import RESULTS, SCHEMA_VERSION

FOLDERS = (
    "samples",
    "generations",
    "variants",
    "plans",
    "exams",
    "probes",
    "stats",
    "planned",
    "failures",
    "trials",
    "runs",
    "results",
)
HEADER = "store.json"
RESULTS_FILE = "results.parquet"


def header() -> bytes:
    """What says that a folder is a store, and of which version."""
    return (json.dumps({"program": "prunebench", "schema_version": SCHEMA_VERSION}, indent=1) + "\n").encode()


def stated_version(root: Path) -> object:
    """The schema version that a store states.

    Raises:
        InputError: nothing there, or some other folder.
    """
    path = root / HEADER
    try:
        return json.loads(path.read_text())["schema_version"]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{root} is not a prunebench store: it has no {HEADER}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({error!r}): to mend the store, write into it "
            f'{{"schema_version": {SCHEMA_VERSION}}}'
        ) from error


def check_store(root: Path) -> Path:
    """Return `root` when it is a store that this program reads; writes nothing.

    Raises:
        InputError: nothing there, some other folder, or a store of an older or a newer program.
    """
    version = stated_version(root)
    if version == SCHEMA_VERSION - 1:
        raise InputError(
            f"the store {root} has schema version {version}, this program reads version {SCHEMA_VERSION}: "
            f"`prunebench store migrate {root}` brings it there"
        )
    if version != SCHEMA_VERSION:
        raise InputError(
            f"the store {root} has schema version {version!r}, this program reads version {SCHEMA_VERSION}: "
            "use the prunebench that wrote it or a newer one, or another store"
        )
    return root


def holds_store(root: Path) -> bool:
    """Whether there is a store at `root`; False where one can be made.

    Raises:
        InputError: a file, or a folder with other things in it.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; a store is a folder: name another --store")
    if not root.exists():
        return False
    held = [path.name for path in root.iterdir() if not path.name.startswith(TEMPORARY)]
    if held and HEADER not in held:
        raise InputError(
            f"{root} is no prunebench store and not empty (it holds {held[0]}): name another --store"
        )
    return bool(held)


def open_store(root: Path) -> Path:
    """Open the store at `root`, creating it where there is nothing.

    Raises:
        InputError: a file, a folder with other things in it, or a store of a newer program.
        ResourceError: the folder cannot be made.
    """
    try:
        held = holds_store(root)
        root.mkdir(parents=True, exist_ok=True)
        if not held:
            write_atomic(root / HEADER, header())
        check_store(root)
        for folder in FOLDERS:
            (root / folder).mkdir(exist_ok=True)
    except OSError as error:
        raise ResourceError(f"cannot make the store {root}: {error.strerror}") from error
    if not (root / "results" / RESULTS_FILE).exists():
        data = parquet_bytes(RESULTS.empty_table())
        write_atomic(root / "results" / RESULTS_FILE, data)
    return root


def content_name(data: bytes) -> str:
    """First 16 hex digits of the sha256 of `data`: the name of a file that holds nothing else."""
    return hashlib.sha256(data).hexdigest()[:16]


def file_key(key: str) -> str:
    """Return `key` when it can be a file name.

    Raises:
        ValueError: it cannot; keys are made by programs, so this is a programming error.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", key):
        raise ValueError(f"not a key that can name a file: {key!r}")
    return key
