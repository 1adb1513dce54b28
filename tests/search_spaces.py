"""A shape to declare spaces on."""

from prunebench.core.shape import ModelShape

SHAPE = ModelShape(
    num_layers=12,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=44,
    block_extra_params=64,
    other_params=1000,
)
