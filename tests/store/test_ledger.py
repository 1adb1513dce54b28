import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fake_driver
from fake_driver import PLANS, evaluate, unit_of, written
from prunebench.core.unit import UnitDone
from prunebench.errors import InputError, ResourceError
from prunebench.store.append import parquet_bytes
from prunebench.store.generations import load_generations
from prunebench.store.ledger import Ledger
from prunebench.store.read import read_failures, read_generations, read_samples, samples_table
from prunebench.store.samples import unit_table

DONE = [
    evaluate(unit_of(task, index, PLANS[method].plan_id))
    for task in ("text", "choice")
    for index in range(2)
    for method in ("dense", "last_n")
]


def committed(root, done):
    with Ledger(root) as ledger:
        for one in done:
            ledger.commit(one)
    return root


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return samples_table(committed(tmp_path_factory.mktemp("reference") / "store", DONE))


@settings(max_examples=25, deadline=None)
@given(
    order=st.lists(st.sampled_from(range(len(DONE))), max_size=12),
    folds=st.sets(st.integers(0, 20)),
    reopens=st.sets(st.integers(0, 20), max_size=3),
)
def test_neither_order_nor_repeats_nor_folds_nor_reopening_change_what_is_read(
    reference, order, folds, reopens
):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        ledger = Ledger(root)
        known: set[int] = set()
        for step, which in enumerate([*order, *range(len(DONE))]):
            assert ledger.commit(DONE[which]) == (which not in known)
            known.add(which)
            if step in folds:
                ledger.fold()
            if step in reopens:
                ledger = Ledger(root)
            assert ledger.present() == {DONE[i].unit.unit_id for i in known}
            assert set(read_samples(root)["unit_id"]) == ledger.present()
        assert samples_table(root).equals(reference)


def test_equal_units_folded_at_once_give_equal_bytes_in_any_order(tmp_path):
    parts = []
    for name, done in (("a", DONE), ("b", DONE[::-1])):
        (part,) = (committed(tmp_path / name, done) / "samples").iterdir()
        parts.append((part.name, part.read_bytes()))
    assert parts[0] == parts[1]
    assert parquet_bytes(unit_table(DONE[0])) == parquet_bytes(unit_table(DONE[0]))


def test_a_stale_ledger_commits_a_unit_that_another_folded_and_it_still_counts_once(root, reference):
    stale = Ledger(root)
    committed(root, DONE)
    assert stale.commit(DONE[0])
    assert len(list((root / "samples").iterdir())) == 2
    assert samples_table(root).equals(reference)
    stale.close()
    assert len(list((root / "samples").iterdir())) == 1


def test_the_first_of_two_different_answers_stays(root):
    other = replace(DONE[0], samples=tuple(replace(sample, value=9.0) for sample in DONE[0].samples))
    committed(root, [DONE[0], other])
    assert 9.0 not in set(read_samples(root)["value"])


def test_nan_infinity_and_text_of_any_alphabet_come_back(root):
    odd = [float("nan"), float("-inf")]
    samples = tuple(
        replace(sample, value=value, detail='{"answer":"ζ"}')
        for sample, value in zip(DONE[0].samples, odd, strict=True)
    )
    frame = read_samples(committed(root, [replace(DONE[0], samples=samples)]))
    assert repr(frame["value"].tolist()) == repr(odd)
    assert set(frame["detail_json"]) == {'{"answer":"ζ"}'}
    assert frame["unit_json"].str.contains('"plan_id"').all()


def test_a_unit_without_samples_is_a_programming_error(root):
    with Ledger(root) as ledger, pytest.raises(ValueError, match="no samples"):
        ledger.commit(UnitDone(unit=DONE[0].unit, samples=(), seconds=0.0))


def test_folding_happens_by_itself_every_so_many_commits(root, monkeypatch):
    monkeypatch.setattr("prunebench.store.ledger.FOLD_EVERY", 3)
    ledger = Ledger(root)
    for one in DONE:
        ledger.commit(one)
    names = sorted(path.name for path in (root / "samples").iterdir())
    assert [name.startswith("part-") for name in names].count(True) == 2
    assert len(names) == 2 + len(DONE) % 3


