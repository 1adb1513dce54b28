"""Engines: from a plan and prompts to what the pruned model writes."""
