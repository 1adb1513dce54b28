"""Whether a model's own class computes what its blocks compute in turn, which is what is measured."""

from typing import Final

import numpy as np
import torch

from prunebench.core.plan import PruningPlan
from prunebench.errors import InputError
from prunebench.models.load import FLOATS, DenseModel
from prunebench.models.scoring import Row, token_logprobs

TOKENS: Final = 24
TOLERANCES: Final = {"float64": 1e-6, "float32": 1e-3}
"""Of log-probabilities; the orders of sums may differ."""
COARSE: Final = 0.1
"""Of 16-bit floats."""


@torch.no_grad()
def check_own_forward(dense: DenseModel) -> None:
    """Compare the model's own log-probabilities of a short row with those of its parts in turn.

    Plans are measured block by block, from the embeddings to the head: a class that computes anything else
    around them would be named in the tables, and not measured.

    Raises:
        InputError: they differ, with the largest difference, or the code ends the process.
    """
    try:
        _compare(dense)
    except SystemExit as error:
        # It would end the run as if all were done; a worker that is told to go meets it elsewhere.
        name = dense.checkpoint.name
        raise InputError(f"the code of {name} ends the process: SystemExit: {error}") from error


def _compare(dense: DenseModel) -> None:
    ids = np.arange(TOKENS) % dense.checkpoint.vocab_size
    plan = PruningPlan.dense(dense.checkpoint.shape.num_layers)
    ((_, (parts,)),) = token_logprobs(dense, [plan], [Row(ids, scored_from=1)])
    row = torch.from_numpy(ids)[None].to(dense.device)
    logits = dense.model(input_ids=row, use_cache=False).logits[0, :-1].to(FLOATS["float32"])
    own = logits.log_softmax(-1).gather(-1, row[0, 1:, None].to(logits.device))[:, 0].cpu().numpy()
    largest = float(np.abs(own - parts).max())
    # Also where a difference is NaN.
    if not largest <= TOLERANCES.get(dense.dtype, COARSE):
        raise InputError(
            f"{type(dense.model).__name__} of {dense.checkpoint.name} computes other log-probabilities than "
            f"its blocks one after another (they differ by up to {largest:.3g}): plans are measured block by "
            "block, so own code is honoured inside of the blocks, the embeddings, the norm and the head alone"
        )
