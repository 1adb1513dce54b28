"""The validated form of one experiment file; imports no torch."""
