"""Model families as data: where a block keeps its projections, norms and biases, and what depends on depth.

Every family keeps its blocks at `model.layers.<i>` of the checkpoint (`model.model.layers` of the module),
with `self_attn.o_proj` and `mlp.down_proj` inside each. What a config leaves out is filled in as Transformers
does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from prunebench.core.shape import ModelShape
from prunebench.core.stats import PROJECTIONS
from prunebench.errors import InputError, UnsupportedError

Config: TypeAlias = dict[str, Any]
Axis: TypeAlias = Literal["hidden", "queries", "keys", "head"]

BLOCKS: Final = "model.layers"
EMBEDDINGS: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"
REFUSED_SETTINGS: Final = {
    "quantization_config": "quantised weights: give the unquantised checkpoint",
    "per_layer_config": "layers of unequal sizes",
    "use_bidirectional_attention": "bidirectional attention",
    "text_config": "a multimodal model: give the checkpoint of its text model",
    "vision_config": "a multimodal model: give the checkpoint of its text model",
}
EXPERT_SETTINGS: Final = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_experts_per_tok",
)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one of the seven projections lives: a linear module of a block, or rows of a fused one."""

    role: str
    module: str
    """Path inside the block, such as "self_attn.q_proj"."""
    stacked: tuple[str, ...]
    """The roles whose rows the module's weight stacks, in order; the role alone where nothing is fused."""

    @property
    def is_fused(self) -> bool:
        """Whether other projections share the module."""
        return len(self.stacked) > 1

    def rows(self, shape: ModelShape) -> slice:
        """The projection's rows in the module's weight (and bias)."""
        start = sum(num_rows(role, shape) for role in self.stacked[: self.stacked.index(self.role)])
        return slice(start, start + num_rows(self.role, shape))


def num_rows(role: str, shape: ModelShape) -> int:
    """Output features of a projection."""
    if role in ("o", "down"):
        return shape.hidden_size
    if role in ("gate", "up"):
        return shape.intermediate_size
    return shape.head_dim * (shape.num_heads if role == "q" else shape.num_kv_heads)


def num_columns(role: str, shape: ModelShape) -> int:
    """Input features of a projection."""
    if role == "o":
        return shape.head_dim * shape.num_heads
    return shape.intermediate_size if role == "down" else shape.hidden_size


