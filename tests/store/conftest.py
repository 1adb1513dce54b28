import os

import pytest

import fake_driver


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed") / "store"
    fake_driver.drive(root)
    return root


@pytest.fixture(scope="session", autouse=True)
def fast_disk():
    synced = os.fsync, os.fdatasync
    fake_driver.skip_waiting_for_the_disk()
    yield
    os.fsync, os.fdatasync = synced
