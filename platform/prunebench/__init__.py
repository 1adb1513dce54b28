"""Compare and search training-free structured pruning of language models."""
