import importlib.util

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prunebench.data.corpus import load_corpus
from prunebench.data.read import read_documents
from prunebench.data.spec import parse_spec
from prunebench.errors import InputError, ResourceError


@pytest.fixture
def mirror(tmp_path):
    def shard(path, rows):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / path)

    shard(
        "org/one/default/train-00000-of-00002.parquet",
        [{"text": "first", "n": 1}, {"text": "second", "n": 2}],
    )
    shard("org/one/default/train-00001-of-00002.parquet", [{"text": "third", "n": 3}])
    shard("org/one/default/train-long-00000-of-00001.parquet", [{"text": "other"}])
    shard("org/only/en/test-00000-of-00001.parquet", [{"page": "only"}, {"page": None}])
    shard("org/many/en/test-00000-of-00001.parquet", [{"text": "english"}])
    shard("org/many/fr/test-00000-of-00001.parquet", [{"text": "french"}])
    shard("org/torn/default/test-00000-of-00001.parquet", [{"text": "whole"}])
    torn = tmp_path / "org/torn/default/test-00000-of-00001.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    shard("org/lost/default/test-00000-of-00002.parquet", [{"text": "half"}])
    return tmp_path


def read(text, mirror):
    return list(read_documents(parse_spec(text, mirror), mirror))


def test_the_files_of_a_split_are_read_in_order(mirror):
    assert read("mirror:org/one:train#text", mirror) == ["first", "second", "third"]


def test_a_config_is_named_or_the_only_one(mirror):
    assert read("mirror:org/many/fr:test#text", mirror) == ["french"]
    with pytest.raises(InputError, match="column 'page' of row 1 is null"):
        read("mirror:org/only:test#page", mirror)


def test_a_corpus_comes_from_a_mirror(mirror, codec):
    corpus = load_corpus(parse_spec("mirror:org/one:train?length=4&join=%20", mirror), codec, mirror=mirror)
    assert [codec.decode(row.tolist()) for row in corpus.rows] == ["firs", "t se", "cond", " thi"]


def test_a_hub_dataset_is_served_by_the_mirror_that_has_it(mirror):
    assert read("hub:org/one/default:train#text", mirror) == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mirror:org/none:train#text", "org/none/default/train-*.parquet; splits there: none"),
        ("mirror:org/one:tset#text", "org/one/default/tset-*.parquet; splits there: train, train-long"),
        ("mirror:org/one:train#txet", "has no column 'txet': did you mean 'text'? valid: text, n"),
        ("mirror:org/one:train#n", "column 'n' of row 0 is int, not text"),
        ("mirror:org/many:test#text", "names no CONFIG, and"),
        ("mirror:org/torn:test#text", "is no readable Parquet file"),
        ("mirror:org/lost:test#text", "the mirror has 1 of the 2 files"),
        ("mirror:org/none:train#text", "where there is network: prunebench prefetch CONFIG --out"),
    ],
)
def test_what_is_missing_in_a_mirror_is_named(mirror, text, sentence):
    with pytest.raises(InputError) as error:
        read(text, mirror)
    assert sentence in str(error.value)


@pytest.mark.skipif(
    importlib.util.find_spec("datasets") is not None, reason="the datasets package is installed"
)
def test_the_hub_without_its_package_points_to_the_mirror(tmp_path):
    with pytest.raises(
        ResourceError, match=r"needs the datasets package and network: .*or set mirror to a folder"
    ):
        list(read_documents(parse_spec("hub:a/b:train#text", tmp_path), None))
