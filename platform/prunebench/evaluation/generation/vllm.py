"""vLLM as an engine: one of the dense shape for every plan, or one for each plan."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prunebench.core.plan import PruningPlan
from prunebench.core.unit import Generation
from prunebench.errors import EngineError, NonFiniteError, ResourceError
from prunebench.evaluation.generation.base import Request
from prunebench.evaluation.generation.codec import Codec
from prunebench.evaluation.generation.padded import PaddedModel
from prunebench.evaluation.generation.proof import TEXT, TOKENS, Proof
from prunebench.evaluation.generation.server import VllmServer, arguments
from prunebench.evaluation.setup import EngineSetup, ModelSetup
from prunebench.models.checkpoint import Checkpoint
from prunebench.models.export import write
from prunebench.models.load import DenseModel
from prunebench.models.padding import padded_ok
from prunebench.models.vllm_proof import check_served


class VllmEngine:
    """One engine of the dense shape for every plan, or one engine a plan."""

    def __init__(
        self,
        engine: EngineSetup,
        model: ModelSetup,
        checkpoint: Checkpoint,
        codec: Codec,
        dense: Callable[[], DenseModel],
    ) -> None:
        """Keep what an engine is started with; `dense` gives the model in memory that it is compared with."""
        self._engine, self._model = engine, model
        self._checkpoint, self._codec, self._dense = checkpoint, codec, dense
        self.server: VllmServer | None = None
        """The running engine."""
        self.padded: PaddedModel | None = None
        """What the running engine shows, where it has the dense shape."""
        self._shown: str = ""
        """Id of the plan that the server shows."""

    def generate(
        self, plan: PruningPlan, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Generation | NonFiniteError]]:
        """Show the plan, then yield requests as they are finished.

        Raises:
            ResourceError: vLLM does not start here, or does not do what a swap needs.
            EngineError: the engine does not show the plan's model.
        """
        try:
            self.show(plan)
        except NonFiniteError as error:
            yield from ((place, error) for place in range(len(requests)))
            return
        assert self.server is not None
        for place, outcome in self.server.write(requests):
            if isinstance(outcome, NonFiniteError):
                yield place, NonFiniteError(f"plan {plan.plan_id}: {outcome}")
            else:
                yield place, outcome

    def close(self) -> None:
        """Stop the engine."""
        self.padded, self._shown = None, ""
        if self.server is not None:
            server, self.server = self.server, None
            server.stop()

    def show(self, plan: PruningPlan) -> None:
        if self.server is not None and self._shown == plan.plan_id:
            return
        # Not the former plan's from here on, whatever goes wrong.
        self._shown = ""
        if self._engine.execution == "padded" and padded_ok(self._checkpoint.family, plan):
            if self.padded is None:
                self._start_padded()
            assert self.padded is not None
            self.padded.show(plan)
        else:
            self._start_deployed(plan)
        self._shown = plan.plan_id

    def _serve(self, folder: Path) -> VllmServer:
        # First of all the model in memory: it gives back what another took of the device.
        with_transformers = type(self._dense().model.model)
        chosen = arguments(self._engine, self._model, self._checkpoint)
        return VllmServer(folder, chosen, self._engine, self._model, self._codec, with_transformers)

    def _start_padded(self) -> None:
        self.close()
        self.server = self._serve(self._checkpoint.path)
        try:
            proof = self._proof(self.server)
            self.padded = PaddedModel(self.server, self._checkpoint, self._model.dtype, proof)
        except EngineError as error:
            raise ResourceError(
                f"the start-up test of vLLM with {self._checkpoint.name} failed: {error}; set execution: "
                "deployed for this engine, which gives every plan one of its own"
            ) from error

    def _start_deployed(self, plan: PruningPlan) -> None:
        self.close()
        with tempfile.TemporaryDirectory(prefix="prunebench-") as folder:
            written = write(self._checkpoint, plan, Path(folder) / plan.plan_id, dtype=self._model.dtype)
            check_served(written)
            self.server = self._serve(written.folder)
        self._proof(self.server).check(plan)

    def _proof(self, server: VllmServer) -> Proof:
        context = self._engine.max_model_len or self._checkpoint.config["max_position_embeddings"]
        ids = self._codec.text_ids(TEXT)[: min(TOKENS, context - 1)]
        return Proof(ids, self._dense, server.logprobs)