def test_failures_are_numbered_never_present_and_superseded_by_a_result(root):
    unit_id = DONE[0].unit.unit_id
    with Ledger(root) as ledger:
        assert ledger.attempts(unit_id) == 0
        for attempt in (1, 2):
            ledger.fail(unit_id, "CUDA error", "Traceback: ...", attempt)
        ledger.fail("laco-7.plan", "worse", "", 1)
        assert (ledger.attempts(unit_id), ledger.attempts("laco-7"), ledger.present()) == (2, 0, set())
        assert list(read_failures(root)["superseded"]) == [False, False, False]
        ledger.commit(DONE[0])
    failures = read_failures(root).set_index(["key", "attempt"])["superseded"]
    assert failures.to_dict() == {(unit_id, 1): True, (unit_id, 2): True, ("laco-7.plan", 1): False}


def test_a_folder_of_other_things_is_refused(root):
    root.mkdir()
    (root / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"no prunebench store and not empty \(it holds thesis.tex\)"):
        Ledger(root)
    assert [path.name for path in root.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_a_store_is_refused(root):
    root.write_text("")
    with pytest.raises(InputError, match="is a file"):
        Ledger(root)


def test_a_folder_that_cannot_be_made_is_a_resource_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot make the store"):
        Ledger(tmp_path / "file" / "store")


def test_what_a_killed_creation_left_is_no_obstacle(root):
    root.mkdir()
    (root / ".tmp-dead").write_text("{")
    assert Ledger(root).present() == set()


def test_a_store_of_a_newer_program_is_refused_by_writers_and_readers(root):
    committed(root, DONE[:1])
    header = root / "store.json"
    header.write_text(header.read_text().replace('"schema_version": 2', '"schema_version": 3'))
    for use in (Ledger, read_samples):
        with pytest.raises(InputError, match="schema version 3, this program reads version 2"):
            use(root)


def test_a_damaged_header_is_told_with_its_remedy(root):
    committed(root, [])
    (root / "store.json").write_text("")
    with pytest.raises(InputError, match=r'damaged .* \{"schema_version": 2\}'):
        read_samples(root)


def test_reading_where_there_is_no_store_is_told(root):
    with pytest.raises(InputError, match=r"not a prunebench store: it has no store\.json"):
        read_samples(root)


def test_a_torn_sample_file_is_named_with_what_to_do(root):
    ledger = Ledger(root)
    for one in DONE[:2]:
        ledger.commit(one)
    torn = root / "samples" / f"{DONE[0].unit.unit_id}.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(
        InputError,
        match=rf"{torn} is not a readable Parquet file .* run `prunebench run CONFIG`",
    ):
        read_samples(root)
    torn.unlink()
    committed(root, DONE[:2])
    assert read_samples(root)["unit_id"].nunique() == 2


def test_a_file_of_other_columns_is_refused(root):
    fake_driver.drive(root)
    (variant, *_) = (root / "variants").iterdir()
    (root / "samples" / f"{'0' * 64}.parquet").write_bytes(variant.read_bytes())
    with pytest.raises(InputError, match="not a readable Parquet file of this store"):
        read_samples(root)


def test_texts_are_kept_once_folded_and_read_back(root):
    texts = [written(done.unit) for done in DONE]
    with Ledger(root) as ledger:
        assert [ledger.keep(text) for text in (*texts, texts[0])] == [True] * len(texts) + [False]
        assert ledger.written() == {text.unit.generation_id for text in texts}
        assert ledger.present() == set()
    assert len(list((root / "generations").iterdir())) == 1
    wanted = {texts[0].unit.generation_id, texts[3].unit.generation_id, "unknown"}
    assert load_generations(root, wanted) == {
        text.unit.generation_id: text.generation for text in (texts[0], texts[3])
    }
    assert read_generations(root)["text"].tolist() == sorted(
        (text.generation.text for text in texts),
        key=lambda name: next(t.unit.generation_id for t in texts if t.generation.text == name),
    )


def test_many_small_parts_are_merged_while_a_run_goes_on_and_full_ones_stay(root, monkeypatch):
    monkeypatch.setattr("prunebench.store.ledger.FOLD_EVERY", 1)
    monkeypatch.setattr("prunebench.store.merge.MANY_PARTS", 3)
    monkeypatch.setattr("prunebench.store.merge.ROWS_PER_PART", 4 * len(DONE[0].samples))
    counts = []
    with Ledger(root) as ledger:
        for done in DONE:
            assert ledger.commit(done)
            assert not ledger.commit(done)
            counts.append(len(list((root / "samples").glob("part-*"))))
        assert ledger.present() == {done.unit.unit_id for done in DONE}
    assert max(counts) < len(DONE)
    assert counts[2] == 1
    assert samples_table(root).equals(samples_table(committed(root.parent / "calm", DONE)))
