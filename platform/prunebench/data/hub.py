"""Splits of hub datasets, streamed by the `datasets` library."""

import importlib
from typing import Any

from prunebench.errors import InputError, ResourceError

_CONVERTED = "refs/convert/parquet"
"""The hub's own Parquet copy of a dataset that is published as a loading script."""


def stream_split(what: str, source: str, split: str) -> Any:  # noqa: ANN401 (of an optional library)
    """The rows of a split as a `datasets.IterableDataset`, downloaded as they are read.

    Args:
        what: how an error begins, such as "SPEC '...'".
        source: ORG/NAME or ORG/NAME/CONFIG.
        split: the split's name.

    Raises:
        InputError: no such config or split. ResourceError: no library, no network or no such dataset.
    """
    instead = "or set mirror to a folder that prunebench prefetch CONFIG --out FOLDER wrote where there is"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ResourceError(
            f"{what} needs the datasets package and network: pip install 'prunebench[hub]', {instead} network"
        ) from error
    organisation, name, *config = source.split("/")
    dataset = f"{organisation}/{name}"
    try:
        try:
            return datasets.load_dataset(dataset, *config, split=split, streaming=True)
        except RuntimeError as error:
            if "scripts are no longer supported" not in str(error):
                raise
            # there a config is a folder, no name
            place = {"data_dir": config[0]} if config else {}
            return datasets.load_dataset(dataset, **place, split=split, streaming=True, revision=_CONVERTED)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ResourceError(f"{what} cannot be fetched ({reason}): go online, {instead} network") from error
    except ValueError as error:
        raise InputError(f"{what}: {' '.join(str(error).split())}") from error
