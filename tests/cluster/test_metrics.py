"""Metrics on a real node's port, and the dashboard that asks for them."""

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest

from fake_worker import PLANS, items
from prunebench.core.unit import Generated, Generation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

DASHBOARD = Path(__file__).parents[2] / "configs" / "grafana" / "prunebench.json"


def served() -> str:
    import ray

    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def counted(text: str) -> dict[str, float]:
    """Sum of each of our series, and of each status of units."""
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^ray_(prunebench_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        status = re.search(r'status="(\w+)"', labels)
        key = f"{name} {status[1]}" if status else name
        found[key] = found.get(key, 0.0) + float(value)
    return found


def test_a_run_is_seen_on_the_metrics_port(ray_cluster, tmp_path):
    from prunebench.cluster.executor import RayExecutor
    from prunebench.cluster.metrics import RunMetrics
    from prunebench.cluster.placement import Placement

    before = counted(served())
    (tmp_path / f"kill-{PLANS[1].plan_id}").write_text("1")
    (tmp_path / f"raise-{PLANS[2].plan_id}").touch()
    executor = RayExecutor("fake_worker:FakeWorker", (str(tmp_path),), Placement(workers=1, threads=1))
    list(executor.run(items(1, PLANS[:3])))
    executor.close()
    written = Generation(
        prompt_hash="0" * 64, text="a", num_prompt_tokens=3, num_tokens=7, finish_reason="stop"
    )
    RunMetrics().message(Generated(unit=items(1)[0].unit, generation=written, seconds=0.1))
    wanted = {
        "prunebench_units_total done": 2,
        "prunebench_units_total failed": 1,
        "prunebench_unit_seconds_count": 2,
        "prunebench_workers_lost_total": 1,
        "prunebench_generated_tokens_total": 7,
    }
    deadline = time.monotonic() + 60
    now: dict[str, float] = {}
    while time.monotonic() < deadline:
        now = counted(served())
        if {name: now.get(name, 0) - before.get(name, 0) for name in wanted} == wanted:
            break
        time.sleep(0.5)
    assert {name: now.get(name, 0) - before.get(name, 0) for name in wanted} == wanted
    assert {"prunebench_items_waiting", "prunebench_workers"} <= set(now)


def test_the_dashboard_asks_for_metrics_that_exist():
    from prunebench.cluster.metrics import DESCRIBED

    series = {f"ray_{name}" for name in DESCRIBED}
    series |= {f"ray_{name}_total" for name in DESCRIBED} | {"ray_prunebench_unit_seconds_bucket"}
    asked = set(re.findall(r"ray_\w+", DASHBOARD.read_text()))
    assert asked <= series
    assert {name for name in DESCRIBED if any(name in one for one in asked)} == set(DESCRIBED)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 6
