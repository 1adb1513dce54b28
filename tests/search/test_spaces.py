import pytest

from prunebench.config.search import Range, SearchedMethod
from prunebench.errors import InputError
from prunebench.methods.space import Choices, Floats, Ints
from prunebench.search.spaces import METHOD, narrowed, space_of
from search_spaces import SHAPE


def space(*entries, budget=3):
    budgets = budget if isinstance(budget, tuple) else (budget,)
    return space_of([SearchedMethod(**entry) for entry in entries], SHAPE, budgets)


def test_the_points_of_a_finite_space_are_all_its_settings_once():
    both = space({"method": "lorp"}, {"method": "laco", "space": {"merge_layers": [3, 4]}})
    points = [both.point(index) for index in range(13)]
    expected = [{METHOD: "lorp", "lorp.clusters": k} for k in range(2, 7)]
    expected += [
        {METHOD: "laco", "laco.merge_layers": c, "laco.interval": i} for c in (3, 4) for i in (1, 2, 3, 4)
    ]
    assert points == expected
    assert both.size == 13
    with pytest.raises(IndexError):
        both.point(13)


def test_what_is_fixed_is_not_searched_and_goes_into_every_setting():
    one = space({"method": "laco", "params": {"interval": 2, "merge_rule": "rdsc"}}).branches[0]
    assert list(one.space) == ["merge_layers"]
    assert one.params(one.point(0)) == {"interval": 2, "merge_rule": "rdsc", "merge_layers": 2}
    assert one.rule == {"merge_rule": "rdsc"}


def test_a_method_that_stands_twice_has_two_labels():
    twice = space({"method": "lorp"}, {"method": "lorp", "params": {"variant": "paper"}})
    assert [branch.label for branch in twice.branches] == ["lorp", "lorp2"]
    assert twice.size == 10


def test_each_budget_is_a_branch_of_its_own_with_its_own_ranges():
    several = space({"method": "lorp"}, {"method": "layertrim"}, budget=(2, "ratio:0.5"))
    labels = ["lorp@2", "lorp@ratio:0.5", "layertrim@2", "layertrim@ratio:0.5"]
    assert [branch.label for branch in several.branches] == labels
    assert [branch.budget.layers for branch in several.branches] == [2, 6, 2, 6]
    small, large = (several.branch(label).space["k"] for label in labels[2:])
    assert isinstance(small, Ints)
    assert isinstance(large, Ints)
    assert (small.high, large.high) == (8, 12)
    assert several.point(0) == {METHOD: "lorp@2", "lorp@2.clusters": 2}
    # A method without parameters is worth trying at two budgets, but not at one.
    assert space({"method": "last_n"}, budget=(2, 3)).size == 2


def test_what_is_fixed_decides_what_there_is_to_search():
    bounds = space({"method": "lorp", "params": {"clusters": "rls"}}).branches[0]
    assert list(bounds.space) == ["rls_two", "rls_three"]
    assert bounds.rule == {"clusters": "rls"}
    whole = space({"method": "layertrim", "params": {"target": "mlp"}}).branches[0]
    assert list(whole.space) == ["layer_choice"]
    every = space({"method": "layertrim", "params": {"layer_choice": "all"}}).branches[0]
    assert list(every.space) == ["score"]


def test_a_continuous_range_makes_a_space_without_end():
    endless = space({"method": "simdiff_mssd"}, {"method": "lorp"})
    assert endless.size is None
    assert endless.endless() == ["simdiff_mssd.alpha"]


def test_a_parameter_that_no_paper_searches_may_be_added_with_both_ends():
    added = space({"method": "laco", "space": {"threshold": {"low": 0.25, "high": 0.75}}})
    assert added.branches[0].space["threshold"] == Floats(0.25, 0.75)
    assert space({"method": "lorp", "space": {"variant": ["code", "paper"]}}).size == 10


@pytest.mark.parametrize(
    ("declared", "given", "expected"),
    [
        (Ints(2, 6), Range(low=3), Ints(3, 6)),
        (Ints(2, 6), Range(high=4), Ints(2, 4)),
        (Ints(2, 6), [2, 5], Choices((2, 5))),
        (Ints(2, 6), 4, Choices((4,))),
        (Floats(0, 1), Range(high=0.5), Floats(0, 0.5)),
        (Floats(0, 1), Range(low=0, high=1), Floats(0, 1)),
        (Choices(("a", "b")), ["b"], Choices(("b",))),
        (None, Range(low=1, high=3), Ints(1, 3)),
        (None, Range(low=1, high=3.5), Floats(1, 3.5)),
        (None, [None, 1], Choices((None, 1))),
    ],
)
def test_a_file_narrows_what_a_method_declares(declared, given, expected):
    assert narrowed(declared, given, "here") == expected


@pytest.mark.parametrize(
    ("declared", "given", "sentence"),
    [
        (Ints(2, 6), Range(low=1), "1 is not an integer from 2 to 6"),
        (Ints(2, 6), Range(low=5, high=3), "the range from 5 to 3 is empty"),
        (Ints(2, 6), Range(low=2.5), "2.5 is not an integer"),
        (Ints(2, 6), [2, 7], "7 is not an integer"),
        (Ints(2, 6), True, "True is not an integer"),
        (Ints(2, 6), [], "an empty list"),
        (Ints(2, 6), [2, 2], "given twice"),
        (Floats(0, 1), 1.5, "1.5 is not a number from 0 to 1"),
        (Choices(("a", "b")), Range(low=1), "list some of them"),
        (Choices((1, 2)), [True], "True is not one of"),
        (None, Range(low=1), "give low and high"),
    ],
)
def test_a_file_may_not_reach_outside(declared, given, sentence):
    with pytest.raises(InputError, match=sentence):
        narrowed(declared, given, "here")


def test_a_space_of_one_setting_is_refused():
    with pytest.raises(InputError, match="last_n at budget 3 leaves one setting"):
        space({"method": "last_n"})


def test_values_that_the_method_itself_refuses_are_refused():
    with pytest.raises(InputError, match="variant"):
        space({"method": "lorp", "space": {"variant": ["code", "prose"]}})
