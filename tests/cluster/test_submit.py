"""`prunebench submit`, `stop` and `status`: what is refused before Ray is asked for anything."""

import json
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from prunebench.cluster import dashboard
from prunebench.cluster.connect import connect
from prunebench.errors import InputError, ResourceError
from ray_head import free_ports

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "configs" / "benchmark" / "quickstart.yaml"


@contextmanager
def serving(answers):
    """Address of a server that has these answers: path -> JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            self.send_response(200 if path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(path)).encode())

        def log_message(self, format, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_unreachable_address_is_told_in_seconds(prunebench):
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    for words in (
        ("submit", QUICKSTART, "--store", "/shared/s"),
        ("stop", "prunebench-a-1"),
    ):
        began = time.monotonic()
        code, out, err = prunebench(*words, "--address", address)
        assert (code, out) == (4, "")
        assert f"{address} cannot be reached: is the cluster up" in err
        assert time.monotonic() - began < 10
    assert prunebench("status", f"127.0.0.1:{port}")[0] == 4


def test_an_address_that_never_answers_does_not_hang(prunebench, monkeypatch):
    monkeypatch.setattr(dashboard, "TIMEOUTS_S", (1, 1))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        code, _, err = prunebench("status", f"http://127.0.0.1:{port}")
    assert code == 4
    assert "does not answer in time" in err


def test_what_is_no_dashboard_is_told_so(prunebench):
    with serving({"/api/version": ["not", "Ray"]}) as address:
        code, _, err = prunebench("status", address)
    assert code == 4
    assert "is not Ray's dashboard" in err


def test_another_version_of_ray_is_refused_with_both(prunebench):
    with serving({"/api/version": {"ray_version": "2.9.0"}}) as address:
        code, _, err = prunebench("submit", QUICKSTART, "--store", "/shared/s", "--address", address)
    assert code == 4
    assert "runs Ray 2.9.0, but prunebench is pinned to Ray 2.60.0" in err


@pytest.mark.parametrize(
    "address", ["ray://head:10001", "http://", "http://user:pass@head:8265", "head port"]
)
def test_what_is_no_address_is_told_so(address):
    with pytest.raises(InputError, match="is not the address of a Ray dashboard: write http://HOST:8265"):
        dashboard.dashboard_address(address)


def test_a_given_address_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert dashboard.dashboard_address(None) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://there:443/")
    assert dashboard.dashboard_address(None) == "https://there:443"
    assert dashboard.dashboard_address("head:8265") == "http://head:8265"


def test_options_that_would_not_be_read_are_refused(prunebench):
    for words, sentence in (
        (("--out", "x"), "--out goes with kuberay, slurm or --render-only"),
        (("--to", "slurm", "--follow"), "--follow goes with --to ray"),
        (("--to", "slurm", "--head-local-store"), "--head-local-store goes with --to ray"),
        (("--to", "local", "--address", "x"), "--address goes with --to ray"),
        (("--to", "local", "--render-only"), "--render-only goes with kuberay, slurm or ray"),
    ):
        code, _, err = prunebench("submit", QUICKSTART, "--store", "/shared/s", *words)
        assert code == 2
        assert sentence in err


def test_a_relative_store_and_a_wrong_config_are_refused_without_ray_or_torch(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("search: []")
    script = f"""
import sys
from prunebench.cli import main
for words in (["submit", {str(QUICKSTART)!r}], ["submit", {str(wrong)!r}], ["submit", "--help"],
              ["submit", {str(QUICKSTART)!r}, "--store", "/s", "--address", "http://127.0.0.1:9"]):
    try:
        main(words)
    except SystemExit as done:
        print(done.code)
    assert not [name for name in ("torch", "transformers", "ray", "optuna") if name in sys.modules], words
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdecimal()] == ["2", "2", "0", "4"]
    assert "is a relative path" in done.stderr


