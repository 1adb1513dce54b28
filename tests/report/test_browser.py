"""The page in a real browser: from a file, without network, without an error."""

import math

import pytest

import papers_store
from browser import Browser, Tab, chromium
from prunebench.core.fingerprint import sha256_text
from prunebench.core.plan import PruningPlan
from prunebench.report.render import write_report
from prunebench.store.read import read_results

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no Chromium on this machine")

LAYERS = 6
BREAKOUT = "<script>document.title = 'broken'</script>"
ROWS = """
    (number) => [...document.querySelectorAll("table.lead")[number].tBodies[0].rows]
        .filter((row) => row.getClientRects().length)
        .map((row) => row.cells[0].firstElementChild.textContent)
"""
NUMBERS = """
    [...document.querySelectorAll("td[data-x]")].map((cell) => [
        cell.parentElement.dataset.v, cell.dataset.x, cell.innerText.trim(),
        cell.querySelector("[title]") && cell.querySelector("[title]").title,
        cell.nextElementSibling.title,
    ])
"""


@pytest.fixture(scope="module")
def store(build, tmp_path_factory):
    """Three methods at two budgets on two tasks; one value is infinite, one row is a hole."""
    builder = build(tmp_path_factory.mktemp("browser") / "store")
    text, choice = builder.task("text", 2), builder.task("choice & more", 40)
    plans = {("dense", 0): builder.dense()}
    for place, method in enumerate(("shortgpt", "lorp", BREAKOUT), start=1):
        for budget in (1, 2):
            plans[method, budget] = PruningPlan.without(range(place, place + budget), LAYERS)
            builder.variant(method, plans[method, budget], budget)
    builder.variant("laco", None, 1, status="unreachable", error=BREAKOUT)
    for place, plan in enumerate(dict.fromkeys(plans.values())):
        nats = math.inf if place == 6 else 10.0 + (7 * place) % 5
        builder.score(plan, text, "perplexity", [-nats, -12.0], weight=10.0)
        builder.score(plan, choice, "acc", [1.0] * (39 - 5 * place) + [0.0] * (1 + 5 * place))
    return builder.finish()


@pytest.fixture(scope="module")
def page(store):
    return write_report(store, store.parent / "out").html


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def tab(browser, page):
    tab = Tab(browser)
    tab.open(page)
    yield tab
    assert tab.errors == []
    assert {address.partition("#")[0] for address in tab.requests} == {page.resolve().as_uri()}


def rows(tab, table=0):
    return tab.run(f"({ROWS})({table})")


def choose(tab, name, value):
    tab.run(
        f"""(() => {{
            const select = document.querySelector('select[name="{name}"]');
            select.value = "{value}";
            select.dispatchEvent(new Event("change"));
        }})()"""
    )


def click(tab, selector, place=0):
    tab.run(f"document.querySelectorAll({selector!r})[{place}].click()")


def test_the_page_is_there_and_a_name_is_no_script(tab):
    assert tab.run("document.title") == "Structured pruning of tiny"
    methods = ("ShortGPT (Men et al., 2025)", "LoRP (Yun et al., 2026)", "LaCo (Yang et al., 2024)")
    assert rows(tab) == ["Dense", *methods, BREAKOUT]
    assert not tab.run("document.querySelector('#filters').hidden")


def test_every_number_on_the_page_is_that_of_the_store(tab, store):
    results = {
        (row["variant_key"], row["exam_id"], row["metric"]): row
        for row in read_results(store).to_dict("records")
    }
    columns = tab.run("JSON.parse(document.getElementById('data').textContent).columns")
    cells = tab.run(NUMBERS)
    assert len(cells) == 2 * 4 * 2 + 2
    for key, number, shown, title, error in cells:
        exam, metric = dict(columns[int(number)]["key"])["exam"], columns[int(number)]["metric"]
        row = results[key, exam, metric]
        if row["status"] != "ok":
            assert (shown[0], title) == ("–", None)
            continue
        assert float(title) == row["value"]
        if error:
            assert float(error.removeprefix("standard error ")) == row["stderr"]
        scaled = row["value"] * (100 if metric == "acc" else 1)
        assert shown == ("∞" if math.isinf(scaled) else f"{scaled:,.{1 if metric == 'acc' else 2}f}")


def test_a_heading_sorts_best_first_then_worst_first_then_as_it_was(tab):
    before, head = rows(tab), "table.lead thead tr:last-child th"
    assert tab.run(f"document.querySelectorAll({head!r})[3].textContent") == "perplexity ↓"
    values = (
        """[...document.querySelector("table.lead").tBodies[0].rows].map((row) => row.cells[3].innerText)"""
    )
    click(tab, head, 3)
    dense, *best = tab.run(values)
    assert best == ["3.00", "3.16", "3.32", "–1"]
    click(tab, head, 3)
    again, *worst = tab.run(values)
    assert worst == ["3.32", "3.16", "3.00", "–1"]
    assert dense == again
    click(tab, head, 3)
    assert rows(tab) == before


