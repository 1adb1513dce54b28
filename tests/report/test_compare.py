import json
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from prunebench import cli
from prunebench.core.fingerprint import sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.errors import InputError
from prunebench.report.compare import Compared, compare
from prunebench.report.compare_text import comparison_json, comparison_lines
from prunebench.report.statistics import BOOTSTRAP, MCNEMAR, PairedTest
from prunebench.store.artifacts import save_exam
from prunebench.store.read import read_results

LAYERS = 6


def without(*removed):
    return PruningPlan.without(removed, LAYERS)


@pytest.fixture
def pair(builder):
    """ShortGPT without layer 2 and WRP without layer 5, in the builder's store."""
    one, other = without(2), without(5)
    builder.variant("shortgpt", one, 1)
    builder.variant("wrp", other, 1)
    return one, other


def scored(builder, pair, metric, a, b, task="choice", weight=1.0):
    units = builder.task(task, max(len(a), len(b)))
    for plan, values in zip(pair, (a, b), strict=True):
        builder.score(plan, units, metric, values, weight=weight)


def only(comparison):
    (one,) = comparison.compared
    return one


def outcome(one: Compared) -> PairedTest:
    assert one.test is not None
    return one.test


def under_seed(builder, units, seed):
    """The same task drawn with another seed."""
    seeded = [replace(unit, seed=seed, generation='{"temperature":1}') for unit in units]
    builder.log.exam(save_exam(builder.root, seeded))
    return seeded


def test_220_items_that_an_unpaired_test_gives_p_080_have_008_when_paired(builder, pair):
    """140 and 122 of 220 right; 30 only A, 12 only B."""
    a = [1.0] * 110 + [1.0] * 30 + [0.0] * 12 + [0.0] * 68
    b = [1.0] * 110 + [0.0] * 30 + [1.0] * 12 + [0.0] * 68
    scored(builder, pair, "acc", a, b)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    unpaired = 2 - 2 * NormalDist().cdf((one.a.value - one.b.value) / math.hypot(one.a.stderr, one.b.stderr))
    assert unpaired == pytest.approx(0.080, abs=5e-4)
    assert outcome(one).test == MCNEMAR
    assert outcome(one).p_value == one.holm == pytest.approx(0.008, abs=5e-4)
    assert (one.wins, one.losses, one.ties) == (30, 12, 178)
    assert outcome(one).difference == pytest.approx(18 / 220)
    assert outcome(one).detectable == pytest.approx(2.801585 * math.sqrt(42 / 220 / 220))
    assert outcome(one).low > 0


def test_thirty_items_at_point_seven_have_a_standard_error_of_8_4_points(builder, pair):
    scored(builder, pair, "acc", [1.0] * 21 + [0.0] * 9, [1.0] * 21 + [0.0] * 9)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    # The store's error, as the leaderboard prints it, has the small-sample factor n/(n-1).
    assert 100 * one.a.stderr * math.sqrt(29 / 30) == pytest.approx(8.4, abs=0.05)
    assert 100 * one.a.stderr == pytest.approx(8.5, abs=0.05)


def test_a_method_against_itself_has_p_one_everywhere(builder, pair):
    scored(builder, pair, "acc", [1.0, 0.0, 1.0], [0.0, 0.0, 1.0])
    scored(builder, pair, "perplexity", [-30.0, -20.0, -25.0], [-40.0, -20.0, -24.0], "text", 10.0)
    comparison = compare(builder.finish(), "shortgpt@1", "shortgpt@1")
    assert [outcome(one).p_value for one in comparison.compared] == [1.0, 1.0]
    assert [one.holm for one in comparison.compared] == [1.0, 1.0]
    assert [outcome(one).difference for one in comparison.compared] == [0.0, 0.0]
    assert [one.ties for one in comparison.compared] == [3, 3]
    assert "A and B are the same plan: every difference is 0." in list(comparison_lines(comparison))


