"""Where a study lies: a journal in the store, or a database. One driver at a time opens it."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import optuna
from filelock import FileLock, Timeout
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from prunebench.core.fingerprint import Json
from prunebench.errors import InputError, ResourceError

IDENTITY = "identity"
"""Attribute of a study: what it is about."""
CONNECT_S = 10
"""Seconds after which a database server that does not answer is given up."""


@contextmanager
def open_storage(
    *,
    folder: Path,
    name: str,
    url: str | None,
    directions: Sequence[Literal["minimize", "maximize"]],
    identity: Mapping[str, Json],
    pruner: BasePruner,
) -> Generator[optuna.Study]:
    """Open or make the study `name`, for this process alone; arguments and errors as `open_study`."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lock = FileLock(folder / f".{name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ResourceError(
            f"another process runs the search '{name}' on this store: wait for it, or change search.name"
        ) from error
    try:
        storage = _journal(folder / f"{name}.journal", name) if url is None else _database(url)
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            directions=directions,
            pruner=pruner,
            load_if_exists=True,
        )
        _check_identity(study, dict(identity))
        yield study
    except StorageInternalError as error:
        kind = "journal" if url is None else url.partition(":")[0]
        raise ResourceError(
            f"the study's storage ({kind}) failed: {type(error.__cause__ or error).__name__}; the same "
            "command resumes once it answers again"
        ) from error
    finally:
        lock.release()


def _journal(path: Path, name: str) -> BaseStorage:
    _mend(path)
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        held = [study.study_name for study in storage.get_all_studies()]
    except (ValueError, KeyError) as error:
        raise InputError(f"{path} is no journal of a study, or damaged ({error}): move it away") from error
    if held and name not in held:
        raise InputError(
            f"{path} is the journal of another study, '{held[0]}': set search.name to that, or move it away"
        )
    return storage


def _mend(path: Path) -> None:
    """Cut off a torn last line, which a killed writer leaves and which no line may follow."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _database(url: str) -> BaseStorage:
    # Imported here because a journal does without it.
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    server = not url.startswith("sqlite")
    try:
        return RDBStorage(
            url, engine_kwargs={"connect_args": {"connect_timeout": CONNECT_S}} if server else {}
        )
    # Neither message is passed on, nor the URL: both may hold a password.
    except ArgumentError as error:
        raise InputError(
            "search.storage is no URL of a kind of database known here, such as sqlite:///study.db"
        ) from error
    except ImportError as error:
        raise ResourceError(
            f"the study's storage ({url.partition(':')[0]}) needs a driver that is not installed: for "
            "PostgreSQL pip install 'prunebench[postgres]'"
        ) from error
    except SQLAlchemyError as error:
        raise ResourceError(
            f"the study's storage ({url.partition(':')[0]}) cannot be opened: {type(error).__name__}; "
            "check search.storage, or leave it out for a journal in the store"
        ) from error


def _check_identity(study: optuna.Study, identity: dict[str, Any]) -> None:
    known = study.user_attrs.get(IDENTITY)
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(IDENTITY, identity)
        return
    if known == identity:
        return
    differs = [key for key in identity if (known or {}).get(key) != identity[key]]
    raise InputError(
        f"the study '{study.study_name}' is of another search (other {', '.join(differs)}): "
        "give search.name another name, or restore the settings"
    )
