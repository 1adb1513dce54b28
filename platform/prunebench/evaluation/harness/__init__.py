"""lm-eval's tasks without its scheduler: only here is it imported."""
