"""What the methods let a search try: the papers' ranges, as far as the shape and the budget allow."""

import math
from dataclasses import fields
from fractions import Fraction

import pytest

from prunebench.config.params import parse_params
from prunebench.core.budget import Budget
from prunebench.core.shape import ModelShape
from prunebench.errors import BudgetError
from prunebench.methods import METHODS
from prunebench.methods.alpha import AlphaPiece
from prunebench.methods.layertrim import LayerTrimParams, trimmed
from prunebench.methods.lorp import reached
from prunebench.methods.space import Choices, Floats, Ints, shortest
from prunebench.search.spaces import holds


def shape_of(num_layers=12, intermediate_size=44):
    return ModelShape(
        num_layers=num_layers,
        hidden_size=32,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=intermediate_size,
        block_extra_params=64,
        other_params=1000,
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_space_is_of_parameters_that_the_method_has_and_takes(name):
    method = METHODS[name]
    for parameter, distribution in method.space(shape_of(), Budget(3), {}).items():
        assert parameter in {field.name for field in fields(method.params)}
        ends = (
            distribution.values
            if isinstance(distribution, Choices)
            else (distribution.low, distribution.high)
        )
        for value in ends:
            parse_params(method, {parameter: value})


def test_the_spaces_hold_the_papers_ranges():
    shape, budget = shape_of(), Budget(3)
    assert METHODS["simdiff_mssd"].space(shape, budget, {}) == {"alpha": Floats(0, 1)}
    assert METHODS["lorp"].space(shape, budget, {}) == {"clusters": Ints(2, 6)}
    assert METHODS["laco"].space(shape, budget, {}) == {"merge_layers": Ints(2, 8), "interval": Ints(1, 4)}
    assert METHODS["last_n"].space(shape, budget, {}) == {}


def test_ranges_end_where_the_model_does():
    assert METHODS["wrp"].space(shape_of(4), Budget(1), {})["clusters"] == Ints(2, 4)
    assert METHODS["laco"].space(shape_of(4), Budget(1), {})["merge_layers"] == Ints(2, 4)


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
@pytest.mark.parametrize("intermediate_size", [44, 97, 200])
def test_layertrims_k_starts_at_the_smallest_that_leaves_a_feature(budget, intermediate_size):
    shape = shape_of(intermediate_size=intermediate_size)
    k = METHODS["layertrim"].space(shape, Budget(budget), {})["k"]
    assert isinstance(k, Ints)
    assert k.high == min(shape.num_layers, 4 * budget)
    count, kept = trimmed(shape, Budget(budget), LayerTrimParams(k=k.low))
    assert (count, kept >= 1) == (k.low, True)
    with pytest.raises(BudgetError):
        trimmed(shape, Budget(budget), LayerTrimParams(k=k.low - 1) if k.low > 1 else LayerTrimParams(k=99))


def test_a_piece_of_alphas_is_cut_to_a_range():
    piece = AlphaPiece(Fraction(1, 4), Fraction(1, 2), (3,))
    assert piece.within(Fraction(0), Fraction(1)) == piece
    assert piece.within(Fraction(3, 8), Fraction(1)) == AlphaPiece(Fraction(3, 8), Fraction(1, 2), (3,))
    point = piece.within(Fraction(1, 4), Fraction(1, 4))
    assert point is not None
    assert (point.alpha, point.limit) == (0.25, False)
    assert piece.within(Fraction(1, 2), Fraction(1)) is None
    assert piece.within(Fraction(0), Fraction(1, 8)) is None
    end = AlphaPiece(Fraction(1, 2), Fraction(1), (4,)).within(Fraction(1), Fraction(1))
    assert end is not None
    assert (end.alpha, end.limit) == (1.0, False)


def test_what_is_fixed_leaves_parameters_without_effect_undeclared():
    shape, budget = shape_of(), Budget(3)
    lorp, trim = METHODS["lorp"], METHODS["layertrim"]
    assert lorp.space(shape, budget, {"clusters": "rls"}) == dict.fromkeys(
        ("rls_two", "rls_three"), Floats(0, 2)
    )
    assert list(trim.space(shape, budget, {"target": "attention"})) == ["layer_choice"]
    assert list(trim.space(shape, budget, {"layer_choice": "all"})) == ["score"]


@pytest.mark.parametrize("name", METHODS)
def test_the_papers_setting_lies_in_the_space_as_far_as_it_is_known(name):
    method = METHODS[name]
    space = method.space(shape_of(), Budget(3), {})
    for parameter, value in method.start(shape_of(), Budget(3)).items():
        assert holds(space[parameter], value)
    assert method.rule


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, 0.5),
        (0.0, 5.0, 2.0),
        (0.0055, 0.0143, 0.01),
        (0.31, 0.32, 0.315),
        (0.1, math.nextafter(0.1, 1), 0.1),
        (1 / 3, 2 / 3, 0.5),
    ],
)
def test_the_number_between_two_is_the_shortest_near_their_middle(low, high, expected):
    assert shortest(low, high) == expected


@pytest.mark.parametrize(
    ("rls", "ends"),
    [
        (0.8, [(0.0, 0.8), (0.8, 2.0)]),
        (-0.1, [(0.0, 2.0)]),
        (0.0, [(0.0, 0.0), (0.0, 2.0)]),
        (2.0, [(0.0, 2.0)]),
        (math.inf, [(0.0, 2.0)]),
    ],
)
def test_an_rls_parts_its_bounds_into_those_it_reaches_and_the_others(rls, ends):
    pieces = reached(rls, Floats(0.0, 2.0))
    assert [(piece.low, piece.high) for piece in pieces] == ends
    for piece, counts in zip(pieces, (True, False) if rls >= 0 else (False,), strict=False):
        assert piece.value is not None
        assert piece.low <= piece.value <= piece.high
        assert (rls >= piece.value) is counts