def test_an_infinite_value_is_the_worst_of_its_column(tab):
    head = "table.lead:first-of-type thead tr:last-child th"
    tab.run("location.hash = 'sort=1.3.up'")
    tab.run("new Promise((done) => setTimeout(done, 50))")
    assert rows(tab, 1)[-1] == BREAKOUT
    assert tab.run(f"document.querySelectorAll({head!r}).length") > 0


def test_filters_leave_what_was_asked_for_and_the_dense_row(tab):
    choose(tab, "method", "lorp")
    assert rows(tab) == rows(tab, 1) == ["Dense", "LoRP (Yun et al., 2026)"]
    choose(tab, "budget", "2")
    assert (rows(tab), rows(tab, 1)) == ([], ["Dense", "LoRP (Yun et al., 2026)"])
    assert tab.run("document.querySelector('#filters output').textContent") == "2 of 9 rows"
    choose(tab, "task", "text")
    heads = """[...document.querySelectorAll("table.lead")[1].tHead.rows].map(
        (row) => [...row.cells].filter((cell) => cell.getClientRects().length)
            .map((cell) => cell.innerText.replace(/\\s/g, " ")))"""
    assert tab.run(heads) == [
        ["", "parameters", "text"],
        ["Method", "removed %", "left", "perplexity ↓", "ret. %"],
    ]
    for name in ("method", "budget", "task"):
        choose(tab, name, "")
    assert (len(rows(tab)), len(rows(tab, 1))) == (5, 4)
    assert "choice & more" in tab.run(heads)[0]


def test_of_two_models_the_filter_leaves_one(browser, build, tmp_path):
    builder = build(tmp_path / "store")
    for model in ("one", "two & more"):
        builder.model, builder.weights_id = model, sha256_text(model)
        units = builder.task("choice", 40)
        builder.score(builder.dense(), units, "acc", [1.0] * 40)
        builder.variant("shortgpt", PruningPlan.without([1], LAYERS), 1)
        builder.score(PruningPlan.without([1], LAYERS), units, "acc", [1.0] * 30 + [0.0] * 10)
    page = write_report(builder.finish(), tmp_path / "out").html
    tab = Tab(browser)
    tab.open(page)
    seen = """[...document.querySelectorAll("section[data-model]")]
        .filter((one) => one.getClientRects().length).map((one) => one.querySelector("h2").innerText)"""
    assert tab.run(seen) == ["one", "two & more"]
    choose(tab, "model", "two & more")
    assert tab.run(seen) == ["two & more"]
    assert tab.run("document.querySelector('#filters output').textContent") == "2 of 4 rows"
    other = Tab(browser)
    other.open(page, tab.run("location.hash"))
    assert other.run(seen) == ["two & more"]
    assert tab.errors == other.errors == []


def test_a_number_tells_its_key_its_plan_and_its_documents_and_the_address_keeps_it(
    browser, tab, page, store
):
    click(tab, "table.lead td[data-x]", 3)
    told = tab.run("document.querySelector('#detail').innerText")
    row = read_results(store).query("method == 'shortgpt' and metric == 'acc' and budget_layers == 1").iloc[0]
    for part in (
        str(row["value"]),
        str(row["stderr"]),
        row["plan_id"],
        row["exam_id"],
        "float32",
        "samples/part-",
    ):
        assert part in told
    fragment = tab.run("location.hash")
    other = Tab(browser)
    other.open(page, fragment)
    assert other.run("document.querySelector('#detail').innerText") == told
    assert other.run("document.querySelectorAll('.chosen').length") == 1
    tab.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    assert tab.run("document.querySelector('#detail').hidden")


def test_a_hole_tells_why(tab):
    click(tab, "td.gap")
    assert f"unreachable: {BREAKOUT}" in tab.run("document.querySelector('#detail').innerText")


@pytest.mark.parametrize(
    "fragment", ["#cell=__proto__.0", "#cell=a", "#sort=9.9.up", "#method=<script>", "#%"]
)
def test_an_address_that_nobody_made_does_no_harm(tab, page, fragment):
    tab.open(page, fragment)
    assert tab.run("document.querySelector('#detail').hidden")
    assert len(rows(tab)) >= 1


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_but_tables_is_wider_than_the_window(tab, page, tmp_path, width):
    tab.open(page, width=width)
    assert tab.run("document.documentElement.scrollWidth") == width
    tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"


OUTSIDE = """
    [...document.querySelectorAll("svg")].flatMap((picture) => [...picture.querySelectorAll("text")]
        .filter((name) => {
            const inner = name.getBoundingClientRect(), outer = picture.getBoundingClientRect();
            return inner.left < outer.left - 1 || inner.right > outer.right + 1
                || inner.bottom > outer.bottom + 1;
        }).map((name) => name.textContent))
"""


