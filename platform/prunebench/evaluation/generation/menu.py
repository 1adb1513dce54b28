"""The menu of engines. Each is imported when it is made: vLLM alone takes 20 s."""

from collections.abc import Callable

from prunebench.evaluation.generation.base import Engine
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.load import DenseModel


def make_engine(
    engine: EngineSetup,
    model: ModelSetup,
    checkpoint: Checkpoint,
    codec: Codec,
    dense: Callable[[str], DenseModel],
) -> Engine:
    """An engine that starts when it is first asked to write.

    Args:
        engine: which, and its settings.
        model: how the model is loaded.
        checkpoint: the dense model's files.
        codec: its tokenizer.
        dense: gives the dense model in memory on a device.

    Raises:
        ResourceError: a package that the engine needs is not installed.
    """
    match engine.kind:
        case "hf":
            from prunebench.evaluation.generation.hf import HfEngine

            return HfEngine(lambda: dense(model.device), codec)
        case "fake":
            from prunebench.evaluation.generation.fake import FakeEngine

            return FakeEngine(codec, engine.orders)
        case _:
            from prunebench.evaluation.generation.vllm import VllmEngine

            return VllmEngine(engine, model, checkpoint, codec, lambda: dense("cpu"))