def test_perplexities_are_compared_as_the_log_of_their_ratio_aggregated_over_tokens(builder, pair):
    """30 documents of 10 tokens: 2 nats a token against 1 or 2."""
    a, b = [-20.0] * 30, [-10.0] * 20 + [-20.0] * 10
    scored(builder, pair, "perplexity", a, b, "text", 10.0)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert outcome(one).test == BOOTSTRAP
    assert one.ratio
    assert one.a.value == pytest.approx(math.e**2)
    assert one.b.value == pytest.approx(math.exp(4 / 3))
    assert outcome(one).difference == pytest.approx(math.log(one.a.value / one.b.value))
    assert outcome(one).stderr == pytest.approx(math.sqrt(30 / 29 * (2 / 3) * (1 / 3) / 30))
    assert 0 < outcome(one).low < outcome(one).difference < outcome(one).high
    assert (one.wins, one.losses, one.ties) == (0, 20, 10)
    assert outcome(one).p_value < 0.001


def test_log_likelihoods_of_zero_are_not_taken_for_wrong_answers(builder, pair):
    scored(builder, pair, "perplexity", [0.0] * 4, [0.0] * 4, "text")
    assert outcome(only(compare(builder.finish(), "shortgpt@1", "wrp@1"))).test == BOOTSTRAP


def test_bits_per_byte_are_subtracted(builder, pair):
    scored(builder, pair, "bits_per_byte", [-20.0] * 3, [-10.0] * 3, "text", 10.0)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert not one.ratio
    assert (
        outcome(one).difference == pytest.approx(one.a.value - one.b.value) == pytest.approx(1 / math.log(2))
    )
    assert (one.wins, one.losses) == (0, 3)


def test_values_and_errors_are_those_of_the_leaderboard(builder, pair):
    a, b = np.random.default_rng(0).normal(-30, 3, size=(2, 40))
    scored(builder, pair, "perplexity", a, b, "text", 10.0)
    store = builder.finish()
    one = only(compare(store, "shortgpt@1", "wrp@1"))
    rows = read_results(store).set_index("method")
    for method, side in (("shortgpt", one.a), ("wrp", one.b)):
        assert side.value == pytest.approx(rows.at[method, "value"], rel=1e-14)
        assert side.stderr == pytest.approx(rows.at[method, "stderr"], rel=1e-12)


def test_holm_is_over_everything_that_is_shown(builder, pair):
    scored(builder, pair, "acc", [1.0] * 10, [0.0] * 10, "choice")
    scored(builder, pair, "acc", [1.0] * 3, [0.0] * 3, "other")
    comparison = compare(builder.finish(), "shortgpt@1", "wrp@1")
    by_task = {one.column.task: one for one in comparison.compared}
    assert comparison.family == 2
    assert by_task["choice"].holm == pytest.approx(2 * 2 / 2**10)
    assert by_task["other"].holm == pytest.approx(2 / 2**3)


def test_a_difference_that_only_the_uncorrected_test_finds_is_not_shown(builder, pair):
    """Six of six items give p = .031, and .062 over two tests."""
    scored(builder, pair, "acc", [1.0] * 6, [0.0] * 6, "choice")
    scored(builder, pair, "acc", [1.0] * 6, [0.0] * 6, "other")
    printed = "\n".join(comparison_lines(compare(builder.finish(), "shortgpt@1", "wrp@1")))
    assert printed.count("p = 0.031, Holm over 2: p = 0.062: no difference shown") == 2


def test_exchanging_the_rows_turns_every_sign(builder, pair):
    random = np.random.default_rng(1)
    a, b = random.normal(-30, 3, size=(2, 50))
    scored(builder, pair, "acc", (a > -30).astype(float), (b > -30).astype(float))
    scored(builder, pair, "perplexity", a, b, "text", 10.0)
    store = builder.finish()
    there, back = compare(store, "shortgpt@1", "wrp@1"), compare(store, "wrp@1", "shortgpt@1")
    for one, other in zip(there.compared, back.compared, strict=True):
        assert outcome(one).difference == -outcome(other).difference
        assert (outcome(one).p_value, one.holm) == (outcome(other).p_value, other.holm)
        assert (one.wins, one.losses, one.a) == (other.losses, other.wins, other.b)
        assert (outcome(one).low, outcome(one).high) == pytest.approx(
            (-outcome(other).high, -outcome(other).low)
        )


