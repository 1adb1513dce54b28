"""The quickstart, reduced, on the real model and through the command line."""

import subprocess
from pathlib import Path

import pandas as pd
import pytest

from kill import command

CONFIG = Path(__file__).parents[2] / "configs" / "benchmark" / "smoke.yaml"


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_reduced_quickstart_runs(smollm2, tmp_path):
    done = subprocess.run(command(CONFIG, tmp_path / "store"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = pd.read_parquet(tmp_path / "store" / "results")
    assert set(results["status"]) == {"ok"}
    perplexity = results[results["metric"] == "perplexity"].set_index("method")["value"]
    assert perplexity["dense"] == perplexity.min()
    assert perplexity["last_n"] > 10 * perplexity["shortgpt"]
