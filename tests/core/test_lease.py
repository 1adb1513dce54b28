from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.lease import MAX_DEATHS, Leases
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import (
    EvaluateItem,
    Failed,
    Generated,
    GenerateItem,
    Generation,
    PlanDone,
    PlanItem,
    ProbeAnswered,
    Unit,
    UnitDone,
    WeightsItem,
)

PLANS = tuple(PruningPlan.without([i], 4) for i in range(3))
UNIT = Unit(
    weights_id="w",
    tokenizer_hash="t",
    plan_id="",
    task="task",
    task_version="1",
    recipe="{}",
    document_hash="d",
    start=0,
    stop=1,
    dtype="float32",
    attention="sdpa",
    scorer_version="1",
)


def evaluation(number=0):
    unit = replace(UNIT, start=number, stop=number + 1)
    return EvaluateItem(model="m", kind="fake", unit=unit, documents=(), plans=PLANS)


def generation(count=3):
    units = tuple(replace(UNIT, start=i, stop=i + 1, seed=i % 2) for i in range(count))
    return GenerateItem(
        model="m",
        engine="e",
        plan=PLANS[0],
        units=units,
        documents=tuple(f"document {i}" for i in range(count)),
    )


WRITTEN = Generation(prompt_hash="h", text="t", num_prompt_tokens=3, num_tokens=1, finish_reason="stop")


def done(item, plan):
    return UnitDone(unit=item.unit.for_plan(plan.plan_id), samples=(), seconds=0.0)


def ids(item, plans):
    return tuple(item.unit.for_plan(plan.plan_id).unit_id for plan in plans)


def take(leases):
    lease = leases.take()
    assert lease is not None
    return lease


def test_a_lost_lease_comes_back_with_what_was_not_delivered_and_before_the_others():
    first, second = evaluation(0), evaluation(1)
    leases = Leases([first, second])
    lease = take(leases)
    assert lease.attempt == 1
    assert lease.remaining == ids(first, PLANS)
    lease.delivered(done(first, PLANS[1]))
    assert leases.lost(lease, "as ordered") is None
    again = take(leases)
    assert again.attempt == 2
    assert again.remaining == ids(first, [PLANS[0], PLANS[2]])
    assert leases.waiting == 1


def test_a_failed_unit_is_settled_too():
    item = evaluation()
    lease = take(Leases([item]))
    lease.delivered(Failed(keys=ids(item, PLANS[:2]), error="x", traceback=""))
    assert lease.remaining == ids(item, PLANS[2:])


def test_messages_of_other_units_settle_nothing():
    item, other = evaluation(0), evaluation(1)
    lease = take(Leases([item]))
    lease.delivered(done(other, PLANS[0]))
    assert lease.remaining == ids(item, PLANS)


def test_after_the_second_death_every_plan_gets_its_own_lease():
    item = evaluation()
    leases = Leases([item])
    leases.lost(take(leases), "as ordered")
    assert leases.waiting == 1
    leases.lost(take(leases), "as ordered")
    assert leases.waiting == len(PLANS)
    singles = [take(leases) for _ in PLANS]
    assert sorted(lease.remaining for lease in singles) == sorted((key,) for key in ids(item, PLANS))


def test_the_third_death_with_one_unit_alone_fails_it_and_no_other():
    item = evaluation()
    leases = Leases([item])
    leases.lost(take(leases), "as ordered")
    leases.lost(take(leases), "as ordered")
    for _ in range(MAX_DEATHS - 1):
        assert leases.lost(take(leases), "as ordered") is None
    failed = leases.lost(take(leases), "as ordered")
    assert failed is not None
    assert len(failed.keys) == 1
    assert str(MAX_DEATHS) in failed.error
    left = [take(leases) for _ in range(2)]
    assert leases.take() is None
    assert {lease.remaining for lease in left} == {(key,) for key in ids(item, PLANS)} - {failed.keys}
    for lease in left:
        leases.finished(lease)
    assert not leases.unfinished


def test_workers_lost_with_many_units_in_their_hands_count_against_none():
    item = evaluation()
    leases = Leases([item])
    leases.lost(take(leases), "as ordered")
    leases.lost(take(leases), "as ordered")
    for _ in PLANS:
        lease = take(leases)
        for _ in range(MAX_DEATHS - 1):
            assert leases.lost(lease, "as ordered") is None
            lease = take(leases)
        leases.finished(lease)
    assert not leases.unfinished


