"""What readers take from the logs of runs, and damage that they name."""

import json

import pytest

from fake_driver import PLANS, unit_of
from prunebench.errors import InputError
from prunebench.store.layout import open_store
from prunebench.store.read import read_events, read_runs
from prunebench.store.run_events import EVENTS, run_events
from prunebench.store.runs import RunLog

START = '{"event":"start","started_at":"2026-01-01T00:00:00+00:00","record":{"kind":"benchmark","x":[NaN]}}\n'


def log_of(tmp_path, text):
    store = open_store(tmp_path / "store")
    (store / "runs" / "r1.jsonl").write_text(text)
    return store


def test_a_log_is_read_as_it_was_written(tmp_path):
    store, one = open_store(tmp_path / "store"), unit_of("text", 0, PLANS["dense"].plan_id)
    with RunLog.start(store, {"kind": "benchmark"}, "r1") as log:
        log.exam("e1")
        log.exam("e2", ["b", "a"])
        log.variant("v1")
        log.unit(one, worker="7", host="h", seconds=0.5, attempt=2)
        log.failure("k", "a\u202eb")
        log.end("done", {"lost": 1})
    (run,) = run_events(store)
    assert (run.run_id, run.record) == ("r1", {"kind": "benchmark"})
    assert run.events.schema == EVENTS
    assert run.events["event"].to_pylist() == ["exam", "exam", "variant", "unit", "failure", "end"]
    assert list(run.of("exam", "exam_id", "plan_ids")) == [("e1", None), ("e2", ["a", "b"])]
    assert list(run.of("unit", "unit_id", "seconds", "attempt")) == [(one.unit_id, 0.5, 2)]
    assert list(run.of("end", "status")) == [("done",)]
    assert list(run.of("nothing", "status")) == []


@pytest.mark.parametrize("end", ["", '{"event":"unit","unit_id":"u"', '{"event":'])
def test_a_torn_last_line_is_skipped(tmp_path, end):
    store = log_of(tmp_path, START + '{"event":"variant","variant_key":"v1"}\n' + end)
    (run,) = run_events(store)
    assert list(run.of("variant", "variant_key")) == [("v1",)]
    assert read_runs(store)["status"].tolist() == ["killed or running"]


@pytest.mark.parametrize("text", ["", START[:-1], START[:20]])
def test_a_run_that_got_no_start_record_down_is_none(tmp_path, text):
    assert list(run_events(log_of(tmp_path, text))) == []


def test_a_line_may_be_longer_than_arrows_blocks(tmp_path):
    plans = [f"{number:064x}" for number in range(80_000)]
    store = open_store(tmp_path / "store")
    with RunLog.start(store, {}, "r1") as log:
        log.exam("e1", plans)
    (run,) = run_events(store)
    assert list(run.of("exam", "plan_ids")) == [(plans,)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "3",
        "[]",
        "null",
        "{}",
        '{"unit_id": "u"}',
        '{"event":"a"}{"event":"b"}',
        '{"event":"unit","seconds":',
        '{"event":"a"\x00}',
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_damaged_line_is_named(tmp_path, line, place):
    lines = [START[:-1], '{"event":"variant","variant_key":"v"}', '{"event":"end","status":"done"}']
    lines.insert(place, line)
    store = log_of(tmp_path, "\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"r1\.jsonl is damaged in line {place + 1}: delete it"):
        list(run_events(store))


@pytest.mark.parametrize("line", ['{"event":"unit","seconds":"x"}', '{"event":"a","event":"b"}'])
def test_a_line_of_other_types_is_damage(tmp_path, line):
    store = log_of(tmp_path, f"{START}{line}\n")
    with pytest.raises(InputError, match=r"r1\.jsonl is damaged \(JSON parse error.*\): delete it"):
        read_events(store)


UNIT = {
    "event": "unit",
    "unit_id": "u",
    "worker": "w",
    "host": "h",
    "seconds": 1.0,
    "attempt": 1,
    "at": "2026-01-01",
}


@pytest.mark.parametrize("name", [name for name in UNIT if name != "event"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_unit_that_lacks_what_readers_need_is_named(tmp_path, name, missing):
    line = {key: value for key, value in UNIT.items() if key != name} if missing else {**UNIT, name: None}
    store = log_of(tmp_path, f"{START}{json.dumps(UNIT)}\n{json.dumps(line)}\n")
    with pytest.raises(InputError, match=rf"r1\.jsonl is damaged in line 3, which has no {name}: delete it"):
        read_events(store)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"event":"exam"}', "in line 2, which has no exam_id"),
        ('{"event":"variant"}', "in line 2, which has no variant_key"),
        ('{"event":"end"}', "in line 2, which has no status"),
        (json.dumps({**UNIT, "at": "yesterday"}), "yesterday"),
        ('{"event":"a","x":' + "[" * 200_000, "in line 2"),
    ],
)
def test_other_lines_that_say_too_little_are_named(tmp_path, line, why):
    store = log_of(tmp_path, f"{START}{line}\n")
    with pytest.raises(InputError, match=rf"r1\.jsonl is damaged .*{why}.*: delete it"):
        read_runs(store)


@pytest.mark.parametrize("text", [b'{"event":"\xff"}\n', b'{"event":"a","x":"\xff\xfe"}\n'])
def test_bytes_that_are_no_text_are_damage(tmp_path, text):
    store = log_of(tmp_path, "")
    (store / "runs" / "r1.jsonl").write_bytes(START.encode() + text)
    with pytest.raises(InputError, match=r"r1\.jsonl is damaged in line 2: delete it"):
        list(run_events(store))


@pytest.mark.parametrize(
    "start",
    ['"started_at":"soon","record":{}', '"started_at":5,"record":{}', '"started_at":"2026-01-01","record":3'],
)
def test_a_start_record_of_other_types_is_damage(tmp_path, start):
    with pytest.raises(InputError, match=r"r1\.jsonl is damaged in line 1: delete it"):
        list(run_events(log_of(tmp_path, f'{{"event":"start",{start}}}\n')))


def test_what_is_no_file_is_named(tmp_path):
    store = open_store(tmp_path / "store")
    (store / "runs" / "r1.jsonl").mkdir()
    with pytest.raises(InputError, match=r"r1\.jsonl cannot be read: Is a directory"):
        list(run_events(store))
