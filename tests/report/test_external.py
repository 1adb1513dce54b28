"""What other programs measured: read, kept apart, and paired only on equal documents."""

import json
from pathlib import Path

import pytest

from prunebench.cli import main
from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Sample
from prunebench.data.lm_eval_files import document_hash, read_lm_eval, results_files
from prunebench.errors import InputError
from prunebench.report.external import imported_of
from prunebench.report.render import write_report
from prunebench.report.tables import leaderboard_table
from prunebench.store.derive import derive_results
from prunebench.store.external import external_table, save_external
from prunebench.store.read import read_results
from prunebench.store.verify import verify

DATE = "_2026-11-30T01-02-03.000004"
DOCUMENTS = 40


def row(i):
    return {"question": f"what is {i}?", "choices": ["a", "b"], "label": i % 2}


def asked(i, prompt="Question: {}"):
    return [[prompt.format(i), " a"], [prompt.format(i), " b"]]


def write_run(folder, values, *, prompt="Question: {}", task="quiz"):
    """lm-eval's two files for one task of right and wrong answers."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "results": {
            "all": {"alias": "all", "acc,none": 0.1, "acc_stderr,none": "N/A"},
            task: {
                "alias": task,
                "acc,none": sum(values) / len(values),
                "acc_stderr,none": 0.05,
                "exact_match,strict-match": 0.25,
                "exact_match_stderr,strict-match": "N/A",
            },
        },
        "groups": {"all": {"alias": "all", "acc,none": 0.1}},
        "group_subtasks": {"all": [task], task: []},
        "configs": {task: {"task": task, "num_fewshot": 5}},
        "versions": {task: 1.0},
        "n-shot": {task: 5},
        "higher_is_better": {task: {"acc": True}},
        "n-samples": {task: {"original": 50, "effective": len(values)}},
        "config": {"model": "hf", "model_args": {"pretrained": "org/model"}},
        "date": 1796002827.5,
        "lm_eval_version": "0.4.13",
        "model_name": "org/model",
    }
    path = folder / f"results{DATE}.json"
    path.write_text(json.dumps(document))
    lines = [
        {
            "doc_id": i,
            "doc": row(i),
            "target": "a",
            "arguments": {
                f"gen_args_{j}": {"arg_0": context, "arg_1": answer}
                for j, (context, answer) in enumerate(asked(i, prompt))
            },
            "filter": "none",
            "metrics": ["acc", "words", "text"],
            "doc_hash": "theirs",
            "acc": value,
            "words": [-3.5, 7],
            "text": "not a number",
        }
        for i, value in enumerate(values)
    ]
    (folder / f"samples_{task}{DATE}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def store(builder):
    """A dense row that is right on the first 30 of 40 documents, and a plan that is right on none."""
    dense, plan = builder.dense(), PruningPlan.without([2], 6)
    builder.variant("shortgpt", plan, 1)
    for one, right in ((dense, 30), (plan, 0)):
        for unit in builder.task("ours", DOCUMENTS):
            samples = tuple(
                Sample(
                    doc_id=i, doc_hash=document_hash(asked(i), row(i)), metric="acc", value=float(i < right)
                )
                for i in range(unit.start, unit.stop)
            )
            builder.add(one, unit, samples)
    return builder.finish()


def keep(store, path, name=""):
    run = read_lm_eval(path, name)
    return save_external(store, run.external_id, run.results, run.samples)


def test_results_are_read_task_by_task_and_groups_are_left_out(tmp_path):
    run = read_lm_eval(write_run(tmp_path, [1.0, 0.0]), "mine")
    assert [
        (one["task"], one["metric"], one["filter"], one["value"], one["stderr"]) for one in run.results
    ] == [
        ("quiz", "acc", "none", 0.5, 0.05),
        ("quiz", "exact_match", "strict-match", 0.25, None),
    ]
    first = run.results[0]
    assert (first["name"], first["harness_version"], first["shots"]) == ("mine", "0.4.13", 5)
    assert (first["task_version"], first["num_examples"], first["higher_is_better"]) == ("1.0", 2, True)
    assert run.results[1]["higher_is_better"] is None


def test_scores_are_numbers_or_sums_with_their_weights(tmp_path):
    samples = read_lm_eval(write_run(tmp_path, [1.0])).samples
    assert [(one["metric"], one["value"], one["weight"]) for one in samples] == [
        ("acc", 1.0, 1.0),
        ("words", -3.5, 7.0),
    ]
    assert {one["doc_hash"] for one in samples} == {document_hash(asked(0), row(0))}


def test_what_was_imported_stays_out_of_every_table(store, tmp_path):
    before, board = read_results(store), leaderboard_table(store)
    assert keep(store, write_run(tmp_path / "run", [1.0] * DOCUMENTS))
    assert not keep(store, write_run(tmp_path / "run", [1.0] * DOCUMENTS))
    assert derive_results(store).equals(before)
    assert leaderboard_table(store) == board
    assert external_table(store, "results").num_rows == 2
    assert verify(store) == []


def test_rows_are_paired_on_documents_of_equal_hash(store, tmp_path):
    # Right on 25 of the dense model's 30 and on 1 of its 10 others: 5 against 1, exact McNemar 0.21875.
    keep(store, write_run(tmp_path, [1.0] * 25 + [0.0] * 5 + [1.0] + [0.0] * 9))
    acc, strict = imported_of(store, leaderboard_table(store).boards)
    dense, pruned = acc.against
    assert (acc.task, acc.value, acc.common) == ("quiz, version 1.0, 5 shots", "65.0", "40 of 40")
    assert (dense.name, dense.count, dense.ours, dense.theirs) == ("tiny: Dense", 40, "75.0", "65.0")
    assert dense.difference.startswith("+10 ± ")
    assert dense.p_value == "0.219"
    assert (pruned.name, pruned.ours, float(pruned.p_value) < 1e-6) == (
        "tiny: ShortGPT, 1 layers",
        "0.0",
        True,
    )
    assert (strict.against, strict.common) == ((), "no scores of documents came with it")


def test_another_prompt_is_another_document(store, tmp_path):
    keep(store, write_run(tmp_path, [1.0] * DOCUMENTS, prompt="Q: {}"))
    acc, _ = imported_of(store, leaderboard_table(store).boards)
    assert acc.against == ()
    assert acc.common == "no document of the store has the same hash"


def test_the_page_shows_imported_rows_in_a_section_of_their_own(store, tmp_path):
    keep(store, write_run(tmp_path / "run", [1.0] * DOCUMENTS), "<script>theirs</script>")
    report = write_report(store, tmp_path / "out")
    page = report.html.read_text()
    tables, imported = page.split("<h2>Imported results</h2>")
    assert "theirs" not in tables
    assert "&lt;script&gt;theirs&lt;/script&gt;" in imported
    assert "theirs" not in report.csv.read_text() + report.markdown.read_text() + report.latex.read_text()


def test_the_reports_own_files_come_back_with_equal_numbers(store, tmp_path):
    folder = write_report(store, tmp_path / "out").html.parent / "lm_eval"
    for path in results_files(folder):
        keep(store, path)
    found = {one["model_args"]: one["value"] for one in external_table(store, "results").to_pylist()}
    results = read_results(store)
    assert len(found) == len(results) == 2
    for one in results.to_dict("records"):
        assert any(one["plan_id"] in told and value == one["value"] for told, value in found.items())


def test_the_command_names_what_it_took(store, tmp_path, capsys):
    write_run(tmp_path / "runs" / "org__model", [1.0])
    for known in (False, True):
        with pytest.raises(SystemExit) as done:
            main(["import", str(tmp_path / "runs"), "--store", str(store), "--json"])
        assert done.value.code == 0
        (told,) = json.loads(capsys.readouterr().out)
        assert (told["results"], told["samples"], told["new"]) == (2, 2, not known)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"results": {}}', '{"results": {"a": []}}', '{"results": 3}']
)
def test_a_file_that_is_not_lm_evals_is_named(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"results\.json"):
        read_lm_eval(path)


def test_a_damaged_line_of_samples_is_named(tmp_path):
    path = write_run(tmp_path, [1.0, 1.0])
    samples = next(tmp_path.glob("samples_*"))
    samples.write_text(samples.read_text()[:-30])
    with pytest.raises(InputError, match="is damaged in line 2"):
        read_lm_eval(path)


def test_folders_without_results_and_stores_that_are_none_are_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="there is no file or folder"):
        results_files(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no results\*\.json"):
        results_files(tmp_path)
    path = write_run(tmp_path / "run", [1.0])
    with pytest.raises(SystemExit) as done:
        main(["import", str(path), "--store", str(Path(tmp_path))])
    assert done.value.code == 2
    assert "is not a prunebench store" in capsys.readouterr().err


def test_a_torn_file_of_imported_rows_is_found(store, tmp_path):
    keep(store, write_run(tmp_path, [1.0]))
    path = next((store / "external").glob("samples-*"))
    path.write_bytes(path.read_bytes()[:50])
    (finding,) = verify(store)
    assert finding.path == str(path)
    assert "import" in finding.remedy