def test_only_common_documents_are_compared_and_missing_ones_are_counted(builder, pair):
    scored(builder, pair, "acc", [1.0] * 20, [0.0] * 16)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert one.column.num_examples == 16
    assert (one.a.missing, one.b.missing) == (0, 4)
    assert outcome(one).difference == 1.0


def test_documents_that_neither_row_has_are_missing_from_both(builder, pair):
    units = builder.task("choice", 20)
    for plan, value in zip(pair, (1.0, 0.0), strict=True):
        builder.score(plan, units, "acc", [value] * 16)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert (one.a.missing, one.b.missing) == (4, 4)


def test_documents_are_paired_by_their_hash_and_copies_one_by_one(builder, pair):
    (unit,) = builder.task("choice", 4)
    texts = ("x", "y", "y", "z"), ("w", "y", "x", "y")
    scores = (1.0, 0.0, 1.0, 1.0), (1.0, 0.0, 0.0, 0.0)
    for plan, names, values in zip(pair, texts, scores, strict=True):
        samples = tuple(
            Sample(doc_id=i, doc_hash=sha256_text(name), metric="acc", value=value)
            for i, (name, value) in enumerate(zip(names, values, strict=True))
        )
        builder.add(plan, unit, samples)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    # x: 1 against 0; y: 0 against 0 and 1 against 0.
    assert one.column.num_examples == 3
    assert (one.wins, one.losses, one.ties) == (2, 0, 1)


def test_unlike_keys_are_never_paired(builder, pair):
    (padded,), (deployed,) = (builder.task("choice", 4, execution=mode) for mode in ("padded", "deployed"))
    builder.score(pair[0], [padded], "acc", [1.0] * 4)
    builder.score(pair[1], [deployed], "acc", [0.0] * 4)
    store = builder.finish()
    with pytest.raises(InputError, match=r"no common document under one key: choice .*deployed.*alone"):
        compare(store, "shortgpt@1", "wrp@1")


def test_what_one_row_has_alone_is_listed_beside_what_both_have(builder, pair):
    scored(builder, pair, "acc", [1.0] * 4, [0.0] * 4)
    scored(builder, pair, "acc", [1.0] * 4, [], "other")
    comparison = compare(builder.finish(), "shortgpt@1", "wrp@1")
    assert [one.column.task for one in comparison.compared] == ["choice"]
    assert comparison.unpaired == ("other: acc is of A alone",)


def test_seeds_are_clustered_by_document(builder, pair):
    """Three seeds of equal scores are no more evidence than one; a seed of one row alone is not paired."""
    random = np.random.default_rng(4)
    a, b = random.integers(0, 2, size=(2, 30)).astype(float)
    units = builder.task("choice", 30)
    for seed in (1, 2, 3):
        for plan, values in zip(pair, (a, b), strict=True):
            builder.score(plan, under_seed(builder, units, seed), "acc", values)
    builder.score(pair[0], under_seed(builder, units, 4), "acc", a)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert one.seeds == (1, 2, 3)
    assert one.column.num_examples == 30
    assert (one.a.missing, one.b.missing) == (0, 30)
    assert outcome(one).test == BOOTSTRAP
    assert outcome(one).difference == pytest.approx(a.mean() - b.mean())
    assert outcome(one).stderr == pytest.approx((a - b).std(ddof=1) / math.sqrt(30))


