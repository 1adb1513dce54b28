"""Hyper-parameter studies; the only package that imports optuna. Imports no torch."""
