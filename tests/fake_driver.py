"""A driver with a fake evaluator: everything a real run does to a store, in milliseconds.

As a script it is the child process of the kill tests: `fake_driver.py ROOT [drive|crashes|full]`.
"""

import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prunebench.core.fingerprint import canonical_json, sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.stats import WeightStats
from prunebench.core.unit import (
    Generated,
    Generation,
    PlanDone,
    ProbeAnswered,
    Sample,
    StatsDone,
    Unit,
    UnitDone,
)
from prunebench.errors import ResourceError
from prunebench.store import ledger as ledger_module
from prunebench.store import merge as merge_module
from prunebench.store.artifacts import save_exam, save_plan, save_planned, save_stats, save_variant
from prunebench.store.derive import derive_results
from prunebench.store.diff import diff
from prunebench.store.ledger import Ledger
from prunebench.store.probes import ProbeMemory
from prunebench.store.read import units_present
from prunebench.store.record import Variant
from prunebench.store.runs import RunLog

WEIGHTS = "ab" * 32
DEPTH = 6
PLANS = {
    "dense": PruningPlan.dense(DEPTH),
    "last_n": PruningPlan.without([4, 5], DEPTH),
    "shortgpt": PruningPlan.without([2, 3], DEPTH),
    "lorp": PruningPlan.without([2, 3], DEPTH),
}
STATISTICS = WeightStats(
    source="fake",
    norm_L7=np.ones((DEPTH, 7)),
    column_square_LI=np.ones((DEPTH, 8)),
    cka_o_LL=np.zeros((0, 0)),
    cka_down_LL=np.zeros((0, 0)),
)
METRICS = {"text": ("perplexity",), "choice": ("acc", "acc_norm")}


def unit_of(task: str, index: int, plan_id: str = "") -> Unit:
    return Unit(
        weights_id=WEIGHTS,
        tokenizer_hash="cd" * 32,
        plan_id=plan_id,
        task=task,
        task_version="1",
        recipe=canonical_json({"length": 4}),
        document_hash=sha256_text(f"{task} {index}"),
        start=2 * index,
        stop=2 * index + 2,
        dtype="float32",
        attention="sdpa",
        scorer_version="1",
    )


def evaluate(unit: Unit) -> UnitDone:
    """Numbers that depend on the unit alone."""
    samples = []
    for document in range(unit.start, unit.stop):
        for metric in METRICS[unit.task]:
            drawn = int(sha256_text(f"{unit.plan_id} {metric} {document}")[:8], 16) / 2**32
            value, weight = (-5 * drawn, 3.0) if metric == "perplexity" else (float(drawn > 0.5), 1.0)
            samples.append(
                Sample(
                    doc_id=document,
                    doc_hash=sha256_text(str(document)),
                    metric=metric,
                    value=value,
                    weight=weight,
                )
            )
    return UnitDone(unit=unit, samples=tuple(samples), seconds=0.25)


def written(unit: Unit) -> Generated:
    """Text that depends on the unit alone."""
    generation = Generation(
        prompt_hash=sha256_text(unit.task),
        text=unit.unit_id,
        num_prompt_tokens=3,
        num_tokens=5,
        finish_reason="stop",
    )
    return Generated(unit=unit, generation=generation, seconds=0.25)


def variant_of(method: str) -> Variant:
    plan = PLANS[method]
    budget = DEPTH - len(plan.layers)
    return Variant(
        model="fake",
        weights_id=WEIGHTS,
        dtype="float32",
        attention="sdpa",
        method=method,
        params_json="{}",
        budget=str(budget),
        budget_layers=budget,
        num_layers=DEPTH,
        projection_params=100 * DEPTH,
        plan_id=plan.plan_id,
        removed_layers=plan.removed_layers,
        removed_params=100 * budget,
        total_params=100 * (DEPTH - budget),
        seconds=0.5,
    )


def drive(root: Path, ranges: int = 2, told: Callable[[str], object] = lambda _: None) -> None:
    """One whole run. `told` hears of each committed unit."""
    with Ledger(root) as ledger, RunLog.start(root, {"config": "fake"}) as run, ProbeMemory(root) as memory:
        exams = {task: [unit_of(task, index) for index in range(ranges)] for task in METRICS}
        for units in exams.values():
            run.exam(save_exam(root, units))
        save_stats(root, StatsDone(key="shard-0", data=STATISTICS.to_bytes(), seconds=0.1))
        for step in ("a", "b"):
            memory.remember(ProbeAnswered(call_id=step, call="{}", value=1.5, seconds=0.1))
        save_planned(
            root, PlanDone(key="laco", plan=None, chosen="{}", warnings=(), seconds=0.1, unreachable="no")
        )
        for method, plan in PLANS.items():
            save_plan(root, plan)
            save_variant(root, variant_of(method))
            run.variant(variant_of(method).variant_key)
        plan_ids = sorted({plan.plan_id for plan in PLANS.values()})
        present = ledger.present()
        for unit in [
            unit.for_plan(plan_id) for units in exams.values() for unit in units for plan_id in plan_ids
        ]:
            if unit.unit_id not in present:
                if unit.task == "choice" and unit.plan_id == PLANS["dense"].plan_id:
                    ledger.keep(written(unit))
                run.unit(unit, worker="fake", host=str(os.getpid()), seconds=0.25, attempt=1)
                ledger.commit(evaluate(unit))
                told(unit.unit_id)
        ledger.fold()
        derive_results(root)
        run.end("done")


