"""Which benchmark a column measures, and how many documents the whole of it has."""

import re
from collections.abc import Mapping
from typing import Any, Final

from prunebench.report.columns import Column
from prunebench.report.source import parsed

SIZES: Final[Mapping[str, int]] = {
    "arc_easy": 2376,
    "arc_challenge": 1172,
    "hellaswag": 10042,
    "winogrande": 1267,
    "boolq": 3270,
    "openbookqa": 500,
    "rte": 277,
    "copa": 100,
    "race": 1045,
    "piqa": 1838,
    "mathqa": 2985,
    "aime24": 30,
    "aime25": 30,
    "aime26": 30,
    "gpqa_diamond": 198,
    "humaneval": 164,
    "mbpp_plus": 378,
    "lorp_c4": 256,
}
"""Documents of the split that lm-eval or the paper asks. The papers' two-decimal accuracies lie on the grids
k/n of these sizes, LayerTrim's means on those of three integer scores on 30, 198, 164 and 378 problems."""

TEXTS: Final[Mapping[str, str]] = {
    "lorp_wikitext2": "1-8a970098",
    "simdiff_wikitext2": "1-8a970098",
}
"""Task version, which hashes the text, of recipes that take as many windows as a tokenizer gives: the 4,358
lines of WikiText-2's test split. A text whose hash is not known here counts as a part."""

_ALIASES: Final[Mapping[str, str]] = {
    "aime2024": "aime24",
    "aime2025": "aime25",
    "aime2026": "aime26",
    "aime_2024": "aime24",
    "aime_2025": "aime25",
    "aime_2026": "aime26",
    "gpqa": "gpqa_diamond",
    "mbppplus": "mbpp_plus",
    "math_qa": "mathqa",
}
_NAMES: Final = ("harness_task", "benchmark", "recipe", "protocol")
"""Settings of a task's recipe that name what is measured, in the order in which they count."""


def settings_of(column: Column) -> Mapping[str, Any]:
    """The recipe of a column."""
    recipe = parsed(column.key["recipe"] or "{}")
    return recipe if isinstance(recipe, dict) else {}


def benchmark_of(column: Column) -> str:
    """What the recipe says is measured, else the task's own name."""
    recipe = settings_of(column)
    named = next((str(recipe[name]) for name in _NAMES if isinstance(recipe.get(name), str)), column.task)
    plain = re.sub(r"\W+", "_", named.lower().replace("+", "_plus")).strip("_")
    plain = plain.replace("__", "_")
    return _ALIASES.get(plain, plain)


def whole(column: Column) -> bool | None:
    """Whether it has every document of its benchmark; None where the benchmark's size is not known."""
    benchmark = benchmark_of(column)
    if benchmark in TEXTS:
        return column.key["task_version"] == TEXTS[benchmark]
    size = SIZES.get(benchmark)
    return None if size is None else column.num_examples == size
