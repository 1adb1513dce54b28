"""vLLM plugin: serves checkpoints of unequal MLP widths under the names that their config.json gives.

vLLM calls `register` in each of its processes, found by the entry point `vllm.general_plugins` of this
package. Nothing but the standard library is imported here, so that no other engine gets slower or fails.
"""

from collections.abc import Sequence
from typing import Final

OWN: Final = "Prunebench"
"""Before the name of the stock class."""
ARCHITECTURES: Final = tuple(
    f"{OWN}{family}ForCausalLM" for family in ("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3")
)


def register() -> None:
    """Make the architectures known to vLLM; their module is imported when one is served."""
    from vllm import ModelRegistry

    known = ModelRegistry.get_supported_archs()
    for name in ARCHITECTURES:
        if name not in known:
            ModelRegistry.register_model(name, f"prunebench.models.vllm_widths:{name}")


def check_tensor_parallel(widths: Sequence[int], size: int) -> None:
    """Refuse to cut an MLP into parts of unequal size.

    Args:
        widths: MLP features of each block.
        size: tensor-parallel workers.

    Raises:
        ValueError: naming the first block whose width the number of workers does not divide.
    """
    for layer, width in enumerate(widths):
        if width % size:
            raise ValueError(
                f"the MLP of block {layer} has {width} features, which {size} tensor-parallel workers cannot "
                f"share equally: serve it with a size that divides all widths, or export it padded"
            )
