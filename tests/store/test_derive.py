import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_driver import METRICS, PLANS, WEIGHTS, drive, evaluate, unit_of, variant_of
from prunebench.core.unit import Sample, UnitDone
from prunebench.store.aggregate import aggregate, standard_error, summaries, summary
from prunebench.store.artifacts import save_exam, save_plan, save_variant
from prunebench.store.derive import derive_results
from prunebench.store.ledger import Ledger
from prunebench.store.read import read_results, read_variants
from prunebench.store.runs import RunLog

CONTRACT = """schema_version run_id model weights_id method params_json budget_layers num_layers plan_id
removed_params task task_version metric value stderr num_examples seed backend execution dtype calibration_id
wall_seconds status error created_at"""


def row_of(results, method, metric="perplexity"):
    (row,) = results[(results["method"] == method) & (results["metric"] == metric)].to_dict("records")
    return row


def test_perplexity_accuracy_and_bits_are_the_named_functions_of_the_sums():
    assert aggregate("perplexity", -6.0, 3.0) == pytest.approx(math.exp(2))
    assert aggregate("bits_per_byte", -math.log(2) * 6, 4.0) == pytest.approx(1.5)
    assert aggregate("acc", 3.0, 4.0) == 0.75
    assert aggregate("perplexity", -1e6, 1.0) == math.inf
    assert math.isnan(aggregate("acc", 0.0, 0.0))


def test_the_standard_error_of_a_mean_is_sd_over_root_n():
    values = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    assert standard_error("acc", values, np.ones(5)) == pytest.approx(values.std(ddof=1) / math.sqrt(5))
    assert math.isnan(standard_error("acc", values[:1], np.ones(1)))


def test_the_standard_error_of_perplexity_agrees_with_a_bootstrap():
    draw = np.random.default_rng(0)
    weights = draw.integers(20, 60, 400).astype(float)
    values = -weights * draw.normal(2.5, 0.3, 400)
    picks = draw.integers(0, 400, (4000, 400))
    bootstrap = np.exp(-values[picks].sum(1) / weights[picks].sum(1)).std()
    assert standard_error("perplexity", values, weights) == pytest.approx(bootstrap, rel=0.05)


@given(st.permutations([(-1e16, 3.0), (1.0, 1.0), (1e16, 0.1), (0.3, 7.0), (-0.1, 0.7)]))
def test_the_order_of_documents_never_changes_a_bit(tmp_path_factory, pairs):
    values, weights = np.array(pairs).T
    ordered = np.array(sorted(pairs)).T
    assert standard_error("bits_per_byte", values, weights) == standard_error("bits_per_byte", *ordered)


DOCUMENT = st.tuples(
    st.floats(-1e3, 0) | st.sampled_from([0.0, 1.0, math.inf, -math.inf, math.nan, 1e200]),
    st.floats(0.1, 100) | st.sampled_from([0.0, 1.0]),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["acc", "perplexity", "bits_per_byte"]), st.lists(DOCUMENT, min_size=1))
    )
)
def test_summaries_of_many_groups_are_the_summary_of_each(groups):
    if not groups:
        return
    with np.errstate(all="ignore"):
        expected = [summary(metric, *np.array(documents).T) for metric, documents in groups]
        starts = np.cumsum([0, *(len(documents) for _, documents in groups)])[:-1]
        values, weights = np.concatenate([np.array(documents) for _, documents in groups]).T
        found = list(summaries([metric for metric, _ in groups], starts, values, weights))
    assert repr(found) == repr([(float(value), float(error)) for value, error in expected])


def test_a_document_with_many_windows_is_summed_in_their_order(root):
    unit = unit_of("text", 0, PLANS["dense"].plan_id)
    values = np.random.default_rng(0).normal(size=40) * 10.0 ** np.arange(-8, 32)
    samples = tuple(Sample(doc_id=0, doc_hash="", metric="acc", value=value) for value in values)
    with Ledger(root) as ledger:
        ledger.commit(UnitDone(unit=unit, samples=samples, seconds=0.1))
        save_variant(root, variant_of("dense"))
    (row,) = derive_results(root).to_dict("records")
    assert row["value"] == sum(values.tolist()) / 40
    assert row["num_examples"] == 1


