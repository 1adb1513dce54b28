import pytest

from prunebench.core.budget import Budget
from prunebench.errors import BudgetError, InputError
from prunebench.methods import METHODS
from prunebench.methods.base import Measurements, Method, Params


def test_negative_protected_layers_count_from_the_end():
    assert Params(protect=(0, -1, 2)).protected(5) == {0, 2, 4}
    assert Params(protect=(0, -1, 2)).prunable(5) == [1, 3]
    assert Params().protected(5) == frozenset()
    assert Params(protect=(-5, 4)).protected(5) == {0, 4}


@pytest.mark.parametrize("layer", [5, -6])
def test_protecting_a_layer_outside_the_model_is_refused(layer):
    message = f"protect names layer {layer}, but the model has layers 0 to 4"
    with pytest.raises(InputError, match=rf"^{message}$"):
        Params(protect=(0, layer)).protected(5)


def test_the_check_gives_the_reason(seen):
    shape = seen.shape
    METHODS["last_n"].check(shape, Budget(11), Params())
    METHODS["last_n"].check(shape, Budget(10), Params(protect=(0, -1)))
    with pytest.raises(
        BudgetError, match=r"^cannot remove 12 of 12 layers: at most 11 \(one block has to stay\)$"
    ):
        METHODS["last_n"].check(shape, Budget(12), Params())
    message = r"^cannot remove 11 of 12 layers: at most 10 \(layers \[0, 11\] are protected\)$"
    with pytest.raises(BudgetError, match=message):
        METHODS["last_n"].check(shape, Budget(11), Params(protect=(-1, 0)))


def test_a_method_without_a_plan_is_no_method():
    class Nothing(Method[Params]):
        pass

    assert Nothing.__abstractmethods__ == {"plan"}


def test_measurements_name_what_is_missing(seen):
    assert seen.need_calibration() is seen.calibration
    assert seen.need_weights() is seen.weights
    assert seen.need_probe() is seen.probe
    empty = Measurements(shape=seen.shape)
    for need, what in (
        (empty.need_calibration, "calibration statistics"),
        (empty.need_weights, "weight statistics"),
        (empty.need_probe, "a probe"),
    ):
        with pytest.raises(InputError, match=rf"^this method needs {what}, which were not measured$"):
            need()
