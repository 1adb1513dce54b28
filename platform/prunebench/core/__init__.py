"""Values and arithmetic that everything else speaks in: standard library and numpy only."""