@pytest.fixture(scope="module")
def wordy(build, tmp_path_factory):
    """Rows of long names that share a plan, keys that hold hashes, and an error of one word."""
    builder = build(tmp_path_factory.mktemp("wordy") / "store")
    plans = [PruningPlan.without([place], LAYERS) for place in (1, 1, 1, 2, 3)]
    for method, plan in zip(("shortgpt", "simdiff_mssd", "simdiff_masd", "lorp", "wrp"), plans, strict=True):
        builder.variant(method, plan, 1)
    dense = builder.dense()
    for task in range(3):
        units = builder.task(f"task {task}", 40, {"template": "0123456789abcdef" * 4})
        for place, plan in enumerate((dense, *dict.fromkeys(plans))):
            builder.score(plan, units, "acc", [1.0] * (30 - 9 * place) + [0.0] * (10 + 9 * place))
    builder.variant("laco", PruningPlan.without([4], LAYERS), 1)
    failed = units[0].for_plan(PruningPlan.without([4], LAYERS).plan_id)
    builder.ledger.fail(failed.unit_id, f"RuntimeError: {'x' * 300}", "Traceback", 1)
    return write_report(builder.finish(), tmp_path_factory.mktemp("out")).html


def test_no_name_leaves_its_picture_and_no_key_the_window(browser, wordy):
    tab = Tab(browser)
    tab.open(wordy, width=400)
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert "x" * 300 in tab.run("document.body.innerText")
    assert tab.run("document.documentElement.scrollWidth") == 400
    assert tab.run("document.querySelectorAll('svg').length") > 2
    assert tab.run(OUTSIDE) == []


def test_without_its_script_the_page_still_reads(browser, page, tmp_path):
    plain = tmp_path / "plain.html"
    plain.write_text(page.read_text().replace("script-src 'sha256-", "script-src 'sha256-0"))
    tab = Tab(browser)
    tab.open(plain)
    assert len(rows(tab)) == 5
    assert tab.run("document.querySelector('#filters').getClientRects().length") == 0
    assert any("Content Security Policy" in error for error in tab.errors)


@pytest.fixture(scope="module")
def papers(build, tmp_path_factory):
    """A page with results in the shapes of the papers' tables, under two back ends and three seeds."""
    store = tmp_path_factory.mktemp("papers") / "store"
    builder = build(store, model="Llama-3.1-8B", shape=papers_store.LLAMA)
    found = papers_store.ask(builder)
    papers_store.zero_shot(builder, found, dict.fromkeys(papers_store.COMMON_SENSE, 40))
    papers_store.reasoning(builder, found)
    return write_report(builder.finish(), store.parent / "out").html


PAPER = """
    (number) => [...document.querySelectorAll("table.paper")[number].rows]
        .filter((row) => row.getClientRects().length)
        .map((row) => [...row.cells].filter((cell) => cell.getClientRects().length)
            .map((cell) => cell.innerText.split("\\n")[0]))
"""


def test_the_papers_tables_sort_and_filter_too(browser, papers):
    tab = Tab(browser)
    tab.open(papers)
    heading, *rows = tab.run(f"({PAPER})(0)")
    assert heading[:3] == ["Method", "ARC-E", "ARC-C"]
    names = [row[0] for row in rows]
    assert names == [
        "7 of 32 layers removed",
        "Dense",
        "ShortGPT",
        "LoRP",
        "LaCo",
        "Random layers",
        "smallest detectable",
    ]
    click(tab, "table.paper thead th", 1)
    best = [row[0] for row in tab.run(f"({PAPER})(0)")[1:]]
    assert (best[:2], best[-1]) == (["7 of 32 layers removed", "Dense"], "smallest detectable")
    values = [float(row[1].split(" ")[0].rstrip("†")) for row in tab.run(f"({PAPER})(0)")[3:-1]]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1
    choose(tab, "task", "arc_easy")
    heading, *rows = tab.run(f"({PAPER})(0)")
    assert heading == ["Method", "ARC-E", "rank", "tasks"]
    assert {len(row) for row in rows[1:-1]} == {4}
    choose(tab, "task", "")
    choose(tab, "backend", "vllm")
    assert [row[0] for row in tab.run(f"({PAPER})(0)")[:1]] == ["Method"]
    assert tab.run(f"({PAPER})(0)")[0] == ["Method", "rank", "tasks"]
    assert tab.errors == []


def test_a_mean_over_seeds_tells_its_seeds_and_their_spread(browser, papers):
    tab = Tab(browser)
    tab.open(papers)
    tab.run(
        """[...document.querySelectorAll("table.lead td[data-x]")].find((cell) =>
            JSON.parse(document.getElementById("data").textContent).columns[cell.dataset.x].name === "aime25"
        ).click()"""
    )
    told = tab.run("document.querySelector('#detail').innerText")
    assert "sd over seeds" in told
    assert "0, 1, 2" in told
    assert "documents\n30" in told
