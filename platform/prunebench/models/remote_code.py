"""Code that a checkpoint brings: which files it is, and what of it is refused even where it is trusted.

Transformers finds it by `auto_map` in config.json. Only the model's class and its config run: tokenizers are
read as data.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prunebench.errors import InputError

FILES: Final = "*.py"
MODEL: Final = "AutoModelForCausalLM"
CLASSES: Final = (MODEL, "AutoConfig")


def classes_of(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The classes that a checkpoint's config names, as MODULE.CLASS, by what Transformers calls them.

    Raises:
        InputError: it names no class for the model, a file that is not beside the weights, or code of another
            repository.
    """
    given = config.get("auto_map")
    named = {name: given[name] for name in CLASSES if name in given} if isinstance(given, dict) else {}
    if MODEL not in named:
        raise InputError(
            f"trust_remote_code is set for {folder}, which brings no model of its own: the auto_map of its "
            f"config.json names no {MODEL}; leave the setting out"
        )
    for name, text in named.items():
        if isinstance(text, str) and "--" in text:
            raise InputError(
                f"{folder / 'config.json'} names code of another repository ({text!r}): copy that code "
                "beside the weights, where its files are part of what identifies the model"
            )
        found = re.fullmatch(r"(\w{1,100})\.\w{1,100}", text) if isinstance(text, str) else None
        if found is None:
            raise InputError(f"{folder / 'config.json'}: auto_map names {text!r} as {name}, not MODULE.CLASS")
        if not (folder / f"{found[1]}.py").is_file():
            raise InputError(
                f"{folder / 'config.json'} names {text!r}, but there is no {found[1]}.py beside it"
            )
    return named


def files_of(folder: Path) -> tuple[Path, ...]:
    """Every file of code beside the weights, ascending: a class may import from any of them."""
    return tuple(file for file in sorted(folder.glob(FILES)) if file.is_file())
