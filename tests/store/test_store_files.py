"""Plans, statistics, exams, probe answers, runs; verify, compact and diff."""

import io
import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fake_driver import PLANS, drive, evaluate, unit_of
from prunebench.core.unit import PlanDone, ProbeAnswered, StatsDone
from prunebench.errors import InputError
from prunebench.store.artifacts import (
    load_exam,
    load_plan,
    load_planned,
    load_stats,
    save_exam,
    save_plan,
    save_planned,
    save_stats,
)
from prunebench.store.compact import compact
from prunebench.store.derive import derive_results
from prunebench.store.diff import diff
from prunebench.store.ledger import Ledger
from prunebench.store.probes import ProbeMemory, read_answers
from prunebench.store.read import read_events, read_failures, read_runs, samples_table
from prunebench.store.runs import RunLog
from prunebench.store.verify import verify


@pytest.fixture
def store(root):
    Ledger(root).close()
    return root


def test_plans_come_back_and_a_wrong_or_missing_one_is_told(store):
    plan = PLANS["last_n"]
    save_plan(store, plan)
    assert load_plan(store, plan.plan_id) == plan
    with pytest.raises(InputError, match="the store has no plan 0123"):
        load_plan(store, "0123")
    (store / "plans" / "0123.json").write_text(plan.canonical)
    with pytest.raises(InputError, match="holds the plan"):
        load_plan(store, "0123")


def test_statistics_and_planned_answers_come_back_and_the_first_stays(store):
    done = PlanDone(key="k", plan=PLANS["lorp"].canonical, chosen='{"K":2}', warnings=("w",), seconds=1.5)
    save_planned(store, done)
    save_planned(store, replace(done, seconds=9.0))
    archive = io.BytesIO()
    np.savez(archive, sums=np.arange(8.0))
    save_stats(store, StatsDone(key="s", data=archive.getvalue(), seconds=0.0))
    save_stats(store, StatsDone(key="s", data=b"later", seconds=0.0))
    assert (load_planned(store, "k"), load_planned(store, "other")) == (done, None)
    assert (load_stats(store, "s"), load_stats(store, "other")) == (archive.getvalue(), None)
    with pytest.raises(ValueError, match="not a key"):
        load_stats(store, "../outside")


def test_exams_keep_their_ranges_and_grow_by_new_ones(store):
    units = [unit_of("text", index) for index in range(3)]
    name = save_exam(store, [unit.for_plan("p") for unit in units[:2]])
    assert save_exam(store, units[1:]) == name
    assert load_exam(store, name) == tuple(units)
    with pytest.raises(ValueError, match="one task"):
        save_exam(store, [units[0], unit_of("choice", 0)])


def test_probe_answers_survive_bit_for_bit_with_a_torn_last_line(store):
    values = {"a": 0.1 + 0.2, "b": math.inf, "c": -0.0}
    with ProbeMemory(store) as memory:
        for call_id, value in values.items():
            memory.remember(ProbeAnswered(call_id=call_id, call='{"ask":"loss"}', value=value, seconds=0.5))
            memory.remember(ProbeAnswered(call_id=call_id, call="{}", value=7.0, seconds=0.5))
    (path,) = (store / "probes").iterdir()
    path.write_bytes(path.read_bytes() + b'{"call_id": "d", "val')
    with ProbeMemory(store) as again:
        assert repr(dict(again.answers)) == repr(values)
        again.remember(ProbeAnswered(call_id="d", call="{}", value=math.nan, seconds=0.5))
    answers = read_answers(store)
    assert math.isnan(answers["d"].value)
    assert answers["a"].call == '{"ask":"loss"}'


def test_a_damaged_line_in_the_middle_is_named(store):
    (store / "probes" / "x.jsonl").write_text('{"call_id": \n{}\n')
    with pytest.raises(InputError, match=r"x\.jsonl is damaged in line 1"):
        ProbeMemory(store)