def test_slurm_files_are_written_with_what_they_run(prunebench, tmp_path):
    code, out, err = prunebench(
        "submit",
        QUICKSTART,
        "--to",
        "slurm",
        "--render-only",
        "--store",
        "/shared/s",
        "--out",
        "files",
        "--json",
    )
    assert code == 0, err
    (file,) = json.loads(out)["files"]
    text = Path(file).read_text()
    assert "python jobs/benchmark.py configs/benchmark/quickstart.yaml --store /shared/s" in text
    job = tmp_path / "files" / "job"
    assert (job / "jobs" / "benchmark.py").exists()
    assert (job / "configs" / "benchmark" / "quickstart.yaml").read_bytes() == QUICKSTART.read_bytes()
    assert str(job) in text


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Writes shell scripts that stand for the programs of a cluster; no other program can be found."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to(shutil.which("bash"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def write(**scripts):
        for name, text in scripts.items():
            file = tmp_path / "bin" / name
            file.write_text(f"#!/bin/bash\n{text}\n")
            file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return write


def test_slurm_hands_its_script_to_sbatch_and_never_twice(prunebench, tmp_path, programs):
    words = ("submit", QUICKSTART, "--to", "slurm", "--store", "/shared/s", "--out", "files")
    code, out, err = prunebench(*words)
    assert code == 4
    assert "this machine has no sbatch: where it is, run sbatch --comment=prunebench-" in err
    assert f" {out.strip()} yourself" in err
    called = tmp_path / "called"
    programs(sbatch=f'echo "$@" > {called}', squeue="echo 7 another; echo 8")
    code, out, err = prunebench(*words)
    assert code == 0, err
    comment, file = called.read_text().split()
    assert file == out.strip()
    run = comment.removeprefix("--comment=")
    programs(squeue=f"echo 7 another; echo 9 {run}")
    code, _, err = prunebench(*words)
    assert code == 2
    assert f"this run is already there: {run}-0, job 9 of Slurm" in err
    programs(squeue="echo 7 another", sbatch="exit 1")
    assert prunebench(*words)[0] == 4
    programs(squeue="echo slurmctld is down >&2; exit 1")
    code, _, err = prunebench(*words)
    assert code == 4
    assert "slurmctld is down" in err


def test_kuberay_applies_the_next_attempt_and_never_doubles_one(prunebench, tmp_path, programs):
    place = (
        'cluster.kuberay={"image": "i:1", "claim": "shared", "folder": "/opt/prunebench", "namespace": "ml"}'
    )
    words = (
        "submit",
        QUICKSTART,
        "--to",
        "kuberay",
        "--store",
        "/shared/s",
        "--out",
        "files",
        "--set",
        place,
    )
    code, out, err = prunebench(*words, "--render-only")
    assert code == 0, err
    first = yaml.safe_load(Path(out.strip()).read_text())["metadata"]["name"]
    assert first.endswith("-1")
    assert f"what the pods hold at /opt/prunebench has to be what is in {tmp_path}/files/job" in err
    job = {"metadata": {"name": first}, "status": {"jobDeploymentStatus": "Failed"}}

    def kubectl(items):
        (tmp_path / "jobs.json").write_text(json.dumps({"items": items}))
        answer = f'echo "$(<{tmp_path}/jobs.json)"'
        programs(kubectl=f'echo "$@" >> {tmp_path}/called; [ "$1" = apply ] || {answer}')

    kubectl([job])
    code, out, err = prunebench(*words)
    assert code == 0, err
    assert yaml.safe_load(Path(out.strip()).read_text())["metadata"]["name"] == f"{first[:-1]}2"
    asked, applied = (tmp_path / "called").read_text().splitlines()
    assert asked == "get rayjobs --namespace ml --output json"
    assert applied == f"apply -f {out.strip()}"
    kubectl([job, {"metadata": {"name": f"{first[:-1]}2"}}])
    code, _, err = prunebench(*words)
    assert code == 2
    assert f"this run is already there: {first[:-1]}2, new" in err


def test_auto_is_this_users_last_cluster_and_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ResourceError, match="no `ray start` of this user is noted"):
        connect("auto")
    (port,) = free_ports(1)
    (tmp_path / "ray").mkdir()
    file = tmp_path / "ray" / "ray_current_cluster"
    file.write_text(f"127.0.0.1:{port}\n")
    with pytest.raises(ResourceError, match=f"cannot reach or start Ray at 127.0.0.1:{port}"):
        connect("auto")
    monkeypatch.setattr("os.getuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ResourceError, match="no `ray start` of this user is noted"):
        connect("auto")
