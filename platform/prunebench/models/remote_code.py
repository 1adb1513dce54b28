"""Code that a checkpoint brings: which files it is, and what of it is refused even where it is trusted.

Transformers finds it by `auto_map` in config.json and tokenizer_config.json.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from prunebench.errors import InputError

FILES: Final = "*.py"
CONFIGS: Final = ("config.json", "tokenizer_config.json")


def files_of(folder: Path) -> tuple[Path, ...]:
    """Every file of code in a checkpoint whose code is to run, ascending.

    Raises:
        InputError: it names none, a file that is missing, or code of another repository.
    """
    named = {name: file for file in CONFIGS for name in _named(folder / file)}
    if not named:
        raise InputError(
            f"trust_remote_code is set for {folder}, which brings no code: neither {' nor '.join(CONFIGS)} "
            "has an auto_map; leave the setting out"
        )
    for name, file in named.items():
        if "--" in name:
            raise InputError(
                f"{folder / file} names code of another repository ({name!r}): copy that code beside the "
                "weights, where its files are part of what identifies the model"
            )
        if not (folder / f"{name.partition('.')[0]}.py").is_file():
            raise InputError(f"{folder / file} names {name!r}, but there is no {name.partition('.')[0]}.py")
    return tuple(sorted(folder.rglob(FILES)))


def _named(file: Path) -> Iterator[str]:
    """The classes that a file's auto_map names, as MODULE.CLASS."""
    try:
        given = json.loads(file.read_text()).get("auto_map") or {}
    except (OSError, ValueError, AttributeError):
        return  # what is wrong with the file is told by those who need it
    yield from _texts(list(given.values()) if isinstance(given, dict) else given)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (whatever JSON the file holds)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
