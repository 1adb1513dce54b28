"""The page without a browser: what it may do, what it carries, and what hostile names cannot do."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from prunebench.core.plan import PruningPlan
from prunebench.report.details import script_json
from prunebench.report.render import write_report
from prunebench.store.read import read_results

BREAKOUT = "</script><script>alert(1)</script><!--\u2028"
LAYERS = 6


class Scripts(HTMLParser):
    """The script and style elements of a page, and its policy."""

    def __init__(self, page):
        super().__init__()
        self.found, self.policy, self._open = [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag in {"script", "style"}:
            self._open = tag
            self.found.append((tag, dict(attrs), ""))
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """Two tasks, a hole and numbers that JSON does not have, under names that try to break out."""
    builder = build(tmp_path_factory.mktemp("page") / "store", model=f"tiny {BREAKOUT}")
    dense = builder.dense()
    text, choice = builder.task("text", 2, {"join": BREAKOUT}), builder.task(BREAKOUT, 4)
    plan = PruningPlan.without([1], LAYERS)
    builder.variant(BREAKOUT, plan, 1, params_json=json.dumps({"name": BREAKOUT}))
    builder.variant("shortgpt", None, 1, status="failed", error=BREAKOUT)
    for one, values in ((dense, [-10.0, -11.0]), (plan, [-math.inf, -1.0])):
        builder.score(one, text, "perplexity", values, weight=10.0)
        builder.score(one, choice, "acc", [1.0, 0.0, 1.0, math.nan if one is plan else 1.0])
    return builder.finish()


@pytest.fixture(scope="module")
def page(store):
    return write_report(store, store.parent / "out").html.read_text()


@pytest.fixture(scope="module")
def scripts(page):
    return Scripts(page)


def test_the_policy_lets_the_pages_own_style_and_script_run_and_nothing_else(scripts):
    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    style, data, script = scripts.found
    rules = dict(rule.split(" ", 1) for rule in scripts.policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == digest(style[2])
    assert rules["script-src"] == digest(script[2])
    assert (style[1], data[1], script[1]) == ({}, {"type": "application/json", "id": "data"}, {})


def test_the_script_is_small_and_knows_no_way_to_ask_for_anything(scripts):
    script = scripts.found[-1][2]
    assert len(script) < 10_000
    assert not re.search(r"fetch|XMLHttp|import|WebSocket|EventSource|Beacon|Worker|https?:|src\b", script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", script)


def test_no_name_ends_the_data_or_starts_a_script(page, scripts):
    assert [tag for tag, _, _ in scripts.found] == ["style", "script", "script"]
    assert page.lower().count("<script") == page.lower().count("</script") == 2
    data = json.loads(scripts.found[1][2])
    assert [BREAKOUT] in [column["task"] for column in data["columns"]]
    assert json.loads(script_json({"a": BREAKOUT})) == {"a": BREAKOUT}


def test_the_data_hold_every_result_of_the_store_to_the_last_digit(store, scripts):
    data = json.loads(scripts.found[1][2])
    results = read_results(store)
    results = results[results["exam_id"].notna()]
    assert len(results) == sum(len(row["cells"]) for row in data["rows"].values()) == 6
    exams = [dict(column["key"])["exam"] for column in data["columns"]]
    for result in results.to_dict("records"):
        number = exams.index(result["exam_id"])
        assert data["columns"][number]["metric"] == result["metric"]
        told = data["rows"][result["variant_key"]]["cells"][str(number)]
        if result["status"] == "ok":
            assert repr(float(told["value"])) == repr(result["value"])
            assert told.get("standard error", "nan") == (
                "nan" if math.isnan(result["stderr"]) else result["stderr"]
            )
            assert told["documents"] == result["num_examples"]
        else:
            assert told == {"status": f"failed: {BREAKOUT}"}


def test_every_row_and_every_number_of_the_tables_is_known_to_the_script(page, scripts):
    data = json.loads(scripts.found[1][2])
    assert set(re.findall(r'data-v="([0-9a-f]+)"', page)) == set(data["rows"])
    assert {int(number) for number in re.findall(r'data-x="([0-9]+)"', page)} == set(
        range(len(data["columns"]))
    )


def test_the_files_with_the_scores_of_a_row_are_named(store, scripts):
    data = json.loads(scripts.found[1][2])
    files = [row["files"] for row in data["rows"].values()]
    (path,) = next(filter(None, files))
    assert (store / path).is_file()
    assert sorted(files) == [[], [path], [path]]
