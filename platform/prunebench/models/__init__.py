"""Checkpoints, dense models, reversible views of pruned ones, calibration and export."""
