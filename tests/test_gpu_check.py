"""The prepared check of a GPU: it refuses without one, and its logic holds on a small random model."""

import sys

import pytest
import torch

import gpu_check


def test_without_a_gpu_it_is_one_sentence_and_exit_code_4(monkeypatch, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    with pytest.raises(SystemExit) as done:
        gpu_check.main()
    assert done.value.code == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "no usable NVIDIA GPU" in captured.err


def test_its_checks_hold_on_a_small_random_model(tmp_path):
    torch.set_num_threads(1)
    bench = gpu_check.Bench.open(gpu_check.write_random(tmp_path / "random", gpu_check.SIZES["cpu"]), "cpu")
    checks = (
        gpu_check.check_shapes,
        gpu_check.check_spread,
        gpu_check.check_throughput,
        gpu_check.check_efficiency,
    )
    verdicts = [verdict for check in checks for verdict in check(bench)]
    assert [verdict.name for verdict in verdicts if not verdict.held] == []
    assert [verdict.name for verdict in verdicts] == [
        "depth",
        "trim",
        "spread",
        "scoring dense",
        "scoring eight plans",
        "latency dense",
        "latency depth",
        "latency trim",
    ]


def test_what_is_out_of_time_or_raises_is_not_run_and_not_held(tmp_path, monkeypatch):
    model = gpu_check.write_random(tmp_path / "random", gpu_check.SIZES["cpu"])

    def broken(bench):
        raise RuntimeError("as ordered")

    monkeypatch.setattr(gpu_check, "check_shapes", broken)
    late = list(gpu_check.checks_of(model, "cpu", -1.0))
    assert {verdict.words for verdict in late} == {"not run: -1 s are over"}
    for stage in ("check_spread", "check_throughput", "check_efficiency"):
        monkeypatch.setattr(gpu_check, stage, lambda bench: iter(()))
    monkeypatch.setattr(gpu_check, "check_swaps", lambda model, bench: iter(()))
    (failed,) = gpu_check.checks_of(model, "cpu", 60.0)
    assert (failed.held, failed.words) == (False, "not run: RuntimeError: as ordered")
