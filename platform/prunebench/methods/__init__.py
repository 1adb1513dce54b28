"""The menu of pruning methods: numpy and scikit-learn only, one file each, one line here."""

import difflib

from prunebench.errors import InputError
from prunebench.methods.base import AnyMethod
from prunebench.methods.laco import LaCo
from prunebench.methods.last_n import LastN
from prunebench.methods.layertrim import LayerTrim
from prunebench.methods.llm_streamline import LLMStreamline
from prunebench.methods.lorp import LoRP
from prunebench.methods.random_drop import RandomDrop
from prunebench.methods.shortgpt import ShortGPT
from prunebench.methods.simdiff import SimDiffMASD, SimDiffMSSD
from prunebench.methods.wrp import WRP

METHODS: dict[str, AnyMethod] = {
    "shortgpt": ShortGPT(),
    "llm_streamline": LLMStreamline(),
    "lorp": LoRP(),
    "wrp": WRP(),
    "simdiff_mssd": SimDiffMSSD(),
    "simdiff_masd": SimDiffMASD(),
    "laco": LaCo(),
    "layertrim": LayerTrim(),
    "last_n": LastN(),
    "random": RandomDrop(),
}


def method_named(name: str) -> AnyMethod:
    """The method of that name.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    if name in METHODS:
        return METHODS[name]
    nearest = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"choose one of {', '.join(METHODS)}"
    raise InputError(f"there is no method '{name}': {hint}")
