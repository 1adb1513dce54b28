"""A comparison as lines for people and as JSON."""

import math
from collections.abc import Iterator
from typing import Any

from prunebench.core.fingerprint import Json
from prunebench.report.compare import Compared, Comparison, Side
from prunebench.report.metrics import HOLE, Metric, counted
from prunebench.report.rows import NamedRow
from prunebench.report.statistics import BOOTSTRAP, LEVEL, POWER, RESAMPLES, PairedTest
from prunebench.report.tables import FEW_DOCUMENTS


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The comparison in full, a paragraph for each task and metric."""
    yield f"A = {_row(comparison.a)}"
    yield f"B = {_row(comparison.b)}"
    if comparison.a.variant["plan_id"] == comparison.b.variant["plan_id"]:
        yield "A and B are the same plan: every difference is 0."
    for one in comparison.compared:
        yield ""
        yield from _paragraph(one, comparison.family)
    yield ""
    yield from (f"not paired: {line}" for line in comparison.unpaired)
    yield from _legend(comparison)


def comparison_json(comparison: Comparison) -> Json:
    """The comparison with unrounded numbers; null for what is infinite, NaN or not there."""
    return {
        "a": _row_json(comparison.a),
        "b": _row_json(comparison.b),
        "level": LEVEL,
        "power": POWER,
        "resamples": RESAMPLES,
        "family": comparison.family,
        "comparisons": [_compared_json(one) for one in comparison.compared],
        "unpaired": list(comparison.unpaired),
    }


def _row(row: NamedRow) -> str:
    same = f"; the same plan as {', '.join(row.others)}" if row.others else ""
    calibration = row.variant["calibration"]
    calibrated = f", calibrated on {calibration}" if calibration else ""
    return f"{row.title} ({row.variant['model']}{calibrated}; plan {row.variant['plan_id']}{same})"


def _paragraph(one: Compared, family: int) -> Iterator[str]:
    metric = one.column.metric
    seeds = f" under seeds {', '.join(map(str, one.seeds))}" if len(one.seeds) > 1 else ""
    common = counted(one.column.num_examples or 0, "common document")
    missing = f"(missing: A {one.a.missing}, B {one.b.missing})"
    yield f"{one.column.name}: {metric.title}, {common}{seeds} {missing}"
    yield f"  A {_value(metric, one.a)}   B {_value(metric, one.b)}   {_difference(one)}"
    if one.test is None:
        yield f"  nothing was tested: {one.reason}"
    else:
        yield (
            f"  {one.test.test}: p = {_p(one.test.p_value)}, Holm over {family}: p = {_p(one.holm)}: "
            f"{_verdict(one)}"
        )
        yield (
            f"  A {'better' if metric.better else 'higher'} on {one.wins}, B on {one.losses}, "
            f"equal on {one.ties}; smallest detectable difference {_detectable(one, one.test)}"
        )
    yield from (f"  note: {note}" for note in one.notes)


def _value(metric: Metric, side: Side) -> str:
    shown = metric.shown(side.value)
    if not math.isfinite(side.stderr) or not math.isfinite(side.value):
        return shown
    return f"{shown} ± {metric.shown_error(side.stderr, side.value)}"


def _difference(one: Compared) -> str:
    """The difference with its error and interval; perplexities are divided."""
    test = one.test
    if test is None:
        return f"A − B {HOLE}"
    error = f" ± {_amount(one, test.stderr)}" if math.isfinite(test.stderr) else ""
    told = f"{'ln(A/B)' if one.ratio else 'A − B'} {_signed(one, test.difference)}{error}"
    if math.isfinite(test.low):
        told += f", 95 % {_signed(one, test.low)} to {_signed(one, test.high)}"
    return told


def _verdict(one: Compared) -> str:
    """What may be said at the corrected level."""
    test, better = one.test, one.column.metric.better
    if test is None or not one.holm < LEVEL or test.difference == 0:
        return "no difference shown"
    a_above = test.difference > 0
    if not better:
        return f"{'A' if a_above else 'B'} is higher"
    return f"{'A' if a_above else 'B'} is better"


def _detectable(one: Compared, test: PairedTest) -> str:
    if math.isnan(test.detectable):
        return f"{HOLE} (these documents cannot tell)"
    return _amount(one, test.detectable)


def _amount(one: Compared, value: float) -> str:
    """A difference without its sign: in points where the metric is in percent."""
    if one.column.metric.percent:
        return f"{100 * abs(value):.1f}"
    return f"{abs(value):.3g}" if abs(value) < 1e-3 else f"{abs(value):.3f}"


def _signed(one: Compared, value: float) -> str:
    amount = _amount(one, value)
    sign = "" if not value else "+" if value > 0 else "−"
    return sign + amount


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def _legend(comparison: Comparison) -> Iterator[str]:
    yield "± is the standard error over documents; the difference is paired, in points where the unit is %."
    yield f"The smallest detectable difference is found with {POWER:.0%} power at the {LEVEL:.0%} level."
    if any(one.test is not None and one.test.test == BOOTSTRAP for one in comparison.compared):
        yield f"The bootstrap draws whole documents, with all seeds and for both rows, {RESAMPLES:,} times."
    counts = {one.column.task: one.column.num_examples or 0 for one in comparison.compared}
    if few := sorted(task for task, count in counts.items() if count < FEW_DOCUMENTS):
        yield f"A demonstration only: fewer than {FEW_DOCUMENTS} common documents in {', '.join(few)}."


def _row_json(row: NamedRow) -> dict[str, Json]:
    names = ("model", "method", "params_json", "budget", "budget_layers", "plan_id", "variant_key")
    return {
        "name": row.name,
        "label": row.title,
        **{name: row.variant[name] for name in names},
        "calibration": row.variant["calibration"],
        "same_plan": list(row.others),
    }


def _compared_json(one: Compared) -> dict[str, Any]:
    test = one.test
    numbers = ("difference", "stderr", "low", "high", "p_value", "detectable")
    tested = {name: None if test is None else _finite(getattr(test, name)) for name in numbers}
    return {
        "task": one.column.task,
        "name": one.column.name,
        "metric": one.column.metric.name,
        "key": dict(one.column.key),
        "seeds": list(one.seeds),
        "documents": one.column.num_examples,
        "a": _side_json(one.a),
        "b": _side_json(one.b),
        "scale": "ln(a/b)" if one.ratio else "a - b",
        "test": None if test is None else test.test,
        **tested,
        "p_holm": _finite(one.holm),
        "wins": one.wins,
        "losses": one.losses,
        "ties": one.ties,
        "reason": one.reason,
        "notes": list(one.notes),
    }


def _side_json(side: Side) -> dict[str, Json]:
    return {"value": _finite(side.value), "stderr": _finite(side.stderr), "missing": side.missing}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
