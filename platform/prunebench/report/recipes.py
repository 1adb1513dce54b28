"""The tables of the papers as data: tasks, the metric of each, titles, and what is averaged.

No paper names the variant of accuracy. LoRP and WRP print acc_norm where lm-eval offers it and their tasks
have it (LoRP's code; the values of both), SimDiff prints acc: see the footnotes of the published tables.
"""

from dataclasses import dataclass
from typing import Final, Literal

from prunebench.report.metrics import METRICS, Metric

ACC, ACC_NORM, PERPLEXITY = METRICS["acc"], METRICS["acc_norm"], METRICS["perplexity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One column of a paper's table."""

    benchmark: str
    """As `benchmarks.benchmark_of` names it."""
    metric: Metric
    title: str
    published: str
    """`dataset:metric` in the published tables."""
    beside: Literal["", "speedup", "share"] = ""
    """Against the dense row, in brackets: how many times faster, or what percent of it."""
    averaged: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecipe:
    """One shape of table. Its numbers are compared and averaged with each other alone."""

    name: str
    sources: tuple[tuple[str, str], ...]
    """(paper, table) of each published table of this shape."""
    title: str
    columns: tuple[Asked, ...]
    average: str
    """Heading of the average over the columns that are averaged."""
    published_average: str
    """`dataset:metric` of the average in the published tables."""
    borrowed: str = ""
    """Name of the recipe whose average stands here, where that is not over these columns."""

    @property
    def average_metric(self) -> Metric:
        """Unit and direction of the average."""
        return next((one.metric for one in self.columns if one.averaged), ACC)

    @property
    def rule(self) -> str:
        """The metric of each task, in words."""
        return ", ".join(f"{one.title} {one.metric.name}" for one in self.columns)


def _accuracies(*tasks: tuple[str, str, Metric]) -> tuple[Asked, ...]:
    return tuple(
        Asked(benchmark=name, metric=metric, title=title, published=f"{name}:acc")
        for name, title, metric in tasks
    )


_COMMON_SENSE = _accuracies(
    ("arc_easy", "ARC-E", ACC_NORM),
    ("arc_challenge", "ARC-C", ACC_NORM),
    ("hellaswag", "HellaSwag", ACC_NORM),
    ("winogrande", "WinoGrande", ACC),
    ("boolq", "BoolQ", ACC),
    ("openbookqa", "OBQA", ACC_NORM),
    ("rte", "RTE", ACC),
    ("copa", "COPA", ACC),
    ("race", "RACE", ACC),
)
_SIMDIFF = _accuracies(
    ("boolq", "BoolQ", ACC),
    ("piqa", "PIQA", ACC),
    ("hellaswag", "HellaSwag", ACC),
    ("winogrande", "WinoGrande", ACC),
    ("arc_easy", "ARC-E", ACC),
    ("arc_challenge", "ARC-C", ACC),
    ("openbookqa", "OBQA", ACC),
    ("mathqa", "MathQA", ACC),
)


def _perplexity(recipe: str, title: str, dataset: str, *, averaged: bool = True) -> Asked:
    return Asked(
        benchmark=recipe, metric=PERPLEXITY, title=title, published=f"{dataset}:ppl", averaged=averaged
    )


def _cost(metric: str, title: str, published: str, beside: Literal["speedup", "share"]) -> Asked:
    return Asked(
        benchmark="layertrim",
        metric=Metric(name=metric, better="lower"),
        title=title,
        published=published,
        beside=beside,
        averaged=False,
    )


def _reasoning(name: str, title: str, published: str = "acc") -> Asked:
    return Asked(benchmark=name, metric=ACC, title=title, published=f"{name}:{published}")


TABLE_RECIPES: Final[tuple[TableRecipe, ...]] = (
    TableRecipe(
        name="lorp_perplexity",
        sources=(("lorp", "t2"),),
        title="Perplexity as LoRP prints it (Table 2)",
        columns=(
            _perplexity("lorp_wikitext2", "WikiText-2", "wikitext2"),
            _perplexity("lorp_c4", "C4", "c4"),
            _perplexity("lorp_ptb", "PTB", "ptb"),
        ),
        average="Avg.",
        published_average="avg:ppl",
    ),
    TableRecipe(
        name="lorp, wrp",
        sources=(("lorp", "t3"), ("wrp", "t1")),
        title="Zero-shot accuracy as LoRP (Table 3) and WRP (Table 1) print it",
        columns=_COMMON_SENSE,
        average="Avg.",
        published_average="avg:acc",
    ),
    TableRecipe(
        name="simdiff",
        sources=(("simdiff", "t3"), ("simdiff", "t5"), ("simdiff", "t2")),
        title="Zero-shot accuracy as SimDiff prints it (Tables 3 and 5)",
        columns=(_perplexity("simdiff_wikitext2", "WikiText-2", "wikitext2", averaged=False), *_SIMDIFF),
        average="Avg.",
        published_average="avg:acc",
    ),
    TableRecipe(
        name="layertrim",
        sources=(("layertrim", "t1"),),
        title="Reasoning and code as LayerTrim prints it (Table 1)",
        columns=(
            _reasoning("aime25", "AIME25"),
            _reasoning("aime26", "AIME26"),
            _reasoning("gpqa_diamond", "GPQA-D"),
            _reasoning("humaneval", "HumanEval", "pass@1"),
            _reasoning("mbpp_plus", "MBPP+", "pass@1"),
        ),
        average="Avg.",
        published_average="avg:acc",
    ),
    TableRecipe(
        name="layertrim_efficiency",
        sources=(("layertrim", "t3"),),
        title="Inference cost as LayerTrim prints it (Table 3)",
        columns=(
            _cost("prefill_ms", "Prefill, ms", "prefill_2048:latency_ms", "speedup"),
            _cost("decode_ms_per_token", "Decode, ms a token", "decode_128:decode_ms_per_token", "speedup"),
            _cost("peak_memory_gib", "Peak memory, GiB", "inference:peak_mem_gib", "share"),
        ),
        average="Acc. (Table 1)",
        published_average="avg:acc",
        borrowed="layertrim",
    ),
)
"""In the order of the page. A borrowed average stands after the recipe that it is of."""