def test_results_have_a_row_for_each_variant_task_and_metric_with_the_contract_columns(undisturbed):
    results = pd.read_parquet(f"{undisturbed}/results")
    assert list(results.columns[:25]) == CONTRACT.split()
    assert len(results) == len(PLANS) * sum(len(metrics) for metrics in METRICS.values())
    assert set(results["status"]) == {"ok"}
    assert (results["wall_seconds"] == 0.5).all()
    assert results["run_id"].nunique() == 1
    assert results["created_at"].notna().all()
    assert results["exam_id"].nunique() == 2
    equal = [results[results["method"] == method]["value"].tolist() for method in ("shortgpt", "lorp")]
    assert equal[0] == equal[1]


def test_values_are_recomputed_from_the_samples_by_hand(undisturbed):
    samples = [s for i in range(2) for s in evaluate(unit_of("text", i, PLANS["last_n"].plan_id)).samples]
    results = read_results(undisturbed)
    expected = math.exp(-math.fsum(s.value for s in samples) / math.fsum(s.weight for s in samples))
    row = row_of(results, "last_n")
    assert (row["value"], row["num_examples"]) == (pytest.approx(expected), 4)
    dense = row_of(results, "dense", "acc")
    assert (dense["budget_layers"], dense["removed_params"], dense["units_total"]) == (0, 0, 2)


def test_several_windows_of_one_document_are_one_example(root):
    unit = unit_of("text", 0, PLANS["dense"].plan_id)
    windows = tuple(
        Sample(doc_id=doc, doc_hash="", metric="perplexity", value=-value, weight=2.0)
        for doc, value in ((0, 2.0), (0, 4.0), (1, 5.0), (1, 3.0))
    )
    with Ledger(root) as ledger:
        ledger.commit(UnitDone(unit=unit, samples=windows, seconds=0.1))
        save_variant(root, variant_of("dense"))
    (row,) = derive_results(root).to_dict("records")
    sums, weights = np.array([-6.0, -8.0]), np.array([4.0, 4.0])
    assert row["value"] == pytest.approx(math.exp(14 / 8))
    assert row["stderr"] == pytest.approx(standard_error("perplexity", sums, weights))
    assert row["num_examples"] == 2


def asked(root, variants, done):
    """A run that asks two ranges of text about `variants` and gets the units `done`."""
    units = [unit_of("text", index) for index in range(2)]
    with Ledger(root) as ledger, RunLog.start(root, {}) as run:
        run.exam(save_exam(root, units))
        for variant in variants:
            save_variant(root, variant)
            run.variant(variant.variant_key)
        for unit in done:
            ledger.commit(evaluate(unit))
    return derive_results(root)


def test_a_variant_with_missing_units_is_a_hole_that_says_what_is_missing(root):
    dense, last = PLANS["dense"].plan_id, PLANS["last_n"].plan_id
    done = [unit_of("text", 0, dense), unit_of("text", 1, dense), unit_of("text", 0, last)]
    with Ledger(root) as ledger:
        ledger.fail(unit_of("text", 1, last).unit_id, "out of memory", "", 1)
    results = asked(root, [variant_of("dense"), variant_of("last_n"), variant_of("lorp")], done)
    assert row_of(results, "dense")["status"] == "ok"
    hole = row_of(results, "last_n")
    assert (hole["status"], hole["error"], hole["num_examples"]) == ("incomplete", "out of memory", 2)
    assert math.isnan(hole["value"])
    assert (hole["units_done"], hole["units_total"]) == (1, 2)
    unbegun = row_of(results, "lorp")
    assert (unbegun["status"], unbegun["num_examples"]) == ("incomplete", 0)


@pytest.mark.parametrize("status", ["unreachable", "unsupported", "failed"])
def test_a_variant_without_a_plan_keeps_its_place_with_status_and_error(root, status):
    variant = replace(
        variant_of("lorp"), plan_id=None, status=status, error="counts 6 and 8", warnings=("w",)
    )
    dense = PLANS["dense"].plan_id
    results = asked(
        root, [variant_of("dense"), variant], [unit_of("text", 0, dense), unit_of("text", 1, dense)]
    )
    row = row_of(results, "lorp")
    assert (row["status"], row["error"], row["metric"]) == (status, "counts 6 and 8", "perplexity")
    assert math.isnan(row["value"])
    assert row["warnings_json"] == '["w"]'


def test_a_failed_variant_that_nothing_was_asked_of_still_has_a_row(root):
    with Ledger(root):
        save_variant(root, replace(variant_of("lorp"), plan_id=None, status="failed", error="boom"))
    (row,) = derive_results(root).to_dict("records")
    assert (row["method"], row["status"], row["error"]) == ("lorp", "failed", "boom")
    assert pd.isna(row["task"])


