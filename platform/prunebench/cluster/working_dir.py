"""What a job is sent: the package, the job script, the config and the small files that it names.

Nothing else of the folder it lies in: no model, no store, no file of secrets. The same content makes the
same archive, which Ray uploads once.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from prunebench.cluster.pins import SOURCE_ROOT, declared
from prunebench.config.experiment import Setting
from prunebench.data.spec import parse_spec
from prunebench.errors import InputError
from prunebench.models.cache import cache_folder

MOST_BYTES = 90 * 2**20
"""Ray's dashboard takes requests of at most 100 MiB, and answers larger ones with nothing but HTTP 413."""
SCRIPT = '''"""What `ray job submit` runs: python jobs/{name}.py CONFIG [--store DIR] [--set a.b=c]."""

import sys

from prunebench.cluster.pins import check_environment

if __name__ == "__main__":
    check_environment()
    from prunebench.cli import main

    main(["{verb}", *sys.argv[1:], "--executor", "ray", "--set", "executor.address=null"])
'''
"""RAY_ADDRESS, which Ray sets in a job, tells it its cluster; an address in the config is another one."""
SCRIPTS = {"run": "benchmark", "search": "search"}
"""Verb -> name of its script in jobs/."""
EXPERIMENT = "experiment"
"""Folder of a config from outside a checkout, and of the files that it names."""

Content = Mapping[str, bytes | Path]
"""Name in the archive -> bytes, or the file that holds them."""


def job_content(config: Path, setting: Setting, verb: str) -> tuple[str, Content]:
    """The config's name in the archive, and all that goes into it.

    Raises:
        InputError: the config names a relative folder, a file that is not there, or more than 90 MiB.
    """
    refuse_folders(setting)
    files = [config.resolve(), *_named_files(setting)]
    # As the job opens them: `..` is resolved by name.
    names = [Path(os.path.normpath(path)) for path in files]
    placed = dict(zip(_placed(names), files, strict=True))
    script = SCRIPT.format(name=SCRIPTS[verb], verb=verb)
    content = {
        **dict(_package()),
        "pyproject.toml": declared().to_toml().encode(),
        f"jobs/{SCRIPTS[verb]}.py": script.encode(),
        **placed,
    }
    _check_size(content)
    return next(iter(placed)), content


def archive(content: Content) -> Path:
    """Write the archive below the cache, under the hash of its content. Stored, as Ray packs it.

    Raises:
        ResourceError: the cache cannot be written.
    """
    folder = cache_folder("submissions")
    digest = hashlib.sha256()
    part = folder / f".tmp-{os.getpid()}.zip"
    try:
        with zipfile.ZipFile(part, "w") as packed:
            for name in sorted(content):
                data = _bytes(content[name])
                digest.update(f"{name}\0{len(data)}\0".encode() + data)
                # The default date of a ZipInfo is fixed.
                packed.writestr(zipfile.ZipInfo(name), data)
        return part.replace(folder / f"{digest.hexdigest()[:16]}.zip")
    finally:
        part.unlink(missing_ok=True)


def write_folder(content: Content, folder: Path) -> None:
    """Write the content as files."""
    for name, data in content.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_bytes(data))


def refuse_folders(setting: Setting) -> None:
    """Refuse what is named relative to the config but is too large to send: models and mirrors.

    Raises:
        InputError: there is one.
    """
    for number, model in enumerate(setting.models):
        path = Path(model.path)
        written = model.path.startswith((".", "/")) or setting.resolve_text(model.path).exists()
        if written and not model.path.startswith("builtin:") and not path.is_absolute():
            _refuse(f"models.{number}.path", model.path)
    if setting.mirror is not None and not setting.mirror.expanduser().is_absolute():
        _refuse("mirror", str(setting.mirror))


def _placed(names: list[Path]) -> list[str]:
    """Where files stand in the archive: as in the checkout, or below a folder of their own."""
    checkout = SOURCE_ROOT.parent
    if SOURCE_ROOT.name == "platform" and all(name.is_relative_to(checkout) for name in names):
        return [name.relative_to(checkout).as_posix() for name in names]
    root = os.path.commonpath([name.parent for name in names])
    return [Path(EXPERIMENT, name.relative_to(root)).as_posix() for name in names]


def _refuse(where: str, path: str) -> None:
    raise InputError(
        f"{where} is {path}, a folder on this machine that is not sent to the cluster: put it where every "
        f"node sees it, and give that absolute path (--set {where}=/shared/...)"
    )


def _named_files(setting: Setting) -> list[Path]:
    """The files that SPECs name relative to the config."""
    specs = {f"calibrations.{name}": spec for name, spec in setting.calibrations.items()}
    specs |= {f"probes.{name}": spec for name, spec in setting.probes.items()}
    for name, task in setting.tasks.items():
        if "text" in type(task).model_fields and (text := task.model_dump()["text"]) is not None:
            specs[f"tasks.{name}.text"] = text
    found = []
    for where, spec in specs.items():
        source = parse_spec(spec, setting.base).source
        # A path that does not depend on where it starts from is absolute, or no path.
        if source == parse_spec(spec, setting.base / "elsewhere").source:
            continue
        if not Path(source).is_file():
            raise InputError(f"{where} names {source}, which is no file here and so cannot be sent")
        found.append(Path(source))
    return list(dict.fromkeys(found))


def _package() -> Iterator[tuple[str, Path]]:
    """The files of the running package, as they lie below the source root."""
    package = SOURCE_ROOT / "prunebench"
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield Path("platform", path.relative_to(SOURCE_ROOT)).as_posix(), path


def _check_size(content: Content) -> None:
    sizes = {
        name: data.stat().st_size if isinstance(data, Path) else len(data) for name, data in content.items()
    }
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:5]
        listed = ", ".join(f"{name} {sizes[name] / 2**20:.1f} MiB" for name in largest)
        raise InputError(
            f"the job would send {total / 2**20:.1f} MiB, and at most {MOST_BYTES / 2**20:.0f} MiB fit; the "
            f"largest files are {listed}: put them where every node sees them and give absolute paths"
        )


def _bytes(data: bytes | Path) -> bytes:
    return data.read_bytes() if isinstance(data, Path) else data