_SEPARATE: Final = {
    **{role: (f"self_attn.{role}_proj", (role,)) for role in ("q", "k", "v", "o")},
    **{role: (f"mlp.{role}_proj", (role,)) for role in ("gate", "up", "down")},
}
_FUSED: Final = {
    **_SEPARATE,
    **dict.fromkeys(("q", "k", "v"), ("self_attn.qkv_proj", ("q", "k", "v"))),
    **dict.fromkeys(("gate", "up"), ("mlp.gate_up_proj", ("gate", "up"))),
}
_PRE_NORMS: Final[dict[str, Axis]] = {"input_layernorm": "hidden", "post_attention_layernorm": "hidden"}
_POST_NORMS: Final[dict[str, Axis]] = {
    "post_attention_layernorm": "hidden",
    "post_feedforward_layernorm": "hidden",
}
_HEAD_NORMS: Final[dict[str, Axis]] = {"self_attn.q_norm": "head", "self_attn.k_norm": "head"}
_WIDE_NORMS: Final[dict[str, Axis]] = {"self_attn.q_norm": "queries", "self_attn.k_norm": "keys"}
_GEMMA_NORMS: Final[dict[str, Axis]] = {**_PRE_NORMS, **_POST_NORMS, "pre_feedforward_layernorm": "hidden"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of decoders. `sizes` are the config's defaults in the order of `_SIZES`; None is derived."""

    name: str
    model_types: tuple[str, ...]
    sizes: tuple[int | None, ...]
    norms: Mapping[str, Axis]
    """Norm modules of a block, and the axis their weights span."""
    mid_input: str = "post_attention_layernorm"
    """The submodule of a block whose input is h_mid, the residual stream between the sublayers."""
    slots: Mapping[str, tuple[str, tuple[str, ...]]]
    always_biased: tuple[str, ...] = ()
    bias_settings: Mapping[str, tuple[str, ...]] | None = None
    """Config switches that give biases to projections."""
    windowed: bool = False
    """Layers from `max_window_layers` on slide, if `use_sliding_window`."""
    full_every: int | None = None
    """Every how many layers one has full attention, the others sliding."""
    full_every_setting: str = ""
    """The config setting that overrides it."""
    tied_by_default: bool = False

    def projection(self, role: str) -> Slot:
        """Where the projection q, k, v, o, gate, up or down is."""
        module, stacked = self.slots[role]
        return Slot(role, module, stacked)

    @property
    def linears(self) -> tuple[str, ...]:
        """The linear modules of a block, fused ones once, in the order of their first projection."""
        return tuple(dict.fromkeys(self.projection(role).module for role in PROJECTIONS))

    def biased(self, config: Config) -> frozenset[str]:
        """The roles whose modules have a bias."""
        switched = (roles for name, roles in (self.bias_settings or {}).items() if config.get(name))
        return frozenset(self.always_biased).union(*switched)

    def block_tensors(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Name inside the block and shape of every parameter of a block."""
        shape = shape_of(config)
        spans = {
            "hidden": shape.hidden_size,
            "queries": shape.num_heads * shape.head_dim,
            "keys": shape.num_kv_heads * shape.head_dim,
            "head": shape.head_dim,
        }
        tensors: dict[str, tuple[int, ...]] = {
            f"{norm}.weight": (spans[axis],) for norm, axis in self.norms.items()
        }
        biased = self.biased(config)
        for role in PROJECTIONS:
            slot = self.projection(role)
            rows = sum(num_rows(stacked, shape) for stacked in slot.stacked)
            tensors[f"{slot.module}.weight"] = (rows, num_columns(role, shape))
            if role in biased:
                tensors[f"{slot.module}.bias"] = (rows,)
        return tensors

    def layer_types(self, config: Config) -> tuple[str, ...] | None:
        """Attention type of every layer; None where the layers do not differ by config.

        Raises:
            InputError: the config lists another number of layers.
        """
        num_layers = shape_of(config).num_layers
        if config.get("layer_types") is not None:
            if len(config["layer_types"]) != num_layers:
                listed = len(config["layer_types"])
                raise InputError(
                    f"config.json lists {listed} layer_types but num_hidden_layers is {num_layers}"
                )
            return tuple(config["layer_types"])
        if self.windowed:
            slides = bool(config.get("use_sliding_window")) and config.get("sliding_window", 4096) is not None
            full = config.get("max_window_layers", 28) if slides else num_layers
            return tuple("sliding_attention" if i >= full else "full_attention" for i in range(num_layers))
        if self.full_every is None:
            return None
        every = (
            config.get("sliding_window_pattern", self.full_every)
            if self.name == "Gemma-3"
            else self.full_every
        )
        return tuple(
            "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(num_layers)
        )

    def is_tied(self, config: Config) -> bool:
        """Whether the head is the embedding matrix."""
        return bool(config.get("tie_word_embeddings", self.tied_by_default))

    def pruned_config(self, config: Config, bases: Sequence[int]) -> Config:
        """The config of the model whose blocks take their place and type from the dense layers `bases`.

        Every setting that depends on depth is rewritten; remote code, which an export does not carry, goes.
        """
        pruned = {key: value for key, value in config.items() if key != "auto_map"}
        pruned["num_hidden_layers"] = len(bases)
        if (types := self.layer_types(config)) is not None:
            pruned["layer_types"] = [types[base] for base in bases]
            # A pattern by position would contradict layer_types in readers that prefer the pattern.
            for pattern in ("sliding_window_pattern", "_sliding_window_pattern"):
                pruned.pop(pattern, None)
        if "max_window_layers" in config:
            pruned["max_window_layers"] = sum(base < config["max_window_layers"] for base in bases)
        return pruned


_SIZES: Final = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
_ATTENTION_BIAS: Final = {"attention_bias": ("q", "k", "v", "o")}

FAMILIES: Final = (
    Family(
        name="Llama",
        model_types=("llama",),
        sizes=(32, 4096, 11008, 32, None, None),
        norms=_PRE_NORMS,
        slots=_SEPARATE,
        bias_settings={**_ATTENTION_BIAS, "mlp_bias": ("gate", "up", "down")},
    ),
    Family(
        name="Mistral",
        model_types=("mistral",),
        sizes=(32, 4096, 14336, 32, 8, None),
        norms=_PRE_NORMS,
        slots=_SEPARATE,
    ),
    Family(
        name="Qwen2",
        model_types=("qwen2",),
        sizes=(32, 4096, 22016, 32, 32, None),
        norms=_PRE_NORMS,
        slots=_SEPARATE,
        always_biased=("q", "k", "v"),
        windowed=True,
    ),
    Family(
        name="Qwen3",
        model_types=("qwen3",),
        sizes=(32, 4096, 22016, 32, 32, 128),
        norms={**_PRE_NORMS, **_HEAD_NORMS},
        slots=_SEPARATE,
        bias_settings=_ATTENTION_BIAS,
        windowed=True,
    ),
    Family(
        name="OLMo-2",
        model_types=("olmo2",),
        sizes=(32, 4096, 11008, 32, None, None),
        norms={**_POST_NORMS, **_WIDE_NORMS},
        mid_input="mlp",
        slots=_SEPARATE,
        bias_settings=_ATTENTION_BIAS,
    ),
    Family(
        name="OLMo-3",
        model_types=("olmo3",),
        sizes=(32, 4096, 11008, 32, None, None),
        norms={**_POST_NORMS, **_WIDE_NORMS},
        mid_input="mlp",
        slots=_SEPARATE,
        bias_settings=_ATTENTION_BIAS,
        full_every=4,
    ),
    Family(
        name="Phi-3",
        model_types=("phi3",),
        sizes=(32, 3072, 8192, 32, None, None),
        norms=_PRE_NORMS,
        slots=_FUSED,
    ),
    Family(
        name="Gemma-2",
        model_types=("gemma2",),
        sizes=(26, 2304, 9216, 8, 4, 256),
        norms=_GEMMA_NORMS,
        mid_input="pre_feedforward_layernorm",
        slots=_SEPARATE,
        bias_settings=_ATTENTION_BIAS,
        full_every=2,
        tied_by_default=True,
    ),
    Family(
        name="Gemma-3",
        model_types=("gemma3_text",),
        sizes=(26, 2304, 9216, 8, 4, 256),
        norms={**_GEMMA_NORMS, **_HEAD_NORMS},
        mid_input="pre_feedforward_layernorm",
        slots=_SEPARATE,
        bias_settings=_ATTENTION_BIAS,
        full_every=6,
        full_every_setting="sliding_window_pattern",
        tied_by_default=True,
    ),
)
_BY_TYPE: Final = {model_type: family for family in FAMILIES for model_type in family.model_types}


def family_of(config: Config) -> Family:
    """The family of a model.

    Raises:
        UnsupportedError: mixture of experts, encoder-decoder, quantised, multimodal or unknown, by name.
        InputError: no model type at all.
    """
    model_type = config.get("model_type")
    if not model_type or not isinstance(model_type, str):
        raise InputError(f"config.json: model_type has to be a name, not {model_type!r}")
    experts = [name for name in EXPERT_SETTINGS if config.get(name)]
    if experts or "moe" in model_type.lower() or model_type == "mixtral":
        raise UnsupportedError(
            f"model type '{model_type}' is a mixture of experts: its blocks hold no single MLP, in which "
            "budgets are counted and on which width methods and merges work"
        )
    if config.get("is_encoder_decoder"):
        raise UnsupportedError(
            f"model type '{model_type}' is an encoder-decoder: prunebench prunes decoders only"
        )
    for setting, meaning in REFUSED_SETTINGS.items():
        if config.get(setting):
            raise UnsupportedError(
                f"model type '{model_type}' with {setting} in config.json is refused: {meaning}"
            )
    if model_type not in _BY_TYPE:
        raise UnsupportedError(
            f"model type '{model_type}' is not supported; supported: {', '.join(_BY_TYPE)}"
        )
    return _BY_TYPE[model_type]


def shape_of(config: Config, *, block_extra_params: int = 0, other_params: int = 0) -> ModelShape:
    """The sizes that a config states or leaves to its family's defaults.

    Raises:
        UnsupportedError: as `family_of`.
        InputError: a size is not a positive integer.
    """
    family = family_of(config)
    sizes = {name: config.get(name, default) for name, default in zip(_SIZES, family.sizes, strict=True)}
    for name, size in sizes.items():
        optional = size is None and name in ("num_key_value_heads", "head_dim")
        if not optional and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise InputError(f"config.json: {name} has to be a positive integer, not {size!r}")
    heads = sizes["num_attention_heads"]
    return ModelShape(
        num_layers=sizes["num_hidden_layers"],
        hidden_size=sizes["hidden_size"],
        intermediate_size=sizes["intermediate_size"],
        num_heads=heads,
        num_kv_heads=sizes["num_key_value_heads"] or heads,
        head_dim=sizes["head_dim"] or sizes["hidden_size"] // heads,
        block_extra_params=block_extra_params,
        other_params=other_params,
    )