def test_scores_that_are_nan_or_infinite_are_counted_and_not_tested(builder, pair):
    scored(builder, pair, "acc", [1.0, math.nan, 0.0], [1.0, 1.0, 0.0])
    scored(builder, pair, "perplexity", [-1.0, -2.0], [-math.inf, -2.0], "text")
    scored(builder, pair, "acc", [1.0] * 4, [0.0] * 4, "whole")
    comparison = compare(builder.finish(), "shortgpt@1", "wrp@1")
    by_task = {one.column.task: one for one in comparison.compared}
    assert by_task["choice"].test is None
    assert by_task["choice"].reason.startswith("of 3 common documents, 1 of A and 0 of B have a score")
    assert "0 of A and 1 of B" in by_task["text"].reason
    assert comparison.family == 1
    assert by_task["whole"].holm == outcome(by_task["whole"]).p_value == 2 / 2**4
    text = json.dumps(comparison_json(comparison), allow_nan=False)
    assert "nothing was tested" in "\n".join(comparison_lines(comparison))
    assert json.loads(text)["comparisons"][0]["p_holm"] is None


def test_documents_without_weight_are_not_tested(builder, pair):
    scored(builder, pair, "acc", [0.0, 0.0], [0.0, 0.0], weight=0.0)
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert (one.test, one.reason) == (None, "2 common documents without weight")


def test_one_document_has_p_one_and_no_error(builder, pair):
    scored(builder, pair, "acc", [1.0], [0.0])
    scored(builder, pair, "perplexity", [-10.0], [-20.0], "text", 10.0)
    comparison = compare(builder.finish(), "shortgpt@1", "wrp@1")
    assert [outcome(one).p_value for one in comparison.compared] == [1.0, 1.0]
    assert all(math.isnan(outcome(one).stderr) and math.isnan(one.a.stderr) for one in comparison.compared)
    printed = "\n".join(comparison_lines(comparison))
    assert "choice: acc % ↑, 1 common document (missing: A 0, B 0)" in printed
    assert "A 100.0   B 0.0   A − B +100.0\n" in printed
    json.dumps(comparison_json(comparison), allow_nan=False)


def test_samples_that_are_not_ok_are_told(builder, pair):
    (unit,) = builder.task("choice", 1)
    for plan, status in zip(pair, ("truncated", "ok"), strict=True):
        sample = Sample(doc_id=0, doc_hash=sha256_text("x"), metric="acc", value=1.0, status=status)
        builder.add(plan, unit, (sample,))
    one = only(compare(builder.finish(), "shortgpt@1", "wrp@1"))
    assert one.notes == ("1 score of A with the status truncated",)


def test_a_row_answers_to_its_plan_its_key_its_method_and_budget(builder, pair):
    scored(builder, pair, "acc", [1.0], [0.0])
    twin = builder.variant("lorp", pair[0], 1)
    ratio = builder.variant("last_n", without(5), "ratio:0.2", budget_layers=1)
    store = builder.finish()
    for name in (pair[0].plan_id, twin.variant_key, "lorp@1", "lorp", "tiny:lorp@1", "shortgpt"):
        comparison = compare(store, name, "last_n@ratio:0.2")
        assert comparison.a.variant["plan_id"] == pair[0].plan_id
        assert comparison.b.variant["variant_key"] == ratio.variant_key
    assert comparison.a.others == ("lorp@1",)
    assert comparison.b.others == ("wrp@1",)


def test_an_ambiguous_name_lists_its_rows(builder):
    keys = []
    for rule, layer in (("rdsc", 1), ("drop", 2)):
        params = f'{{"merge_rule":"{rule}"}}'
        keys.append(builder.variant("laco", without(layer), 1, params_json=params).variant_key)
    builder.dense()
    store = builder.finish()
    with pytest.raises(InputError, match="'laco@1' names 2 rows") as caught:
        compare(store, "laco@1", "dense")
    assert all(key in str(caught.value) for key in keys)
    assert "merge_rule=rdsc" in str(caught.value)


def test_rows_of_two_models_are_told_apart_by_the_model_s_name(builder, pair):
    scored(builder, pair, "acc", [1.0], [0.0])
    builder.weights_id, builder.model = sha256_text("org:big"), "org:big"
    builder.variant("shortgpt", pair[0], 1)
    store = builder.finish()
    with pytest.raises(InputError, match=r"names 2 rows.*org:big:shortgpt@1"):
        compare(store, "shortgpt@1", "wrp@1")
    assert only(compare(store, "tiny:shortgpt@1", "wrp@1")).wins == 1
    with pytest.raises(InputError, match=r"different models \(org:big and tiny\)"):
        compare(store, "org:big:shortgpt@1", "wrp@1")
    with pytest.raises(InputError, match="did you mean org:big:shortgpt@1"):
        compare(store, "org:big:shortgtp@1", "wrp@1")