def test_a_lease_lost_after_its_last_result_is_over():
    item = evaluation()
    leases = Leases([item])
    lease = take(leases)
    for plan in PLANS:
        lease.delivered(done(item, plan))
    assert leases.lost(lease, "as ordered") is None
    assert not leases.unfinished


def test_items_of_other_kinds_fail_as_a_whole_at_the_third_death():
    item = WeightsItem(key="k", model="m", cka=False)
    leases = Leases([item])
    assert leases.lost(take(leases), "as ordered") is None
    assert leases.lost(take(leases), "as ordered") is None
    lease = take(leases)
    assert lease.attempt == 3
    failed = leases.lost(lease, "as ordered")
    assert failed is not None
    assert failed.keys == ("k",)
    assert not leases.unfinished


def test_a_probe_method_is_handed_out_again_with_what_was_answered():
    item = PlanItem(
        key="k",
        model="m",
        method="laco",
        params=None,
        budget=3,
        calibration=None,
        weights=None,
        corpus_id="c",
        rows=(),
        remembered={"a": 1.0},
    )
    leases = Leases([item])
    lease = take(leases)
    lease.delivered(ProbeAnswered(call_id="b", call="{}", value=2.0, seconds=0.1))
    leases.lost(lease, "as ordered")
    assert take(leases).item.remembered == {"a": 1.0, "b": 2.0}
    assert item.remembered == {"a": 1.0}


def test_a_finished_plan_leaves_its_lease_as_it_is():
    item = WeightsItem(key="k", model="m", cka=False)
    lease = take(Leases([item]))
    lease.delivered(PlanDone(key="k", plan=None, chosen="{}", warnings=(), seconds=0.0))
    assert lease.remaining == ("k",)


@given(st.lists(st.sampled_from(["deliver", "lose", "finish"]), max_size=60), st.integers(1, 4))
def test_whatever_happens_every_unit_is_settled_exactly_once(events, count):
    """Any order of deliveries, losses and ends; then the workers finish in peace."""
    leases = Leases([evaluation(number) for number in range(count)])
    settled = []
    held = None

    def settle(lease):
        if lease.remaining:
            settled.append(lease.remaining[0])
            lease.delivered(done(lease.item, lease.item.plans[0]))

    for event in events:
        held = held or leases.take()
        if held is None:
            break
        if event == "deliver":
            settle(held)
        elif event == "lose":
            if failed := leases.lost(held, "as ordered"):
                settled.extend(failed.keys)
            held = None
        elif not held.remaining:
            leases.finished(held)
            held = None
    while leases.unfinished:
        held = held or take(leases)
        while held.remaining:
            settle(held)
        leases.finished(held)
        held = None
    expected = [key for number in range(count) for key in ids(evaluation(number), PLANS)]
    assert sorted(settled) == sorted(expected)


def test_a_lost_generation_keeps_what_was_written_and_forgets_what_was_scored():
    item = generation()
    leases = Leases([item])
    lease = take(leases)
    for unit in item.units[:2]:
        lease.delivered(Generated(unit=unit, generation=WRITTEN, seconds=0.0))
    lease.delivered(UnitDone(unit=item.units[0], samples=(), seconds=0.0))
    assert leases.lost(lease, "as ordered") is None
    again = take(leases).item
    assert again.units == item.units[1:]
    assert again.documents == ("document 1", "document 2")
    assert again.known == {item.units[1].generation_id: WRITTEN}
    assert item.known == {}


def test_a_generation_that_kills_its_worker_three_times_fails_alone():
    item = generation()
    leases = Leases([item])
    for _ in range(2):
        leases.lost(take(leases), "as ordered")
    assert leases.waiting == 3
    for _ in range(MAX_DEATHS - 1):
        assert leases.lost(take(leases), "as ordered") is None
    poison = take(leases)
    (key,) = poison.remaining
    failed = leases.lost(poison, "as ordered")
    assert failed is not None
    assert failed.keys == (key,)
    left = [take(leases) for _ in range(2)]
    assert sorted(name for lease in left for name in lease.remaining) == sorted(set(item.unit_ids) - {key})


def test_a_failed_generation_is_settled():
    item = generation()
    lease = take(Leases([item]))
    lease.delivered(Failed(keys=item.unit_ids[:2], error="x", traceback=""))
    assert lease.remaining == item.unit_ids[2:]
