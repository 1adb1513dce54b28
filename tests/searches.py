"""Searches on the tiny llama, in this process."""

import json

import pytest

SELECTION = {
    "kind": "perplexity",
    "text": "builtin:pydoc:selection?samples=6&length=64",
    "role": "selection",
}
TEST = {"kind": "perplexity", "text": "builtin:pydoc:perplexity?samples=4&length=64"}
LACO = {"method": "laco", "probe": "merge", "space": {"merge_layers": [2, 3, 5], "interval": [1, 3]}}


@pytest.fixture
def write_search(tmp_path, tiny):
    """Writes a search on the tiny llama; keyword arguments replace settings of `search`."""

    def write(tasks=None, **changes):
        path = tmp_path / "tune.yaml"
        search = {
            "methods": [{"method": "lorp"}, LACO],
            "budget": 2,
            "objective": {"task": "chosen_by", "metric": "perplexity"},
            "trials": 30,
            "parallel": 2,
        }
        data = {
            "models": [{"path": str(tiny("llama")), "dtype": "float32"}],
            "calibrations": {"default": "builtin:pydoc:calibration?samples=4&length=64"},
            "probes": {
                "alpha": "builtin:pydoc:alpha?samples=3&length=32",
                "merge": "builtin:pydoc:merge?samples=3&length=32",
            },
            "tasks": {"chosen_by": SELECTION, "exam": TEST} if tasks is None else tasks,
            "search": {**search, **changes},
            "store": "store",
        }
        path.write_text(json.dumps(data))
        return path

    return write


class Recording:
    """A worker that remembers which items it was given."""

    def __init__(self, setups, log):
        from prunebench.evaluation.worker import Worker

        self._worker = Worker(setups, 1)
        self._log = log

    def run(self, item):
        self._log.append(item)
        yield from self._worker.run(item)


def run(path, store, log=None, worker=Recording):
    from prunebench.config.search import load_search
    from prunebench.pipeline.executor import LocalExecutor
    from prunebench.pipeline.progress import Silent
    from prunebench.pipeline.search import run_search

    log = [] if log is None else log
    return run_search(
        load_search(path), store, lambda setups: LocalExecutor(lambda: worker(setups, log)), Silent()
    )


def trials(store):
    import pandas as pd

    return pd.read_parquet(store / "trials" / "tune.parquet")