def tell(line: str) -> None:
    """Say a line to the parent process at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def skip_waiting_for_the_disk() -> None:
    """Make fsync free: what was written survives SIGKILL without it, and no test can pull the plug."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _: None)


class Kill:
    """SIGKILLs this process just before its n-th change of the disk, or with half of a write done."""

    CHANGES = ("write", "replace", "unlink")
    NOTED = (*CHANGES, "open", "fsync", "fdatasync")

    def __init__(self, at: int) -> None:
        self.at, self.names = at, []

    def install(self) -> None:
        for name in self.NOTED:
            setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.names.append(name)
            if name in self.CHANGES and sum(self.names.count(change) for change in self.CHANGES) == self.at:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call


def in_fork(work: Callable[[], object]) -> int:
    """The exit status of `work` in a process of its own; negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            failed = sys.exc_info()[0] is not None
            if failed:
                traceback.print_exc()
            os._exit(failed)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def crashes(root: Path) -> None:
    """Kill a run at each of its changes of the disk in turn, resume it, compare with an undisturbed run."""
    calm, counted = root / "calm", root / "counted"
    root.mkdir()
    in_fork(lambda: drive(calm, ranges=1))

    def count() -> None:
        watch = Kill(0)
        watch.install()
        drive(root / "counting", ranges=1)
        with counted.open("w") as file:
            json.dump(watch.names, file)

    in_fork(count)
    names = json.loads(counted.read_text())
    changes = [name for name in names if name in Kill.CHANGES]
    wrong = []
    for at in range(1, len(changes) + 1):
        store = root / "crashed"

        def crash(at: int = at, store: Path = store) -> None:
            with (root / "told").open("w") as told:
                Kill(at).install()
                drive(store, ranges=1, told=lambda unit_id: (told.write(f"{unit_id}\n"), told.flush()))

        def resume(at: int = at, store: Path = store) -> None:
            if told := set((root / "told").read_text().split()):
                assert told <= units_present(store), f"killed before change {at}: finished units are lost"
            drive(store, ranges=1)
            if differences := diff(calm, store):
                raise AssertionError(f"killed before change {at}, {changes[at - 1]}: {differences}")

        if in_fork(crash) != -signal.SIGKILL or in_fork(resume) != 0:
            wrong.append(f"change {at}, {changes[at - 1]}")
        shutil.rmtree(store)
    tell(json.dumps({"events": names, "wrong": wrong}))


def full(root: Path) -> None:
    """Commit on a disk that refuses files beyond 1,000 bytes, then on one that has room again."""
    unit = unit_of("text", 0, PLANS["dense"].plan_id)
    answer = ProbeAnswered(call_id="b", call="x" * 2_000, value=1.0, seconds=0.1)
    with Ledger(root) as ledger, ProbeMemory(root) as memory:
        memory.remember(replace(answer, call_id="a", call="{}"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
        errors = []
        for work in (lambda: ledger.commit(evaluate(unit)), lambda: memory.remember(answer)):
            try:
                work()
            except ResourceError as error:
                errors.append(str(error))
        files = [path.name for path in (root / "samples").iterdir()]
        probe_lines = [path.read_text() for path in (root / "probes").iterdir()]
        present = unit.unit_id in ledger.present()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        again = ledger.commit(evaluate(unit))
        memory.remember(answer)
    tell(
        json.dumps(
            {"errors": errors, "files": files, "lines": probe_lines, "present": present, "again": again}
        )
    )


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    ledger_module.FOLD_EVERY = 2 if what == "crashes" else 5
    merge_module.MANY_PARTS = 2 if what == "crashes" else 3
    skip_waiting_for_the_disk()
    if what == "crashes":
        crashes(root)
    elif what == "full":
        full(root)
    else:
        tell("ready")
        sys.stdin.readline()
        drive(root, ranges=int(what), told=tell)


if __name__ == "__main__":
    main()
