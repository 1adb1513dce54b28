import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunebench.core.plan import PruningPlan
from prunebench.report.heatmap import CIVIDIS, colour, heatmap
from prunebench.report.metrics import METRICS, Metric, millions
from prunebench.report.svg import linear_ticks, log_ticks, spread, style_of, tag

PERPLEXITY, ACCURACY = METRICS["perplexity"], METRICS["acc"]


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (PERPLEXITY, 14.3557, "14.36"),
        (PERPLEXITY, 147.83, "147.8"),
        (PERPLEXITY, 5667.4, "5,667"),
        (PERPLEXITY, 411_000.0, "4.11e5"),
        (PERPLEXITY, math.inf, "∞"),
        (PERPLEXITY, math.nan, "NaN"),
        (ACCURACY, 0.8125, "81.2"),
        (ACCURACY, 0.0, "0.0"),
        (Metric(name="novel"), 0.1234, "0.123"),
    ],
)
def test_values_are_printed_with_the_digits_a_table_has_room_for(metric, value, text):
    assert metric.shown(value) == text


def test_an_error_has_as_many_digits_as_its_value():
    assert PERPLEXITY.shown_error(9.64, 147.83) == "9.6"
    assert PERPLEXITY.shown_error(10_857.0, 411_000.0) == "0.11e5"
    assert ACCURACY.shown_error(0.0777, 0.75) == "7.8"


def test_retained_is_dense_over_pruned_where_lower_is_better():
    assert PERPLEXITY.retained(20.0, 10.0) == 50.0
    assert ACCURACY.retained(0.5, 0.8) == pytest.approx(62.5)
    assert ACCURACY.retained(0.5, 0.0) is None
    assert PERPLEXITY.retained(math.inf, 10.0) == 0.0
    assert PERPLEXITY.retained(math.nan, 10.0) is None
    assert Metric(name="novel").retained(1.0, 1.0) is None


@pytest.mark.parametrize(
    ("count", "text"), [(134_515_008, "134.5M"), (8_030_000_000, "8.0B"), (1_500, "1.5k"), (976, "976")]
)
def test_parameter_counts_are_short(count, text):
    assert millions(count) == text


@given(
    st.lists(st.floats(0, 400), min_size=1, max_size=20).map(sorted),
    st.floats(1, 15),
)
def test_names_are_spread_apart_in_order_within_the_picture(places, gap):
    moved = spread(places, gap, 0, 400)
    assert all(b - a >= gap - 1e-6 for a, b in itertools.pairwise(moved))
    assert moved[0] >= -1e-6
    assert moved[-1] <= 400 + 1e-6


def test_names_with_room_stay_where_their_lines_end():
    assert spread([10.0, 50.0, 200.0], 15, 0, 400) == [10.0, 50.0, 200.0]
    assert spread([100.0, 100.0], 10, 0, 400) == [95.0, 105.0]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_linear_ticks_cover_the_range(low, span):
    ticks = linear_ticks(low, low + span)
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= low + span - 1e-6 * span
    assert 2 <= len(ticks) <= 8


def test_logarithmic_ticks_are_round_numbers_within_the_range():
    assert log_ticks(9, 220) == [10, 20, 50, 100, 200]
    assert log_ticks(9, 99_000) == [10, 100, 1000, 10_000]


def test_lines_differ_in_more_than_colour():
    styles = [style_of(place) for place in range(40)]
    assert len({(style.dash, style.marker) for style in styles}) == 40


def test_elements_escape_their_text_and_attributes():
    assert tag("text", "<b>", class_='a"b', stroke_width=1.50) == (
        '<text class="a&#34;b" stroke-width="1.5">&lt;b&gt;</text>'
    )


def test_the_colours_of_a_scale_end_at_its_ends():
    assert colour(0) == CIVIDIS[0]
    assert colour(1) == colour(2) == CIVIDIS[-1]


def test_values_that_are_not_finite_leave_a_heat_map_s_cell_white():
    picture = heatmap(np.array([[1.0, np.nan], [0.5, 1.0]]), "title", "layer")
    assert picture.count('fill="#ffffff"') == 1
    assert "0, 1: nan" in picture
    assert 'fill="#ffffff"' in heatmap(np.full((2, 2), np.nan), "title", "layer")


def test_a_terminal_shows_values_holes_and_reasons(builder):
    from rich.console import Console

    from prunebench.report.tables import leaderboard_table
    from prunebench.report.terminal import print_leaderboard

    units = builder.task("choice", 4)
    builder.score(builder.dense(), units, "acc", [1.0, 1.0, 1.0, 0.0])
    builder.variant("shortgpt", PruningPlan.without([1], 6), 1)
    builder.score(PruningPlan.without([1], 6), units, "acc", [1.0, 1.0, 0.0, 0.0])
    builder.variant("lorp", PruningPlan.without([1], 6), 1)
    builder.variant("laco", None, 1, status="unreachable", error="[bold]nearest are 0 and 2")
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    print_leaderboard(leaderboard_table(builder.finish()), console)
    text = console.export_text()
    for part in (
        "demonstration",
        "1 of 6 layers removed",
        "50.0 ±28.9",
        "66.7",
        "same plan as ShortGPT",
        "– [1]",
    ):
        assert part in text
    assert "[1] unreachable: [bold]nearest are 0 and 2" in text
