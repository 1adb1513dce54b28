"""Migration of a store that version 1 of the program wrote (golden/store-v1: one fold, two single units)."""

import json
import shutil
from pathlib import Path

import pytest

from fake_driver import Kill, drive, in_fork
from prunebench.errors import InputError
from prunebench.store.derive import derive_results
from prunebench.store.diff import diff
from prunebench.store.external import external_table
from prunebench.store.ledger import Ledger
from prunebench.store.migrate import migrate
from prunebench.store.read import read_results, read_samples
from prunebench.store.verify import verify

GOLDEN = Path(__file__).parents[1] / "golden" / "store-v1"


@pytest.fixture
def old(tmp_path):
    return shutil.copytree(GOLDEN, tmp_path / "old")


def test_an_old_store_is_refused_with_the_command_that_brings_it_here(old):
    for use in (Ledger, read_samples, verify):
        with pytest.raises(InputError, match=r"version 1, .* reads version 2: `prunebench store migrate"):
            use(old)


def test_a_migrated_store_is_whole_and_goes_on_to_what_a_new_one_holds(old, root):
    assert migrate(old).startswith("brought ")
    assert verify(old) == []
    assert set(read_results(old)["schema_version"]) == {2}
    assert external_table(old, "results")["value"].to_pylist() == [0.5]
    drive(old)
    drive(root)
    assert diff(old, root) == []
    assert "already" in migrate(old)


def test_results_of_a_migrated_store_derive_before_any_run(old):
    # Ranges that no run's log states are read from samples, whose files have dictionaries of their own.
    migrate(old)
    assert derive_results(old)["status"].value_counts().to_dict() == {"ok": 6, "incomplete": 6}


def test_no_kill_during_a_migration_loses_or_doubles_anything(old, root, tmp_path):
    drive(root)
    ended = False
    for at in range(1, 200):
        if ended:
            break
        store = shutil.copytree(GOLDEN, tmp_path / f"killed-{at}")

        def killed(store: Path = store, at: int = at) -> None:
            Kill(at).install()
            migrate(store)

        ended = in_fork(killed) == 0
        migrate(store)
        drive(store)
        assert diff(store, root) == [], f"killed at change {at}"
        shutil.rmtree(store)
    assert ended
    assert at > 20


def test_a_torn_file_is_named_and_stays(old):
    (path,) = (old / "samples").glob("part-*")
    torn = path.read_bytes()[:-9]
    path.write_bytes(torn)
    with pytest.raises(InputError, match=rf"{path.name} is damaged"):
        migrate(old)
    assert path.read_bytes() == torn
    assert json.loads((old / "store.json").read_text())["schema_version"] == 1


@pytest.mark.parametrize("version", [0, 3, "x"])
def test_other_versions_are_refused(old, version):
    (old / "store.json").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(InputError, match="migrates version 1 to 2"):
        migrate(old)
