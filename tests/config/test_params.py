import pytest

from prunebench.config.params import (
    describe_methods,
    params_json,
    parse_assignments,
    parse_params,
    parse_size,
)
from prunebench.errors import InputError
from prunebench.methods import METHODS


def test_values_of_the_command_line_are_yaml():
    assert parse_assignments(["alpha=0.7", "protect=[0, -1]", "variant=paper", "K=4"]) == {
        "alpha": 0.7,
        "protect": [0, -1],
        "variant": "paper",
        "K": 4,
    }


@pytest.mark.parametrize("word", ["alpha", "=3", "a=[1"])
def test_words_that_are_no_assignment_are_refused(word):
    with pytest.raises(InputError):
        parse_assignments([word])


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_defaults_survive_the_way_through_json(method):
    defaults = method.params()
    assert parse_params(method, params_json(defaults)) == defaults


def test_an_unknown_parameter_names_the_nearest():
    with pytest.raises(InputError, match="lorp has no parameter 'cluster': did you mean 'clusters'"):
        parse_params(METHODS["lorp"], {"cluster": 3})


def test_a_wrong_type_is_named_with_what_was_given():
    with pytest.raises(InputError, match="'many'"):
        parse_params(METHODS["lorp"], {"clusters": "many"})


def test_a_value_out_of_range_is_explained_by_the_method():
    with pytest.raises(InputError, match="at least 2"):
        parse_params(METHODS["lorp"], {"clusters": 1})


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2_000_000_000), ("1.5 GiB", 1_610_612_736), ("512mib", 536_870_912), ("7", 7), ("3kB", 3000)],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "2XB", "-1GB"])
def test_wrong_sizes_are_refused(text):
    with pytest.raises(InputError, match="amount of memory"):
        parse_size(text)


def test_the_listing_has_every_method_with_its_defaults():
    listing = {entry["name"]: entry for entry in describe_methods()}
    assert list(listing) == list(METHODS)
    assert listing["lorp"]["params"]["protect"] == (0, -1)
    assert listing["wrp"]["requires"] == ["cka", "weights"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan"])
def test_numbers_that_no_key_can_hold_are_refused(value):
    with pytest.raises(InputError, match=r"laco: threshold cannot be (nan|inf)"):
        parse_params(METHODS["laco"], {"threshold": value})


def test_an_endless_amount_of_memory_is_refused():
    with pytest.raises(InputError, match="not an amount of memory"):
        parse_size("9" * 400 + "GB")
