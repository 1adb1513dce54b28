"""A mirror: a folder that serves hub datasets as ORG/NAME/CONFIG/SPLIT-00000-of-0000N.parquet."""

import re
from pathlib import Path

from prunebench.errors import InputError

_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.parquet")


def shards_of(what: str, mirror: Path, source: str, split: str) -> list[Path]:
    """The files of a split, all of them, in order.

    Args:
        what: how an error begins, such as "SPEC '...'".
        mirror: the folder.
        source: ORG/NAME or ORG/NAME/CONFIG; without CONFIG, `default` or the only one there is.
        split: the split's name.

    Raises:
        InputError: no file, or not all of them; the sentence names the file and how to fetch it.
    """
    folder = config_folder(what, mirror, source)
    wanted = f"{folder}/{split}-*.parquet"
    remedy = f"fetch it where there is network: prunebench prefetch CONFIG --out {mirror}"
    names = {path: _SHARD.fullmatch(path.name) for path in sorted(folder.glob("*.parquet"))}
    ours = {path: int(name[2]) for path, name in names.items() if name and name[1] == split}
    if not ours:
        splits = ", ".join(sorted({name[1] for name in names.values() if name})) or "none"
        raise InputError(f"{what}: the mirror has no {wanted}; splits there: {splits}; {remedy}")
    count = max(ours.values())
    if len(ours) != count:
        raise InputError(f"{what}: the mirror has {len(ours)} of the {count} files {wanted}; {remedy}")
    return list(ours)


def config_folder(what: str, mirror: Path, source: str) -> Path:
    """The folder of a dataset's config, whether it exists or not.

    Raises:
        InputError: no config is named, and there are several.
    """
    dataset = mirror.joinpath(*source.split("/"))
    if source.count("/") == 2:
        return dataset
    configs = sorted(path.name for path in dataset.iterdir() if path.is_dir()) if dataset.is_dir() else []
    if "default" in configs or not configs:
        return dataset / "default"
    if len(configs) == 1:
        return dataset / configs[0]
    raise InputError(f"{what} names no CONFIG, and {dataset} has {', '.join(configs)}")


def has_split(mirror: Path, source: str, split: str) -> bool:
    """Whether a mirror has any file of a split."""
    folder = config_folder(f"dataset {source}", mirror, source)
    names = (_SHARD.fullmatch(path.name) for path in folder.glob("*.parquet"))
    return any(name and name[1] == split for name in names)
