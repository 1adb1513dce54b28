"""The sizes that the papers print, and what makes another column."""

import pytest

from prunebench.data.protocols import PROTOCOLS, efficiency_task, protocol_named
from prunebench.data.tasks import Protocol, Workload
from prunebench.errors import InputError


def task(protocol="layertrim", *, hardware="A40", threads=1, compiled=False, **sizes):
    return efficiency_task(
        protocol,
        name="speed",
        vocab_size=50,
        hardware=hardware,
        threads=threads,
        sizes=sizes,
        compiled=compiled,
    )


def test_layertrims_protocol_is_section_4_4():
    assert PROTOCOLS["layertrim"] == Protocol(
        batch=1,
        prompt_tokens=2048,
        steps=128,
        warmup=2,
        repeats=10,
        cache="static",
        last_logits=True,
        throughput="decode",
        statistic="median",
    )


def test_lorps_protocol_is_appendix_a_1():
    lorp = PROTOCOLS["lorp"]
    assert (lorp.batch, lorp.prompt_tokens, lorp.steps, lorp.cache) == (1, 2048, 0, "none")
    assert (lorp.warmup, lorp.repeats, lorp.statistic) == (3, 20, "mean")


def test_simdiffs_protocol_is_section_4_2_4():
    simdiff = PROTOCOLS["simdiff"]
    assert (simdiff.batch, simdiff.prompt_tokens, simdiff.steps) == (16, 4, 2048)
    assert (simdiff.repeats, simdiff.throughput, simdiff.statistic) == (10, "both", "mean")


def test_prompts_are_the_same_for_everyone_and_fit_the_vocabulary():
    first, second = (one.documents[0].payload for one in (task("simdiff"), task("simdiff")))
    assert isinstance(first, Workload)
    assert isinstance(second, Workload)
    assert first.ids.shape == (16, 4)
    assert (first.ids == second.ids).all()
    assert first.ids.max() < 50


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": "H200"},
        {"threads": 2},
        {"compiled": True},
        {"batch": 2},
        {"prompt_tokens": 16},
        {"steps": 4},
        {"warmup": 0},
        {"repeats": 1},
        {"protocol": "simdiff"},
    ],
    ids=str,
)
def test_every_setting_is_in_the_key(change):
    changed = task(**change)
    assert changed.recipe_json != task().recipe_json
    assert changed.documents[0].doc_hash != task().documents[0].doc_hash


def test_unknown_protocols_and_sizes_that_mean_nothing_are_refused():
    with pytest.raises(InputError, match="no efficiency protocol 'layertrm': did you mean 'layertrim'"):
        protocol_named("layertrm", {})
    with pytest.raises(InputError, match="protocol lorp times one forward pass"):
        protocol_named("lorp", {"steps": 8})
