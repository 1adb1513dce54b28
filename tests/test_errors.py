import pickle

import pytest

from prunebench.errors import (
    BudgetError,
    InputError,
    PrunebenchError,
    ResourceError,
    UnreachableError,
    UnsupportedError,
)


@pytest.mark.parametrize(
    ("kind", "exit_code", "standard"),
    [
        (PrunebenchError, 2, Exception),
        (InputError, 2, ValueError),
        (BudgetError, 2, InputError),
        (UnsupportedError, 2, InputError),
        (UnreachableError, 3, ValueError),
        (ResourceError, 4, RuntimeError),
    ],
)
def test_every_error_is_a_standard_one_with_an_exit_code_and_survives_pickling(kind, exit_code, standard):
    error = pickle.loads(pickle.dumps(kind("budget 30 of 30")))
    assert type(error) is kind
    assert str(error) == "budget 30 of 30"
    assert error.exit_code == exit_code
    assert isinstance(error, standard)
    assert isinstance(error, PrunebenchError)
