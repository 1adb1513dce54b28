"""Metrics as they are printed: direction, unit, digits, and what is left of the dense model."""

import math
from dataclasses import dataclass
from typing import Literal

from prunebench.evaluation.versions import DISTANCES

HOLE = "–"
LARGE = 1e5
"""From here on numbers are printed with a power of ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How one metric is read. One that is not in `METRICS` has no direction and so no best row."""

    name: str
    better: Literal["lower", "higher", ""] = ""
    percent: bool = False
    """Stored as a fraction, printed in percent."""
    averages: bool = False
    """Whether a mean over tasks says something; a mean of perplexities is the worst one's."""
    beside: bool = False
    """Whether it explains a score and is none: it has no curve, and no room in a terminal."""

    @property
    def arrow(self) -> str:
        """The direction of better: ↓, ↑ or nothing."""
        return {"lower": "↓", "higher": "↑", "": ""}[self.better]

    @property
    def title(self) -> str:
        """Name, unit and direction, as a column is headed."""
        return " ".join(part for part in (self.name, "%" if self.percent else "", self.arrow) if part)

    def shown(self, value: float) -> str:
        """The value with the digits that a table has room for."""
        return _number(value * 100 if self.percent else value, self._digits(value))

    def shown_error(self, stderr: float, value: float) -> str:
        """The standard error with as many decimals as its value, and the same power of ten."""
        if abs(value) >= LARGE and math.isfinite(value) and math.isfinite(stderr):
            exponent = math.floor(math.log10(abs(value)))
            return f"{stderr / 10**exponent:.2f}e{exponent}"
        return _number(stderr * 100 if self.percent else stderr, self._digits(value))

    def retained(self, value: float, dense: float) -> float | None:
        """Percent of the dense model's performance; dense/pruned where lower is better.

        None where nothing is to be retained: a distance from the dense model is 0 for itself.
        """
        if self.better == "lower" and dense == 0:
            return None
        above, below = (dense, value) if self.better == "lower" else (value, dense)
        if not self.better or not math.isfinite(above) or math.isnan(below) or below == 0:
            return None
        return 100 * above / below

    def rank(self, value: float) -> float:
        """A number that is smaller for a better value."""
        return value if self.better == "lower" else -value

    def _digits(self, value: float) -> int:
        if self.percent:
            return 1
        size = abs(value)
        return 3 if size < 1 else 2 if size < 100 else 1 if size < 1000 else 0


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="perplexity", better="lower"),
        Metric(name="word_perplexity", better="lower"),
        Metric(name="byte_perplexity", better="lower"),
        Metric(name="bits_per_byte", better="lower"),
        Metric(name="acc", better="higher", percent=True, averages=True),
        Metric(name="acc_norm", better="higher", percent=True, averages=True),
        Metric(name="exact_match", better="higher", percent=True, averages=True),
        Metric(name="exact_match_strict_match", better="higher", percent=True, averages=True),
        Metric(name="exact_match_flexible_extract", better="higher", percent=True, averages=True),
        Metric(name="no_answer", better="lower", percent=True, beside=True),
        Metric(name="limit_hit", better="lower", percent=True, beside=True),
        Metric(name="timed_out", better="lower", percent=True, beside=True),
        Metric(name="arithmetic", better="higher", percent=True, beside=True),
        Metric(name="compilable", better="higher", percent=True, beside=True),
        Metric(name="acc_compilable", better="higher", percent=True, beside=True),
        Metric(name="token_limit_hit", better="lower", percent=True, beside=True),
        Metric(name="repetition", better="lower", percent=True, beside=True),
        Metric(name="unclosed_think", better="lower", percent=True, beside=True),
        Metric(name="tokens", beside=True),
        Metric(name="prefill_ms", better="lower"),
        Metric(name="decode_ms_per_token", better="lower"),
        Metric(name="tokens_per_s", better="higher"),
        Metric(name="peak_memory_gib", better="lower"),
        Metric(name="peak_rss_growth_gib", better="lower"),
        Metric(name="parameters", better="lower"),
        Metric(name="hidden_nmse", better="lower"),
        Metric(name="attention_kl", better="lower"),
        Metric(name="attention_overlap", better="higher", percent=True),
        *(
            Metric(name=f"attention_overlap_from_{distance}", better="higher", percent=True)
            for distance in DISTANCES
        ),
        Metric(name="mlp_score", better="lower"),
        Metric(name="mlp_change", better="lower"),
    )
}
"""In the order of columns."""


def metric_named(name: str) -> Metric:
    """The metric of that name; one without a direction when it is not known."""
    return METRICS.get(name, Metric(name=name))


def percent(value: float | None) -> str:
    """A percentage with one decimal and no sign for the unit."""
    return HOLE if value is None else _number(value, 1)


def millions(count: int) -> str:
    """A parameter count, such as `134.5M`."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}" if count / size >= 1000 else f"{count / size:.1f}{letter}"
    return str(count)


def counted(count: int, noun: str) -> str:
    """A number and its noun, such as `7 layers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) >= LARGE:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{digits}f}"