@pytest.mark.parametrize("line", ["[]", "{}", '{"call_id": "a"}'])
def test_a_line_of_another_kind_is_named(store, line):
    (store / "probes" / "x.jsonl").write_text(line + "\n")
    (store / "runs" / "x.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match=r"x\.jsonl is damaged in line 1"):
        ProbeMemory(store)
    with pytest.raises(InputError, match=r"x\.jsonl is damaged in line 1"):
        read_runs(store)


@pytest.mark.parametrize("text", ["[]", "{}", '{"key": "a"}'])
def test_a_failure_record_of_another_kind_is_named(store, text):
    (store / "failures" / "x.1.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.1\.json is damaged"):
        read_failures(store)
    assert [finding.path for finding in verify(store)] == [str(store / "failures" / "x.1.json")]


@pytest.mark.parametrize("cut", [slice(0, 80), slice(0, -30)])
def test_torn_statistics_are_named(store, cut):
    archive = io.BytesIO()
    np.savez(archive, sums=np.arange(8.0))
    (store / "stats" / "s.npz").write_bytes(archive.getvalue()[cut])
    with pytest.raises(InputError, match=r"s\.npz is damaged.*`prunebench run CONFIG`"):
        load_stats(store, "s")


@pytest.mark.parametrize("content", [b"{", b"\xff"])
def test_a_damaged_plan_is_named_with_its_file(store, content):
    (store / "plans" / "0123.json").write_bytes(content)
    with pytest.raises(InputError, match=r"0123\.json is damaged"):
        load_plan(store, "0123")


def test_a_copy_without_empty_folders_is_read(store):
    for folder in [path for path in store.iterdir() if path.is_dir()]:
        shutil.rmtree(folder)
    assert len(samples_table(store)) == len(read_failures(store)) == len(derive_results(store)) == 0
    assert verify(store) == []


def test_a_run_tells_its_start_its_units_and_its_end(store):
    one, two = unit_of("text", 0, "p"), unit_of("choice", 0, "q")
    with RunLog.start(store, {"config": "a.yaml"}, run_id="run-1") as run:
        run.unit(one, worker="w0", host="h", seconds=1.5, attempt=2)
        run.failure("k", "OutOfMemoryError: \x1b[31m3 GiB")
        run.end("done")
    lines = [json.loads(line) for line in (store / "runs" / "run-1.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "unit", "failure", "end"]
    assert {line["run_id"] for line in lines} == {"run-1"}
    assert (lines[1]["plan_id"], lines[1]["task"]) == ("p", "text")
    assert lines[2]["error"] == "OutOfMemoryError: \x1b[31m3 GiB"
    assert "\x1b" not in (store / "runs" / "run-1.jsonl").read_text()
    with RunLog.start(store, {}, run_id="run-2") as run:
        run.unit(two, worker="w1", host="h", seconds=2.5, attempt=1)
    (store / "runs" / "run-3.jsonl").write_text('{"event": "sta')
    runs = read_runs(store).set_index("run_id")
    assert runs["status"].to_dict() == {"run-1": "done", "run-2": "killed or running"}
    assert runs["record_json"].to_dict() == {"run-1": '{"config": "a.yaml"}', "run-2": "{}"}
    events = read_events(store)
    assert events[["run_id", "unit_id", "worker", "seconds", "attempt"]].to_numpy().tolist() == [
        ["run-1", one.unit_id, "w0", 1.5, 2],
        ["run-2", two.unit_id, "w1", 2.5, 1],
    ]


def test_a_sound_store_has_no_findings_and_no_differences_from_itself(undisturbed):
    assert verify(undisturbed) == []
    assert diff(undisturbed, undisturbed) == []


def test_a_store_computed_again_elsewhere_differs_in_nothing_that_counts(undisturbed, root):
    drive(root)
    assert diff(undisturbed, root) == []


def test_verify_names_everything_that_is_broken(root):
    drive(root)
    (part,) = (root / "samples").iterdir()
    unit = unit_of("text", 0, PLANS["lorp"].plan_id)
    stray = root / "samples" / f"{'1' * 64}.parquet"
    stray.write_bytes(part.read_bytes())
    (root / "samples" / f"{'2' * 64}.parquet").write_bytes(b"PAR1")
    (root / "plans" / f"{unit.plan_id}.json").unlink()
    (root / "plans" / f"{PLANS['dense'].plan_id}.json").write_text("{}")
    (root / "samples" / ".tmp-dead").write_bytes(b"half")
    (root / "stats" / "shard-0.npz").write_bytes(b"half")
    (root / "planned" / "laco.json").write_text("{")
    (root / "failures" / "x.1.json").write_text("{")
    (root / "runs" / "x.jsonl").write_text("{\n{}\n")
    (root / "results" / "results-other.parquet").write_bytes(b"")
    told = "\n".join(str(finding) for finding in verify(root))
    for words in (
        f"{'2' * 64}.parquet: ",
        "another unit than its name says",
        f"the unit {unit.unit_id} is in {part.name} and {stray.name}: harmless",
        f"{unit.plan_id}.json: it is missing, but samples name it",
        f"{unit.plan_id}.json: it is missing, but variants name it",
        f"{PLANS['dense'].plan_id}.json: is damaged (not a pruning plan",
        ".tmp-dead: a writer that was killed",
        "shard-0.npz: is damaged",
        "laco.json: is damaged",
        "x.1.json: is damaged",
        "x.jsonl: is damaged in line 1",
        "results-other.parquet: ",
        "holds 2 files instead of one",
    ):
        assert words in told


def test_verify_tells_when_two_files_disagree_on_a_unit(root):
    drive(root)
    done = evaluate(unit_of("text", 0, PLANS["lorp"].plan_id))
    other = replace(done, samples=tuple(replace(sample, value=9.0) for sample in done.samples))
    with_other = root.parent / "other"
    Ledger(with_other).commit(other)
    name = f"{done.unit.unit_id}.parquet"
    (root / "samples" / name).write_bytes((with_other / "samples" / name).read_bytes())
    (finding,) = verify(root)
    assert "with different samples" in str(finding)
    forged = replace(done, unit=replace(done.unit, start=1))
    Ledger(with_other).commit(forged)
    file = with_other / "samples" / f"{forged.unit.unit_id}.parquet"
    file.rename(file.with_name(f"{'3' * 64}.parquet"))
    assert any("another unit" in str(finding) for finding in verify(with_other))


def test_compaction_merges_parts_drops_doubles_and_old_temporaries_and_changes_nothing_read(root):
    drive(root, ranges=1)
    drive(root, ranges=3)
    folder = root / "samples"
    doubled = unit_of("text", 1, PLANS["lorp"].plan_id)
    stale = root.parent / "stale"
    Ledger(stale).commit(evaluate(doubled))
    (folder / f"{doubled.unit_id}.parquet").write_bytes(
        (stale / "samples" / f"{doubled.unit_id}.parquet").read_bytes()
    )
    old, young = folder / ".tmp-old", root / ".tmp-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    read = samples_table(root)
    assert "removed 1 temporary files" in compact(root)
    assert samples_table(root).equals(read)
    assert [path.name[:5] for path in folder.iterdir()] == ["part-"]
    assert young.exists()
    names = [path.name for path in folder.iterdir()]
    compact(root)
    assert [path.name for path in folder.iterdir()] == names


def test_diff_tells_missing_units_other_values_and_other_results(undisturbed, root):
    drive(root)
    (part,) = (root / "samples").iterdir()
    part.unlink()
    kept = [evaluate(unit_of("text", 0, plan.plan_id)) for plan in (PLANS["dense"], PLANS["last_n"])]
    odd = replace(kept[1], samples=(replace(kept[1].samples[0], value=9.0), *kept[1].samples[1:]))
    with Ledger(root) as ledger:
        for one in (kept[0], odd):
            ledger.commit(one)
    derive_results(root)
    lines = diff(undisturbed, root)
    told = "\n".join(lines)
    assert f"samples: only in {undisturbed}: task " in told
    assert "more rows only in" in told
    (changed,) = [line for line in lines if line.startswith("samples: differs")]
    assert f"plan_id {PLANS['last_n'].plan_id}" in changed
    assert "and 9.0" in changed
    assert "status: 'ok' and 'incomplete'" in told
    assert len(diff(root, undisturbed)) == len(lines)