def test_units_of_other_weights_or_dtypes_are_not_the_variants_and_seeds_are_rows_of_their_own(root):
    plan_id = PLANS["dense"].plan_id
    unit = unit_of("text", 0, plan_id)
    with Ledger(root) as ledger:
        save_variant(root, variant_of("dense"))
        for one in (
            unit,
            replace(unit, dtype="bfloat16"),
            replace(unit, seed=1),
            replace(unit, weights_id="ef" * 32),
        ):
            ledger.commit(evaluate(one))
    results = derive_results(root)
    assert sorted(zip(results["dtype"], results["seed"], strict=True)) == [("float32", 0), ("float32", 1)]
    assert set(results["weights_id"]) == {WEIGHTS}
    assert results["exam_id"].nunique() == 2


def test_one_model_in_two_dtypes_is_two_variants_that_keep_their_own_samples(root):
    half = replace(variant_of("dense"), dtype="bfloat16")
    unit = unit_of("text", 0, PLANS["dense"].plan_id)
    with Ledger(root) as ledger:
        for variant in (variant_of("dense"), half):
            save_variant(root, variant)
        for one in (unit, replace(unit, dtype="bfloat16")):
            ledger.commit(evaluate(one))
    results = derive_results(root)
    pairs = results[["variant_key", "dtype"]].drop_duplicates()
    expected = {(variant_of("dense").variant_key, "float32"), (half.variant_key, "bfloat16")}
    assert set(pairs.itertuples(index=False, name=None)) == expected


def test_samples_with_a_status_of_their_own_are_told_as_a_warning(root):
    done = evaluate(unit_of("text", 0, PLANS["dense"].plan_id))
    split = replace(done, samples=(replace(done.samples[0], status="split"), *done.samples[1:]))
    with Ledger(root) as ledger:
        ledger.commit(split)
        save_variant(root, variant_of("dense"))
    assert derive_results(root)["warnings_json"].tolist() == ['["1 samples have the status split"]']


def test_a_score_without_any_weight_is_a_hole_that_says_why(root):
    done = evaluate(unit_of("choice", 0, PLANS["dense"].plan_id))
    first = [s for s in done.samples if s.metric == "acc"]
    empty = [replace(s, value=0.0, weight=0.0, status="no_trimmed_mlp") for s in first]
    others = [s for s in done.samples if s.metric != "acc"]
    with Ledger(root) as ledger:
        ledger.commit(replace(done, samples=(*empty, *others)))
        save_variant(root, variant_of("dense"))
    results = derive_results(root)
    hole = row_of(results, "dense", "acc")
    assert (hole["status"], hole["error"]) == ("undefined", "no_trimmed_mlp")
    assert math.isnan(hole["value"])
    assert math.isnan(hole["stderr"])
    assert row_of(results, "dense", "acc_norm")["status"] == "ok"


def test_a_nan_in_one_document_is_not_averaged_away(root):
    done = evaluate(unit_of("choice", 0, PLANS["dense"].plan_id))
    with Ledger(root) as ledger:
        ledger.commit(
            replace(
                done,
                samples=tuple(replace(s, value=math.nan, doc_id=0) for s in done.samples[:1])
                + done.samples[1:],
            )
        )
        save_variant(root, variant_of("dense"))
    results = derive_results(root)
    assert math.isnan(row_of(results, "dense", "acc")["value"])
    assert not math.isnan(row_of(results, "dense", "acc_norm")["value"])


def test_an_empty_store_has_readable_results_and_deriving_again_keeps_one_file(root):
    Ledger(root).close()
    assert len(pd.read_parquet(f"{root}/results")) == 0
    for _ in range(2):
        assert len(derive_results(root)) == 0
    assert len(list((root / "results").iterdir())) == 1
    drive(root)
    assert len(list((root / "results").iterdir())) == 1
    assert len(pd.read_parquet(f"{root}/results")) == 12


def test_a_variant_planned_again_keeps_its_first_times_but_takes_a_new_answer(root):
    with Ledger(root):
        save_plan(root, PLANS["lorp"])
        for variant in (variant_of("lorp"), replace(variant_of("lorp"), seconds=99.0)):
            save_variant(root, variant)
        assert read_variants(root)["seconds"].tolist() == [0.5]
        save_variant(root, replace(variant_of("lorp"), status="failed", plan_id=None, seconds=99.0))
    (row,) = read_variants(root).to_dict("records")
    assert (row["status"], row["seconds"]) == ("failed", 99.0)