def test_equal_plans_of_another_model_or_dtype_stay_out(builder, pair):
    """Three tasks of one name: this model's, a larger one's, and one in another dtype."""
    scored(builder, pair, "acc", [1.0] * 4, [0.0] * 4)
    tiny = builder.weights_id
    builder.weights_id, builder.model = sha256_text("big"), "big"
    for method, plan in zip(("shortgpt", "wrp"), pair, strict=True):
        builder.variant(method, plan, 1)
    scored(builder, pair, "acc", [0.0] * 4, [1.0] * 4)
    builder.weights_id, builder.model = tiny, "tiny"
    half = [replace(unit, dtype="bfloat16") for unit in builder.task("choice", 4)]
    for plan in pair:
        builder.score(plan, half, "acc", [0.0] * 4)
    one = only(compare(builder.finish(), "tiny:shortgpt@1", "tiny:wrp@1"))
    assert (one.wins, one.a.value) == (4, 1.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shortgtp@1", "no row of the store is named 'shortgtp@1': did you mean shortgpt@1"),
        ("zzz", r"no row of the store is named 'zzz'; it has laco@1, shortgpt@1, wrp@1"),
        ("laco@1", "'laco@1' is a hole, with no plan to compare: unreachable: nearest are 0 and 2"),
    ],
)
def test_a_name_that_is_unknown_or_a_hole_is_told(builder, pair, name, told):
    builder.variant("laco", None, 1, status="unreachable", error="nearest are 0 and 2")
    store = builder.finish()
    with pytest.raises(InputError, match=told):
        compare(store, name, "wrp@1")


def test_a_row_without_a_scored_document_is_told(builder, pair):
    builder.score(pair[0], builder.task("choice", 4), "acc", [1.0] * 4)
    store = builder.finish()
    with pytest.raises(InputError, match="'wrp@1' has no scored document yet"):
        compare(store, "shortgpt@1", "wrp@1")


def test_an_empty_store_is_told(builder):
    with pytest.raises(InputError, match="has no results yet"):
        compare(builder.finish(), "a", "b")


def test_rows_on_other_documents_of_one_task_are_told(builder, pair):
    first, second = builder.task("choice", 32)
    builder.score(pair[0], [first], "acc", [1.0] * 32)
    builder.score(pair[1], [second], "acc", [1.0] * 32)
    store = builder.finish()
    with pytest.raises(InputError, match="choice: acc is of both, on other documents"):
        compare(store, "shortgpt@1", "wrp@1")


def test_the_command_prints_the_pair_and_its_json(builder, pair, capsys):
    scored(builder, pair, "acc", [1.0] * 8 + [0.0] * 2, [0.0] * 10)
    store = builder.finish()
    for words in (["compare", str(store), "shortgpt@1", "wrp@1"], ["compare", str(store), "nobody", "wrp@1"]):
        with pytest.raises(SystemExit) as done:
            cli.main(words)
        out, err = capsys.readouterr()
        if "nobody" in words:
            assert done.value.code == 2
            assert "no row of the store is named 'nobody'" in err
        else:
            assert not done.value.code
            assert "A 80.0 ± 13.3   B 0.0 ± 0.0   A − B +80.0 ± 13.3, 95 % " in out
            assert "exact McNemar: p = 0.008, Holm over 1: p = 0.008: A is better" in out
            assert "A better on 8, B on 0, equal on 2" in out
    with pytest.raises(SystemExit):
        cli.main(["compare", str(store), "shortgpt@1", "wrp@1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["a"]["name"] == "shortgpt@1"
    assert told["family"] == 1
    assert told["comparisons"][0]["p_value"] == told["comparisons"][0]["p_holm"] == 2 / 2**8
    assert told["comparisons"][0]["documents"] == 10
