"""ModelShape: the sizes of a decoder that budgets and plans are counted in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of one decoder-only model.

    num_layers L, hidden_size C, intermediate_size I, num_heads H, num_kv_heads KV and head_dim hd as in the
    papers; `block_extra_params` counts what a block holds besides the seven projections (norms, biases),
    `other_params` what lies outside the blocks (embeddings, head, final norm).
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_extra_params: int = 0
    other_params: int = 0

    @property
    def attention_params(self) -> int:
        """Parameters of q, k, v and o: 2·C·H·hd + 2·C·KV·hd."""
        return 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)

    @property
    def params_per_feature(self) -> int:
        """Parameters of one MLP feature: a row of gate, a row of up and a column of down (3·C)."""
        return 3 * self.hidden_size

    @property
    def mlp_params(self) -> int:
        """Parameters of gate, up and down: 3·C·I."""
        return self.params_per_feature * self.intermediate_size

    @property
    def params_per_layer(self) -> int:
        """P_layer: the seven projections of one block, the unit of every budget."""
        return self.attention_params + self.mlp_params

    @property
    def total_params(self) -> int:
        """All parameters of the dense model (a tied head is counted once)."""
        return self.num_layers * (self.params_per_layer + self.block_extra_params) + self.other_params
