from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.budget import Budget, parse_budget, round_half_up
from prunebench.core.shape import ModelShape
from prunebench.errors import BudgetError


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(10.5, 11), (11.5, 12), (10.4999, 10), (0.5, 1), (0.49, 0), (3, 3), (-0.5, -1), (Decimal("7.5"), 8)],
)
def test_halves_round_up(value, rounded):
    assert round_half_up(value) == rounded
    assert type(round_half_up(value)) is int


@pytest.mark.parametrize(
    ("text", "num_layers", "layers"),
    [
        ("7", 30, 7),
        (7, 30, 7),
        (" 7 ", 30, 7),
        ("+7", 30, 7),
        ("1", 30, 1),
        ("29", 30, 29),
        ("ratio:0.25", 30, 8),  # 7.5
        ("ratio:.25", 32, 8),
        ("ratio:0.35", 30, 11),  # 10.5, which binary floats would call 10.499…
        ("ratio:0.1", 30, 3),
        ("ratio:0.02", 30, 1),  # 0.6
        ("ratio:0.98", 30, 29),  # 29.4
    ],
)
def test_budgets_are_read(text, num_layers, layers):
    assert parse_budget(text, num_layers) == Budget(layers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "budget 0: at least 1 layer-equivalent has to be removed"),
        (0, "budget 0: at least 1 layer-equivalent has to be removed"),
        ("-3", "budget -3: at least 1 layer-equivalent has to be removed"),
        ("30", "cannot remove 30 of 30 layers: at most 29 (one block has to stay)"),
        ("400", "cannot remove 400 of 30 layers: at most 29 (one block has to stay)"),
        ("ratio:0.99", "cannot remove 30 of 30 layers: at most 29 (one block has to stay)"),
        ("ratio:0", "budget 'ratio:0': the ratio must lie between 0 and 1"),
        ("ratio:1", "budget 'ratio:1': the ratio must lie between 0 and 1"),
        ("ratio:1.5", "budget 'ratio:1.5': the ratio must lie between 0 and 1"),
        ("ratio:0.01", "budget 'ratio:0.01' removes no layer of 30: give a larger ratio"),
        ("many", "budget 'many' is not a number of layers: write an integer such as 7, or ratio:0.25"),
        ("7.0", "budget '7.0' is not a number of layers: write an integer such as 7, or ratio:0.25"),
        (
            "7 layers",
            "budget '7 layers' is not a number of layers: write an integer such as 7, or ratio:0.25",
        ),
        (
            "ratio:-0.5",
            "budget 'ratio:-0.5' is not a number of layers: write an integer such as 7, or ratio:0.25",
        ),
        (
            "ratio:nan",
            "budget 'ratio:nan' is not a number of layers: write an integer such as 7, or ratio:0.25",
        ),
        (
            "xratio:0.5",
            "budget 'xratio:0.5' is not a number of layers: write an integer such as 7, or ratio:0.25",
        ),
        ("", "budget '' is not a number of layers: write an integer such as 7, or ratio:0.25"),
        (True, "budget 'True' is not a number of layers: write an integer such as 7, or ratio:0.25"),
    ],
)
def test_bad_budgets_are_explained(text, message):
    with pytest.raises(BudgetError) as error:
        parse_budget(text, 30)
    assert str(error.value) == message


def test_the_check_names_both_numbers_and_the_reason():
    Budget(5).check(5, 12, "reason")
    with pytest.raises(BudgetError) as error:
        Budget(6).check(5, 12, "layers [0] are protected")
    assert str(error.value) == "cannot remove 6 of 12 layers: at most 5 (layers [0] are protected)"
    with pytest.raises(BudgetError, match=r"\(one block has to stay\)$"):
        Budget(6).check(5, 12)


def test_a_budget_stands_for_projection_parameters():
    shape = ModelShape(
        num_layers=40,
        hidden_size=5120,
        intermediate_size=17408,
        num_heads=40,
        num_kv_heads=8,
        head_dim=128,
        block_extra_params=7,
    )
    assert Budget(1).params(shape) == 330_301_440
    assert Budget(11).params(shape) == 11 * 330_301_440


@given(st.integers(2, 200), st.data())
def test_integers_are_taken_as_they_are(num_layers, data):
    layers = data.draw(st.integers(1, num_layers - 1))
    assert parse_budget(layers, num_layers) == parse_budget(str(layers), num_layers) == Budget(layers)


@given(st.integers(2, 200), st.integers(1, 999))
def test_ratios_are_the_nearest_number_of_layers(num_layers, thousandths):
    exact = thousandths * num_layers  # in thousandths of a layer
    nearest = (exact + 500) // 1000
    text = f"ratio:0.{thousandths:03d}"
    if 1 <= nearest < num_layers:
        assert parse_budget(text, num_layers) == Budget(nearest)
    else:
        with pytest.raises(BudgetError):
            parse_budget(text, num_layers)
