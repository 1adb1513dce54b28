import json
import platform
import time

import pytest

from fake_worker import PLANS, items
from prunebench.core.unit import Failed, UnitDone
from prunebench.errors import ResourceError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def all_ids(ranges=4):
    return {item.unit.for_plan(plan.plan_id).unit_id for item in items(ranges) for plan in PLANS}


@pytest.fixture
def execute(ray_cluster, tmp_path):
    from prunebench.cluster.executor import RayExecutor
    from prunebench.cluster.placement import Placement

    def run(workers, ranges=4):
        placement = Placement(workers=workers, threads=1)
        executor = RayExecutor("fake_worker:FakeWorker", (str(tmp_path),), placement)
        deliveries = list(executor.run(items(ranges)))
        executor.close()
        return deliveries

    return run


def values(deliveries):
    return {
        d.message.unit.unit_id: d.message.samples[0].value
        for d in deliveries
        if isinstance(d.message, UnitDone)
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_every_unit_arrives_once_with_its_own_value(execute, workers):
    deliveries = execute(workers)
    assert len(deliveries) == len(all_ids())
    assert values(deliveries) == {unit_id: int(unit_id[:8], 16) / 2**32 for unit_id in all_ids()}
    assert all(d.attempt == 1 and d.worker and d.host for d in deliveries)


def test_the_standard_librarys_platform_wins_inside_workers(execute):
    detail = json.loads(execute(1, ranges=1)[0].message.samples[0].detail)
    assert detail["platform"] == platform.__file__
    assert platform.__file__.endswith("platform.py")


def test_units_of_a_worker_that_dies_are_done_by_another_and_only_once(execute, tmp_path):
    (tmp_path / f"kill-{PLANS[5].plan_id}").write_text("1")
    deliveries = execute(2)
    assert [d.message.error for d in deliveries if isinstance(d.message, Failed)] == []
    assert set(values(deliveries)) == all_ids()
    assert len(deliveries) == len(all_ids())
    assert max(d.attempt for d in deliveries) == 2


def test_two_deaths_at_one_unit_do_not_count_against_it(execute, tmp_path):
    (tmp_path / f"kill-{PLANS[5].plan_id}").write_text("2")
    assert set(values(execute(1, ranges=1))) == all_ids(ranges=1)


def test_a_unit_in_flight_at_three_deaths_fails_and_the_rest_goes_on(execute, tmp_path):
    (tmp_path / f"kill-{PLANS[5].plan_id}").write_text("9")
    deliveries = execute(2, ranges=1)
    poison = items(1)[0].unit.for_plan(PLANS[5].plan_id).unit_id
    failed = [d.message for d in deliveries if isinstance(d.message, Failed)]
    assert [message.keys for message in failed] == [(poison,)]
    assert "3 worker deaths" in failed[0].error
    assert set(values(deliveries)) == all_ids(ranges=1) - {poison}


def test_an_exception_in_one_unit_is_one_failure(execute, tmp_path):
    (tmp_path / f"raise-{PLANS[3].plan_id}").touch()
    deliveries = execute(1, ranges=1)
    poison = items(1)[0].unit.for_plan(PLANS[3].plan_id).unit_id
    assert [d.message.keys for d in deliveries if isinstance(d.message, Failed)] == [(poison,)]
    assert set(values(deliveries)) == all_ids(ranges=1) - {poison}


def test_an_exception_that_escapes_the_worker_fails_its_item_and_the_rest_goes_on(execute, tmp_path):
    (tmp_path / f"escape-{PLANS[3].plan_id}").touch()
    deliveries = execute(1, ranges=1)
    (failed,) = [d.message for d in deliveries if isinstance(d.message, Failed)]
    assert failed.error == "ValueError: as ordered"
    assert set(values(deliveries)) == all_ids(ranges=1) - set(failed.keys)
    assert len(values(deliveries)) == 3


def test_a_worker_that_cannot_start_ends_the_run_with_a_sentence(ray_cluster):
    from prunebench.cluster.executor import RayExecutor
    from prunebench.cluster.placement import Placement

    executor = RayExecutor("fake_worker:NoSuchWorker", ("x",), Placement(workers=1, threads=1))
    with pytest.raises(ResourceError, match="died at their start"):
        list(executor.run(items(1)))
    executor.close()


@pytest.mark.parametrize(("gpus", "threads", "named"), [(1.0, 1, "GPUs"), (0.0, 64, "CPUs")])
def test_resources_that_the_cluster_lacks_are_refused_within_seconds(ray_cluster, gpus, threads, named):
    from prunebench.cluster.executor import RayExecutor
    from prunebench.cluster.placement import Placement

    started = time.monotonic()
    with pytest.raises(ResourceError, match=named):
        RayExecutor("fake_worker:FakeWorker", ("x",), Placement(workers=1, threads=threads, gpus=gpus))
    assert time.monotonic() - started < 5


def test_a_cluster_of_another_version_is_refused_with_rays_words_and_the_remedy(monkeypatch):
    """Ray's own exception; two versions of Ray are not at hand here."""
    from ray._private.utils import check_version_info

    from prunebench.cluster import connect

    def init(**_):
        check_version_info({"ray_version": "2.9.0", "python_version": "3.9.1"}, "This process", True, "minor")

    monkeypatch.setattr(connect, "_check_answering", lambda address: None)
    monkeypatch.setattr(connect.ray, "init", init)
    with pytest.raises(ResourceError, match=r"runs another Ray or Python .* 2\.9\.0 .* pinned Ray 2\."):
        connect.connect("10.0.0.1:6379")


def test_an_address_where_nothing_listens_is_refused_in_seconds():
    from prunebench.cluster.connect import connect

    started = time.monotonic()
    for address, sentence in (("127.0.0.1:1", "Connection refused"), ("nonsense", "write HOST:PORT or auto")):
        with pytest.raises(ResourceError, match=f"cannot reach or start Ray at {address}: .*{sentence}"):
            connect(address)
    assert time.monotonic() - started < 30
