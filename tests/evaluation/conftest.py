import pytest

from lm_eval_mirror import write_lm_eval_mirror


@pytest.fixture(scope="session")
def harness_mirror(tmp_path_factory):
    """A mirror for lm-eval's tasks, never written to."""
    return write_lm_eval_mirror(tmp_path_factory.mktemp("harness") / "mirror")


@pytest.fixture(scope="session")
def hf_cache(tmp_path_factory):
    """Where lm-eval's own loading keeps its copies."""
    return tmp_path_factory.mktemp("hf-cache")
