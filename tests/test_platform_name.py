"""platform/ is a source root beside the standard library's module of that name."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_source_root_is_no_package():
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_the_standard_library_wins_from_the_repository_root():
    script = "import platform; print(platform.__file__, platform.python_version())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    file, version = done.stdout.split()
    assert Path(file).name == "platform.py"
    assert version == ".".join(map(str, sys.version_info[:3]))
