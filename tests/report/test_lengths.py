"""Lengths of answers: the histogram of each plan, the shares beside it, and when there is nothing to draw."""

import re

from prunebench.core.fingerprint import sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.report.documents import read_documents
from prunebench.report.lengths import CUT, ENDED, length_pictures
from prunebench.report.render import write_report
from prunebench.report.source import read_source
from prunebench.report.tables import leaderboard

LAYERS = 6
LIMIT = 240


def answered(builder, plan, units, tokens, **rates):
    columns = {"tokens": tokens, "token_limit_hit": [count == LIMIT for count in tokens], **rates}
    for unit in units:
        samples = [
            Sample(doc_id=i, doc_hash=sha256_text(str(i)), metric=metric, value=float(values[i]))
            for i in range(unit.start, unit.stop)
            for metric, values in columns.items()
        ]
        builder.add(plan, unit, tuple(samples))


def pictures(store):
    source = read_source(store)
    (board,) = leaderboard(source).boards
    return length_pictures(board, read_documents(store, source.groups))


def test_bars_are_the_counts_of_each_bin_and_what_was_cut_stands_on_what_ended(builder):
    dense, units = builder.dense(), builder.task("aime", 8)
    tokens = [5, 6, 95, 239, LIMIT, LIMIT, LIMIT, LIMIT]
    answered(builder, dense, units, tokens, repetition=[0.0] * 6 + [1.0] * 2)
    (picture,) = pictures(builder.finish())
    ended, cut = (
        re.search(rf'<path d="([^"]*)" fill="{colour}"><title>([^<]*)', picture) for colour in (ENDED, CUT)
    )
    assert ended is not None
    assert cut is not None
    # Bins of ten tokens: the last one holds 239 and, on top of it, the four that were cut.
    heights = [float(number) for number in re.findall(r"v-([\d.]+)h", ended[1])]
    assert heights == [20.0 * count / 5 for count in (2, 1, 1)]
    assert re.findall(r"v-([\d.]+)h", cut[1]) == ["16.0"]
    assert ended[2] == "4 answers ended: 5 to 239 tokens, median 50.5"
    assert cut[2] == "4 answers cut at the limit: 240 to 240 tokens, median 240"
    assert re.findall(r">([^<>]+)</text>", picture)[-3:] == ["8", "50.0", "25.0"]


def test_each_plan_is_drawn_once_with_what_was_measured_of_it(builder, tmp_path):
    dense, units = builder.dense(), builder.task("code", 4)
    one, two = PruningPlan.without([1], LAYERS), PruningPlan.without([2], LAYERS)
    answered(builder, dense, units, [10, 20, 30, 40], compilable=[1.0] * 4)
    answered(builder, one, units, [LIMIT] * 4, compilable=[1.0, 0.0, 0.0, 0.0])
    for method, plan in (("shortgpt", one), ("simdiff_masd", one), ("lorp", two), ("laco", None)):
        builder.variant(method, plan, 1, **({} if plan else {"status": "unreachable", "error": "no"}))
    page = write_report(builder.finish(), tmp_path / "out").html.read_text()
    (picture,) = re.findall(r'<svg[^>]*aria-label="code: length of answers.*?</svg>', page, re.DOTALL)
    told = re.findall(r">([^<>]+)</text>", picture)
    assert told.count("ShortGPT") == 1
    assert "SimDiff-MASD" not in told
    assert told[told.index("LoRP") + 1] == "– no answers"
    assert told[told.index("Dense") + 1 :][:3] == ["4", "0.0", "100.0"]
    assert told[told.index("ShortGPT") + 1 :][:3] == ["4", "100.0", "25.0"]
    assert "repeats %" not in told


def test_tasks_without_answers_have_no_picture(builder):
    builder.score(builder.dense(), builder.task("choice", 2), "acc", [1.0, 0.0])
    assert pictures(builder.finish()) == []
