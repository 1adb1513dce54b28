"""Text and documents: calibration corpora, probe corpora, built-in tasks, and the guard against overlap."""
