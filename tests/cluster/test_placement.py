"""Workers of the right size: pure arithmetic, without Ray."""

import math

import pytest

from prunebench.cluster.nodes import smallest_of
from prunebench.cluster.placement import Node, Placement, place, share_of
from prunebench.config.executor import ExecutorEntry
from prunebench.errors import ResourceError
from prunebench.evaluation.need import Need, need_of
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.footprint import GIB

H100 = Node(name="h", cpus=64, gpus=8, memory=1000 * GIB, gpu_memory=80 * GIB)
CPU = Node(name="c", cpus=8, memory=16 * GIB)
SMALL = Need(model="small", weights=16 * GIB, work=3 * GIB, memory=GIB)
LARGE = Need(model="large", weights=140 * GIB, work=5 * GIB, memory=GIB)


def placed(needs, nodes, **settings):
    return place(ExecutorEntry.model_validate({"kind": "ray", **settings}), needs, nodes)


def test_auto_gives_a_whole_gpu_or_as_many_as_the_largest_model_needs():
    assert placed([SMALL], [H100], workers=8).gpus == 1
    # 140 GiB over 80 - 4 - 5 GiB each.
    assert placed([SMALL, LARGE], [H100], workers=4).gpus == 2


def test_auto_workers_are_as_many_as_the_cluster_holds():
    assert placed([SMALL], [H100] * 8, workers="auto").workers == 64
    assert placed([LARGE], [H100] * 8, workers="auto").workers == 32
    # Memory: 16 GiB hold three workers of 5 GiB, whatever the cores.
    assert placed([Need(model="m", memory=5 * GIB)], [CPU, CPU], workers="auto").workers == 6
    assert placed([Need(model="m", memory=GIB)], [CPU], workers="auto", threads=4).workers == 2


@pytest.mark.parametrize("tenants", [1, 2, 3, 7, 93, 99])
def test_one_gpu_holds_as_many_workers_as_share_it(tenants):
    one = Placement(workers=tenants, threads=1, gpus=share_of(tenants))
    one.check([Node(name="n", cpus=100, gpus=1)])
    assert tenants * one.gpus <= 1


def test_more_workers_than_gpus_share_them_if_their_models_fit():
    assert placed([SMALL], [H100], workers=16).gpus == 0.5
    shared = placed([SMALL], [H100], workers=24)
    assert shared.gpus == 0.3333
    assert shared.fitting(H100) == 24
    # Five of 19 GiB are more than the 76 GiB that are planned with.
    with pytest.raises(ResourceError, match="40 workers need 40 GPUs, but the Ray cluster has 8"):
        placed([SMALL], [H100], workers=40)


def test_a_node_holds_a_worker_whole():
    """Two nodes have 16 GPUs together, but none has room for a third worker of three."""
    nodes = [H100, H100]
    assert placed([SMALL], nodes, workers=4, gpus_per_worker=3).fitting(H100) == 2
    with pytest.raises(ResourceError, match=r"5 workers of 1 CPUs, 3 GPUs .* the 2 nodes hold 4"):
        placed([SMALL], nodes, workers=5, gpus_per_worker=3)


def test_where_gpus_differ_the_smallest_counts():
    mixed = [H100, Node(name="a", cpus=8, gpus=2, memory=100 * GIB, gpu_memory=24 * GIB)]
    assert placed([SMALL], mixed, workers=2).gpus == 1
    assert placed([Need(model="m", weights=30 * GIB, work=GIB, memory=GIB)], mixed, workers=2).gpus == 2


@pytest.mark.parametrize(
    ("need", "settings", "sentence"),
    [
        (SMALL, {"gpus_per_worker": 0.1}, r"small needs 19\.0 GiB .* but 0\.1 GPUs a worker give 7\.6 GiB"),
        (LARGE, {"gpus_per_worker": 1}, r"large needs 145\.0 GiB .* give 76\.0 GiB: raise"),
        (Need(model="m", weights=GIB, work=90 * GIB, memory=GIB), {}, r"works with 90\.0 GiB on each GPU"),
        (Need(model="m", memory=2000 * GIB), {}, r"1 workers of .* 2000\.0 GiB of memory each .* hold 0"),
        (
            Need(model="m", weights=140 * GIB, memory=GIB, work=GIB, parallel=1, utilization=0.9),
            {"gpus_per_worker": 2},
            r"vLLM on 1 GPUs may take 72\.0 GiB: raise the engine's tensor_parallel",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(need, settings, sentence):
    with pytest.raises(ResourceError, match=sentence):
        placed([need], [H100], **settings)


def test_a_worker_of_vllm_has_as_many_gpus_as_it_spreads_over():
    need = Need(model="m", weights=16 * GIB, work=GIB, memory=GIB, parallel=4, utilization=0.9)
    assert placed([need], [H100], workers="auto") == Placement(workers=2, threads=1, gpus=4, memory=GIB)


def test_unknown_gpu_memory_is_refused_for_auto_alone():
    unknown = Node(name="mig", cpus=8, gpus=2)
    with pytest.raises(ResourceError, match=r"GPUs of mig cannot be told .* set executor\.gpus_per_worker"):
        placed([SMALL], [H100, unknown])
    assert placed([SMALL], [unknown], gpus_per_worker=1, workers=2).gpus == 1
    with pytest.raises(ResourceError, match="no node of the cluster has a GPU"):
        placed([SMALL], [CPU])


def test_shares_add_up_as_ray_counts_them():
    for tenants in range(1, 20):
        placement = Placement(workers=1, threads=1, gpus=math.floor(10_000 / tenants) / 10_000)
        assert placement.fitting(Node(name="n", cpus=100, gpus=1)) >= tenants


def test_nvidia_smi_is_read_and_slices_are_not_guessed():
    assert smallest_of("81559, Disabled\n40960, [N/A]\n") == 40960 << 20
    assert smallest_of("81559, Enabled\n") is None
    assert smallest_of("") is None


def test_the_need_of_a_model_is_counted_from_its_files(tiny):
    setup = {"path": str(tiny("llama")), "weights_id": "", "dtype": "float32", "attention": "sdpa"}
    here = need_of("m", ModelSetup(**setup, device="cpu"))
    assert (here.weights, here.parallel) == (0, 0)
    there = need_of("m", ModelSetup(**setup, device="cuda"))
    assert there.weights == 4 * 61_600
    engines = {"fast": EngineSetup(kind="vllm", tensor_parallel=2), "slow": EngineSetup(kind="hf")}
    served = need_of("m", ModelSetup(**setup, device="cuda", engines=engines))
    assert (served.parallel, served.utilization) == (2, 0.9)
    # The model in memory that vLLM is compared with is on the CPU.
    assert served.memory - there.memory == there.weights
    eager = need_of("m", ModelSetup(**{**setup, "attention": "eager"}, device="cuda"))
    assert eager.work > there.work
